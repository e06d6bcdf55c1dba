# SPDX-License-Identifier: Apache-2.0
"""Table entries for single flows: pinned to a next hop, or remarked to another DSCP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.model.plan import ConnectionPlan, FlowPin, FlowRemark
from controller.routing.forwarding import Route, SwitchForwarding
from controller.routing.hash import UDP
from controller.southbound.desired import Entry, Match, family_table
from controller.southbound.host_guard import PAIR_TABLE, HostGuard, LevelFlow, address_pair, flow_entries
from controller.wire.rocev2 import ROCE_PORT
from topo.graph import Topology

FLOW_TABLES = frozenset({"pinned_flow", PAIR_TABLE, "remark", "remark_flow", "spread"}) | {
    *("pinned_flow_ipv6", f"{PAIR_TABLE}_ipv6", "remark_flow_ipv6")
}
"""The tables of entries that come from a plan."""

Key = tuple[tuple[str, Match], ...]


def pin_entries(
    topology: Topology, switch: str, forwarding: SwitchForwarding, pins: Iterable[FlowPin]
) -> Iterator[Entry]:
    """The `pinned_flow` entries of one switch. A pin gives no entry if no port leads to its next node.

    Several cables to the next node share the flows by their source ports. The backup is another next hop of
    the ECMP group that the flow would take without the pin.
    """
    ports = topology.ports[switch]
    for pin in pins:
        next_hops = [hop for hop, n in forwarding.next_hops.items() if ports[n.port].node == pin.toward]
        if pin.switch != switch or not next_hops:
            continue
        key = five_tuple(topology, pin.src, pin.dst, pin.source_port)
        yield _pin_entry(topology, forwarding, next_hops, pin.dst, key, pin.source_port)


def connection_entries(
    topology: Topology,
    switch: str,
    forwarding: SwitchForwarding,
    connections: Iterable[ConnectionPlan],
    guard: HostGuard,
) -> Iterator[Entry]:
    """The entries of one switch for connections of TCP and UDP: pins, rewritten DSCPs, and the right to the
    queues of levels, without those that `guard` grants anyway.
    """
    ports = topology.ports[switch]
    granted = {way for flow in guard.level_flows for way in flow.ways}
    level_flows, asked = [], set()
    for planned in connections:
        src, dst, own = planned.src, planned.dst, planned.connection
        key = five_tuple(topology, src, dst, own.source_port, own.protocol, own.dest_port)
        toward = dict(planned.pins).get(switch)
        next_hops = [hop for hop, n in forwarding.next_hops.items() if ports[n.port].node == toward]
        if next_hops:
            yield _pin_entry(topology, forwarding, next_hops, dst, key, own.source_port)
        level_flows.append(LevelFlow(src, dst, own.protocol, own.source_port, own.dest_port))
        host = topology.host[src]
        if host.leaf != switch or own.sent_dscp == planned.dscp:
            continue
        at: Key = (("port", host.leaf_port), ("dscp", own.sent_dscp))
        if at not in asked:
            asked.add(at)
            yield Entry("remark", at, "set_dscp_by_flow", (own.sent_dscp,))
        yield Entry(family_table("remark_flow", host.ip), (*at, *key), "set_dscp", (planned.dscp,))
    ways: dict[Key, Entry] = {}
    for flow in level_flows:
        own_guard = HostGuard(guard.strays, (flow,))
        if not granted.issuperset(flow.ways):
            ways.update((e.match, e) for e in flow_entries(topology, switch, own_guard))
    yield from ways.values()


def _pin_entry(
    topology: Topology,
    forwarding: SwitchForwarding,
    next_hops: Sequence[int],
    dst: str,
    key: Key,
    source_port: int,
) -> Entry:
    """The entry that sends packets of a 5-tuple to one of some next hops."""
    hop = next_hops[source_port % len(next_hops)]
    others = [h for h in _group(topology, forwarding, dst) if h != hop]
    table = family_table("pinned_flow", topology.host[dst].ip)
    if not others:
        return Entry(table, key, "set_next_hop", (hop,))
    backup = others[source_port % len(others)]
    port = forwarding.next_hops[hop].port
    return Entry(table, key, "set_next_hop_with_backup", (hop, port, backup))


def remark_entries(topology: Topology, switch: str, remarks: Iterable[FlowRemark]) -> Iterator[Entry]:
    """The `remark` and `remark_flow` entries of one switch: only these flows get another DSCP."""
    asked = set()
    for remark in remarks:
        host = topology.host[remark.src]
        if remark.switch != switch or host.leaf != switch:
            continue
        key: Key = (("port", host.leaf_port), ("dscp", remark.sent_dscp))
        if key not in asked:
            asked.add(key)
            yield Entry("remark", key, "set_dscp_by_flow", (remark.sent_dscp,))
        flow = five_tuple(topology, remark.src, remark.dst, remark.source_port)
        yield Entry(family_table("remark_flow", host.ip), (*key, *flow), "set_dscp", (remark.dscp,))


def next_hops_of(entry: Entry) -> tuple[int, ...]:
    """The next hops that an entry for a single flow refers to."""
    if entry.action == "set_next_hop":
        return entry.params
    return entry.params[::2] if entry.action == "set_next_hop_with_backup" else ()


def five_tuple(
    topology: Topology,
    src: str,
    dst: str,
    source_port: int,
    protocol: int = UDP,
    dest_port: int = ROCE_PORT,
) -> Key:
    """The match key of a flow between two hosts; without `protocol` and `dest_port` of a RoCEv2 flow."""
    return (
        *address_pair(topology.host[src].ip, topology.host[dst].ip),
        ("protocol", protocol),
        ("src_port", source_port),
        ("dst_port", dest_port),
    )


def _group(topology: Topology, forwarding: SwitchForwarding, dst: str) -> tuple[int, ...]:
    """The next hops of the ECMP group towards a host; empty where the route has a single next hop."""
    route: Route | None = forwarding.routes.get(topology.prefixes[topology.host[dst].leaf])
    if route is None or route.kind != "group":
        return ()
    return tuple(sorted(set(forwarding.groups[route.id])))
