# SPDX-License-Identifier: Apache-2.0
"""The table entries that each switch should have, as plain values.

Tables, keys and actions have the names of the P4 program. The codec resolves them through P4Info and refuses
a program that lacks one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.model.traffic import TrafficClasses
from controller.routing.forwarding import SwitchForwarding
from topo.addresses import is_ipv6, number_of
from topo.graph import Switch

# Meters among the names of tables. A cell always exists and can only be modified.
METERS = frozenset({"answer_rate", "cpu_rate"})

# What lets flows of hosts into higher queues. These entries refer to no table, and none refers to them.
RIGHTS = frozenset({"planned_pair", "planned_pair_ipv6", "planned_flow", "planned_flow_ipv6"})

# The tables in the order in which they are written: a table refers to tables of earlier stages only. A dead
# port comes first, because this one entry moves all its traffic to the backups. edge_ingress comes before the
# tables that forward, so that ports to hosts are guarded before packets flow.
STAGES: tuple[frozenset[str], ...] = (
    frozenset({"port_state"}),
    frozenset({"switch_identity", "queue", "edge", "edge_ingress", *METERS, "ecn", "ecn_tcp", "next_hop"}),
    frozenset({"ecmp", "spread", "pinned_flow", "pinned_flow_ipv6", "remark_flow", "remark_flow_ipv6"})
    | RIGHTS,
    frozenset({"host_dscp"}),
    frozenset({"routing", "routing_ipv6", "remark"}),
)

# What only some targets have: without it, the entries are left out.
OPTIONAL = frozenset({"host_dscp", "spread", "ecn_tcp", *RIGHTS, *METERS})

METER_RATES = "meter_rates"

# Why a switch sends a packet to the controller: the codes of the P4 program's packet-in header.
REASON_INT = 1
REASON_LINK_PROBE = 2

# Bytes of a RoCEv2 frame with 1,024 bytes of payload.
FRAME_BYTES = 1082

OWN_TABLES = frozenset[str]().union(*STAGES)

# Range entries that approximate RED's ramp between Kmin and Kmax. Chosen.
ECN_STEPS = 16
# The P4 program's mark probability of 1, and its greatest queue depth (19 bits).
ALWAYS_MARK = 0xFFFF
MAX_DEPTH = (1 << 19) - 1

Match = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A table entry. A match value is an int (exact), (value, prefix length) or (low, high).

    An empty match means the table's default action. A cell of a meter (METERS) is an entry too: its match is
    the index, its action METER_RATES, and its parameters are the committed rate and burst and the peak rate
    and burst (RFC 2698), in packets a second and packets.
    """

    table: str
    match: tuple[tuple[str, Match], ...]
    action: str
    params: tuple[int, ...] = ()
    priority: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies the entry within its switch."""
        return (self.table, self.match, self.priority)

    @property
    def is_default(self) -> bool:
        """Whether this is the table's default action, which can only be modified."""
        return not self.match

    @property
    def exists_always(self) -> bool:
        """Whether this is a default action or a cell of a meter: neither is inserted or deleted."""
        return self.is_default or self.table in METERS

    def __str__(self) -> str:
        match = " ".join(f"{name}={value}" for name, value in self.match) or "default"
        return f"{self.table}[{match}] -> {self.action}({', '.join(map(str, self.params))})"


@dataclass(frozen=True, slots=True)
class EcnProfile:
    """RED's marking ramp as DCQCN uses it (Zhu et al. 2015, 3.1).

    Up to the queue depth `kmin` nothing is marked; the probability grows to `pmax` (0 to 1) at `kmax`, and is
    1 beyond. Depths are in packets of `frame_bytes`, or in buffer cells after `in_cells`. `tcp` is the ramp
    of ECN-capable TCP, on targets that can tell it apart; None: the same.
    """

    kmin: int
    kmax: int
    pmax: float
    frame_bytes: int = FRAME_BYTES
    tcp: EcnProfile | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.kmin < self.kmax <= MAX_DEPTH and 0.0 <= self.pmax <= 1.0):
            raise ValueError(
                f"an ECN profile needs 0 <= kmin < kmax <= {MAX_DEPTH} packets and pmax from 0 to 1; "
                f"this one has kmin {self.kmin}, kmax {self.kmax}, pmax {self.pmax}"
            )

    def in_cells(self, cell_bytes: int) -> EcnProfile:
        """The same ramp for a target that counts depth in buffer cells of `cell_bytes`."""
        cells = -(-self.frame_bytes // cell_bytes)
        tcp = self.tcp.in_cells(cell_bytes) if self.tcp is not None else None
        return EcnProfile(self.kmin * cells, self.kmax * cells, self.pmax, self.frame_bytes, tcp)

    def ramp(self) -> tuple[tuple[int, int, int], ...]:
        """Disjoint depth ranges (low, high, probability out of 65,535), ascending, up to the greatest depth.

        The probability of a range is the ramp's at the middle of the range.
        """
        span = self.kmax - self.kmin - 1
        steps = min(ECN_STEPS, span)
        ranges = []
        for k in range(steps):
            low = self.kmin + 1 + k * span // steps
            high = self.kmin + (k + 1) * span // steps
            middle = ((low + high) / 2 - self.kmin) / (self.kmax - self.kmin)
            ranges.append((low, high, min(ALWAYS_MARK - 1, round(self.pmax * middle * ALWAYS_MARK))))
        return (*ranges, (self.kmax, MAX_DEPTH, ALWAYS_MARK))


def desired_entries(
    switch: Switch,
    forwarding: SwitchForwarding,
    classes: TrafficClasses,
    ecn: EcnProfile,
    *,
    down_ports: Collection[int] = (),
) -> tuple[Entry, ...]:
    """All entries that `switch` should have apart from those of a plan and those that guard ports to hosts
    (host_guard), each key once. `down_ports` are the ports that lead nowhere now.
    """
    return (
        *(Entry("port_state", (("port", port),), "set_port_down") for port in sorted(down_ports)),
        Entry("switch_identity", (), "set_switch_id", (switch.device_id,)),
        *_queue(classes.queues),
        *_ecn(classes, ecn),
        *(Entry("edge", (("port", port),), "mark_edge") for port in sorted(forwarding.edge_ports)),
        *_routing(switch, forwarding),
    )


def _queue(queues: Mapping[int, int]) -> Iterator[Entry]:
    for dscp, qid in sorted(queues.items()):
        yield Entry("queue", (("dscp", dscp),), "set_queue", (qid,))


def _ecn(classes: TrafficClasses, ecn: EcnProfile) -> Iterator[Entry]:
    # The queue of acknowledgements, CNPs and control is not marked: no sender reacts to marks on them.
    top = classes.queues[classes.control]
    tables = [("ecn", "set_mark_probability", ecn.ramp())]
    if ecn.tcp is not None:
        # What this table leaves out, ecn decides: a short queue needs an entry too.
        ramp = ((0, ecn.tcp.kmin, 0), *ecn.tcp.ramp())
        tables.append(("ecn_tcp", "set_tcp_mark_probability", ramp))
    for table, action, ramp in tables:
        for qid in sorted(set(classes.queues.values()) - {top}):
            for i, (low, high, probability) in enumerate(ramp):
                key = (("qid", qid), ("depth", (low, high)))
                yield Entry(table, key, action, (probability,), priority=10 + i)


def _routing(switch: Switch, forwarding: SwitchForwarding) -> Iterator[Entry]:
    for ident, hop in sorted(forwarding.next_hops.items()):
        yield Entry(
            "next_hop",
            (("next_hop_id", ident),),
            "forward",
            (hop.port, mac_to_int(hop.src_mac), mac_to_int(hop.dst_mac)),
        )
    for group, members in sorted(forwarding.groups.items()):
        for bucket, (member, backup) in enumerate(zip(members, backups(members), strict=True)):
            key = (("group_id", group), ("bucket", bucket))
            if backup is None:
                yield Entry("ecmp", key, "set_next_hop", (member,))
            else:
                port = forwarding.next_hops[member].port
                yield Entry("ecmp", key, "set_next_hop_with_backup", (member, port, backup))
    for prefix, route in sorted(forwarding.routes.items()):
        address, _, length = prefix.partition("/")
        action = "set_next_hop" if route.kind == "next_hop" else f"set_ecmp_group_tier{route.tier}"
        yield Entry(
            family_table("routing", address),
            ((address_key("dst", address), (number_of(address), int(length))),),
            action,
            (route.id,),
        )


def family_table(table: str, address: str) -> str:
    """The name of a table that matches addresses, for the family of this address."""
    return f"{table}_ipv6" if is_ipv6(address) else table


def address_key(end: str, address: str) -> str:
    """The name of the key of an address; `end` is src or dst."""
    return f"{'ipv6' if is_ipv6(address) else 'ipv4'}_{end}"


def backups(members: Sequence[int]) -> tuple[int | None, ...]:
    """For each bucket of a group, the next hop that takes over while the bucket's own next hop is down.

    The buckets of one next hop get all other next hops in turn, which spreads the load of a dead port. None
    where the group has no other next hop.
    """
    others = {m: [x for x in dict.fromkeys(members) if x != m] for m in set(members)}
    seen: dict[int, int] = defaultdict(int)
    result: list[int | None] = []
    for member in members:
        rest = others[member]
        result.append(rest[seen[member] % len(rest)] if rest else None)
        seen[member] += 1
    return tuple(result)


def mac_to_int(mac: str) -> int:
    """A MAC address like "02:00:..." as a number."""
    return int(mac.replace(":", ""), 16)
