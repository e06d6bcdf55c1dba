# SPDX-License-Identifier: Apache-2.0
"""The table entries that guard ports to hosts: which DSCPs a host may use, and how often it may answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address

from controller.model.traffic import TrafficClasses
from controller.southbound.desired import METER_RATES, Entry
from topo.graph import Topology

# What a switch does with packets that hosts may not send. remark: it sends them on as mice. stop: it drops
# INT probes and false CNPs, and sends the others on as mice. trust: it lets hosts use every DSCP.
STRAY_ACTIONS = ("remark", "stop", "trust")

# Why a packet of a host was dropped or remarked, by the column of the counter of strays.
# probe: an INT probe of its own. cnp: the DSCP of CNPs on another packet. answer: the DSCP of
# acknowledgements on what is neither an acknowledgement nor a CNP. rate: more of these two than the port may
# send. control: a DSCP of the controller and the switches. unplanned: the DSCP of a level on what is not a
# planned RoCE flow.
STRAY_REASONS = ("probe", "cnp", "answer", "rate", "control", "unplanned")

# Full frames at line rate for which a host may send one acknowledgement or CNP. Chosen: a TCP receiver
# acknowledges every second segment (RFC 9293, 3.8.6.3), and RoCE NICs and DCQCN's CNPs ask for less.
FRAMES_PER_ANSWER = 2
# Answers that may follow one another without a gap. Chosen: those to 128 frames that waited in a queue.
ANSWER_BURST = 64

PAIR_TABLE = "planned_pair"


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
        rate = -(-rate_bps // (8 * frame_bytes * FRAMES_PER_ANSWER))
        limit = (rate, ANSWER_BURST, rate, ANSWER_BURST)
        yield Entry("answer_rate", (("index", port),), METER_RATES, limit)
        for dscp, action_of in sorted(_actions(classes).items()):
            yield Entry("host_dscp", (("port", port), ("dscp", dscp)), action_of, mice)


def pair_entries(topology: Topology, pairs: Iterable[tuple[str, str]], strays: str) -> Iterator[Entry]:
    """The entries by which a leaf lets the planned RoCE flows of its hosts into the queues of levels.

    `pairs` are (sender, receiver), as in `Plan.pairs`, with senders of this leaf only.
    """
    if strays == "trust":
        return
    for src, dst in pairs:
        host = topology.host[src]
        ends = (("ipv4_src", _address(topology, src)), ("ipv4_dst", _address(topology, dst)))
        yield Entry(PAIR_TABLE, (("port", host.leaf_port), *ends), "trust_pair")


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


def _address(topology: Topology, host: str) -> int:
    return int(IPv4Address(topology.host[host].ip))
