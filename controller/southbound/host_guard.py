# SPDX-License-Identifier: Apache-2.0
"""The table entries that guard ports to hosts: which DSCPs a host may use, and how often it may answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.model.traffic import TrafficClasses
from controller.southbound.desired import METER_RATES, Entry, address_key, family_table
from topo.addresses import number_of
from topo.graph import Topology

# What a switch does with packets that hosts may not send. remark: it sends them on as mice. stop: it drops
# INT probes and false CNPs, and sends the others on as mice. trust: it lets hosts use every DSCP.
STRAY_ACTIONS = ("remark", "stop", "trust")

# Why a packet of a host was dropped or remarked, by the column of the counter of strays.
# probe: an INT probe of its own. cnp: the DSCP of CNPs on another packet. answer: the DSCP of
# acknowledgements on what is neither an acknowledgement nor a CNP. rate: more of these two than the port may
# send. control: a DSCP of the controller and the switches. unplanned: the DSCP of a level on what is not a
# planned flow, or an answer between hosts without a planned flow. cpu: more packets for the controller than
# the port may send.
STRAY_REASONS = ("probe", "cnp", "answer", "rate", "control", "unplanned", "cpu")

# Acknowledgements and CNPs that a host may send for each full frame at line rate. Chosen: one of each, the
# most that a host has reason to send. Where many flows meet, every marked packet asks for a CNP, because the
# interval of CNPs counts for each queue pair. With less, answers wait behind all data, and their senders run
# into time-outs.
ANSWERS_PER_FRAME = 2
# Answers that may follow one another without a gap. Chosen: those to 32 frames that waited in a queue.
ANSWER_BURST = 64
# Packets a second that a host may send to the controller (their TTL ends, or they look like link probes), and
# how many at once. Chosen: a traceroute sends three for each hop, and the controller's own probes of a fabric
# are thousands a second.
CPU_RATE, CPU_BURST = 100, 32

PAIR_TABLE, FLOW_TABLE = "planned_pair", "planned_flow"
# IP protocol numbers (RFC 790) of flows that may use the levels although no plan has them.
TCP, UDP = 6, 17

# The actions of PAIR_TABLE: the host behind the port sends planned flows to the other one, receives some from
# it, or both.
SENDS, ANSWERS, BOTH = "trust_pair", "trust_answering_pair", "trust_pair_both_ways"


@dataclass(frozen=True, slots=True)
class LevelFlow:
    """A flow over TCP or UDP that may use the DSCPs of levels: hosts by name, ports as on the wire."""

    src: str
    dst: str
    protocol: int
    src_port: int
    dst_port: int

    @property
    def ways(self) -> tuple[tuple[str, str, int, int, int], ...]:
        """The 5-tuples that have the right: (sender, receiver, protocol, source port, destination port).

        What TCP sends back has it too, or acknowledgements would wait behind all mice.
        """
        there = (self.src, self.dst, self.protocol, self.src_port, self.dst_port)
        back = (self.dst, self.src, self.protocol, self.dst_port, self.src_port)
        return (there, back) if self.protocol == TCP else (there,)


@dataclass(frozen=True, slots=True)
class HostGuard:
    """What ports to hosts trust. `strays` is one of STRAY_ACTIONS, and `level_flows` may use the levels as
    the flows of plans may.
    """

    strays: str = STRAY_ACTIONS[0]
    level_flows: tuple[LevelFlow, ...] = ()


def guard_entries(
    rates: Mapping[int, int], classes: TrafficClasses, frame_bytes: int, strays: str
) -> Iterator[Entry]:
    """The entries for the ports to hosts, given as port -> rate in bit/s. `strays` is one of STRAY_ACTIONS.

    `frame_bytes` is the length of a full frame.
    """
    if strays == "trust":
        return
    mice = (classes.mice,)
    action, params = ("stop_strays", ()) if strays == "stop" else ("remark_strays", mice)
    for port, rate_bps in sorted(rates.items()):
        yield Entry("edge_ingress", (("port", port),), action, params)
        rate = -(-rate_bps * ANSWERS_PER_FRAME // (8 * frame_bytes))
        limit = (rate, ANSWER_BURST, rate, ANSWER_BURST)
        yield Entry("answer_rate", (("index", port),), METER_RATES, limit)
        cpu_limit = (CPU_RATE, CPU_BURST, CPU_RATE, CPU_BURST)
        yield Entry("cpu_rate", (("index", port),), METER_RATES, cpu_limit)
        for dscp, action_of in sorted(_actions(classes).items()):
            yield Entry("host_dscp", (("port", port), ("dscp", dscp)), action_of, mice)


def flow_entries(topology: Topology, leaf: str, guard: HostGuard) -> Iterator[Entry]:
    """The entries by which a leaf lets the level flows of its hosts into the queues of levels."""
    if guard.strays == "trust":
        return
    for flow in guard.level_flows:
        for own, other, protocol, own_port, other_port in flow.ways:
            host = topology.host[own]
            if host.leaf == leaf:
                ends = address_pair(host.ip, topology.host[other].ip)
                ports = (("protocol", protocol), ("src_port", own_port), ("dst_port", other_port))
                key = (("port", host.leaf_port), *ends, *ports)
                yield Entry(family_table(FLOW_TABLE, host.ip), key, "trust_flow")


def pair_entries(topology: Topology, rights: Mapping[tuple[str, str], str], strays: str) -> Iterator[Entry]:
    """The entries by which a leaf lets the planned RoCE flows of its hosts, and their answers to such flows,
    into higher queues.

    `rights` are those of this leaf, as in `rights_by_leaf`.
    """
    if strays == "trust":
        return
    for (own, other), right in rights.items():
        host = topology.host[own]
        ends = address_pair(host.ip, topology.host[other].ip)
        yield Entry(family_table(PAIR_TABLE, host.ip), (("port", host.leaf_port), *ends), right)


def rights_by_leaf(
    topology: Topology, pairs: Iterable[tuple[str, str]], mice_pairs: Iterable[tuple[str, str]]
) -> Mapping[str, Mapping[tuple[str, str], str]]:
    """What the hosts of each leaf may send to which others: leaf -> (own host, other host) -> action.

    `pairs` and `mice_pairs` are (sender, receiver), as in `Plan`.
    """
    found: dict[str, dict[tuple[str, str], str]] = {}

    def give(own: str, other: str, right: str) -> None:
        rights = found.setdefault(topology.host[own].leaf, {})
        rights[own, other] = right if rights.get((own, other), right) == right else BOTH

    for src, dst in pairs:
        give(src, dst, SENDS)
        give(dst, src, ANSWERS)
    for src, dst in mice_pairs:
        give(dst, src, ANSWERS)
    return found


def address_pair(src: str, dst: str) -> tuple[tuple[str, int], tuple[str, int]]:
    """The addresses of two hosts as the first part of a match key."""
    return (address_key("src", src), number_of(src)), (address_key("dst", dst), number_of(dst))


def host_rates(topology: Topology, switch: str, ports: Collection[int]) -> Mapping[int, int]:
    """The rate in bit/s of each of the ports of a switch."""
    return {port: topology.ports[switch][port].rate_bps for port in ports}


def _actions(classes: TrafficClasses) -> Mapping[int, str]:
    """What the switch asks of packets of a host, by DSCP. The other DSCPs belong to the lowest queue."""
    return {
        classes.control: "trust_nothing",
        classes.probe: "trust_nothing",
        classes.cnp: "trust_answers",
        classes.ack: "trust_answers",
        **dict.fromkeys(classes.levels, "trust_planned"),
    }
