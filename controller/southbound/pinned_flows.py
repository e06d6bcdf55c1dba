# SPDX-License-Identifier: Apache-2.0
"""The entries that a switch holds for single flows: pinned to a next hop, or given another DSCP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address

from controller.model.plan import FlowPin, FlowRemark
from controller.routing.forwarding import Route, SwitchForwarding
from controller.routing.hash import ROCE_PORT, UDP
from controller.southbound.desired import Entry, Match
from topo.graph import Topology

Key = tuple[tuple[str, Match], ...]


def pin_entries(
    topology: Topology, switch: str, forwarding: SwitchForwarding, pins: Iterable[FlowPin]
) -> Iterator[Entry]:
    """`pinned_flow` of one switch. A pin whose next node no port leads to makes none.

    Of several cables to the next node flows take turns by their source port; the backup is another way of
    the group that the flow would take without the pin.
    """
    ports = topology.ports[switch]
    for pin in pins:
        ways = [hop for hop, n in forwarding.next_hops.items() if ports[n.port].node == pin.toward]
        if pin.switch != switch or not ways:
            continue
        hop = ways[pin.source_port % len(ways)]
        others = [h for h in _group(topology, forwarding, pin.dst) if h != hop]
        key = five_tuple(topology, pin.src, pin.dst, pin.source_port)
        if not others:
            yield Entry("pinned_flow", key, "set_next_hop", (hop,))
            continue
        backup = others[pin.source_port % len(others)]
        port = forwarding.next_hops[hop].port
        yield Entry("pinned_flow", key, "set_next_hop_with_backup", (hop, port, backup))


def remark_entries(topology: Topology, switch: str, remarks: Iterable[FlowRemark]) -> Iterator[Entry]:
    """`remark` and `remark_flow` of one switch: only the flows named get another DSCP."""
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
        yield Entry("remark_flow", (*key, *flow), "set_dscp", (remark.dscp,))


def five_tuple(topology: Topology, src: str, dst: str, source_port: int) -> Key:
    """The key of a RoCEv2 flow between two hosts."""
    return (
        ("ipv4_src", int(IPv4Address(topology.host[src].ip))),
        ("ipv4_dst", int(IPv4Address(topology.host[dst].ip))),
        ("protocol", UDP),
        ("src_port", source_port),
        ("dst_port", ROCE_PORT),
    )


def _group(topology: Topology, forwarding: SwitchForwarding, dst: str) -> tuple[int, ...]:
    """The ways that ECMP spreads a host's traffic over; empty where it does not."""
    route: Route | None = forwarding.routes.get(topology.prefixes[topology.host[dst].leaf])
    if route is None or route.kind != "group":
        return ()
    return tuple(sorted(set(forwarding.groups[route.id])))
