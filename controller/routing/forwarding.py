# SPDX-License-Identifier: Apache-2.0
"""What every switch of a Clos fabric forwards by, given what is down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.routing.topology_cache import cached_by_topology
from topo.addresses import host_prefix
from topo.graph import Switch, Topology

BUCKETS = 256


@dataclass(frozen=True, slots=True)
class NextHop:
    """One way out of a switch: the egress port and the MAC addresses the frame leaves with."""

    port: int
    src_mac: str
    dst_mac: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where a prefix leads: `kind` is "next_hop" or "group", `id` a next-hop or group id.

    A group picks its bucket by the hash slice h[8 * tier + 7 : 8 * tier].
    """

    kind: str
    id: int
    tier: int


@dataclass(frozen=True, slots=True)
class SwitchForwarding:
    """The desired forwarding state of one switch.

    `next_hops`: id (= port) -> next hop. `groups`: id -> BUCKETS next-hop ids in bucket order.
    `routes`: CIDR prefix -> route. `edge_ports`: ports that face hosts.
    """

    next_hops: Mapping[int, NextHop]
    groups: Mapping[int, tuple[int, ...]]
    routes: Mapping[str, Route]
    edge_ports: frozenset[int]


def pair(a: str, b: str) -> tuple[str, str]:
    """The name of a cable irrespective of direction: its two ends, sorted."""
    return (a, b) if a <= b else (b, a)


@cached_by_topology
def forwarding(
    topology: Topology,
    down_links: frozenset[tuple[str, str]] = frozenset(),
    down_switches: frozenset[str] = frozenset(),
    drained_links: frozenset[tuple[str, str]] = frozenset(),
    drained_switches: frozenset[str] = frozenset(),
) -> Mapping[str, SwitchForwarding]:
    """Shortest up/down forwarding toward every leaf over the links that are alive.

    `down_links` holds names of cables (`Topology.cables`). Those of them in `drained_links`, and the switches
    in `drained_switches`, still work: a switch without another way to a leaf keeps the one over them, so what
    is on its way arrives. Between climbing and descending, a packet may
    cross to a switch of the same tier once, from where it descends. One that has crossed or begun to descend
    never climbs again, so no failure makes a loop; a leaf without such a path has no route (its packets are
    dropped).
    Equal next-hop sets share a group. The sets of the intact fabric are numbered first, in the order
    of the leaves; a set that only a failure makes is numbered after them by the first leaf it leads
    to: what a failure does not touch keeps its ids.
    """
    intact = _next_hop_sets(topology, frozenset(), frozenset())
    alive = _next_hop_sets(topology, down_links, down_switches) if down_links or down_switches else intact
    if drained_links or drained_switches:
        lasting = _next_hop_sets(topology, down_links - drained_links, down_switches - drained_switches)
        # Without a loop: who has a way around hands on to switches that have one too.
        alive = {switch: {**lasting[switch], **alive[switch]} for switch in alive}
    return {s.name: _switch(topology, s, intact[s.name], alive[s.name]) for s in topology.switches}


def _switch(
    topology: Topology,
    switch: Switch,
    intact: Mapping[str, tuple[int, ...]],
    alive: Mapping[str, tuple[int, ...]],
) -> SwitchForwarding:
    tier = switch.tier.level
    ports = topology.ports[switch.name]
    next_hops: dict[int, NextHop] = {}
    routes: dict[str, Route] = {}
    edge: set[int] = set()
    for port, peer in ports.items():
        host = topology.host.get(peer.node)
        mac = host.mac if host else topology.switch[peer.node].mac
        next_hops[port] = NextHop(port, switch.mac, mac)
        if host:
            edge.add(port)
            for ip in (host.ip, *host.other_ips):
                routes[host_prefix(ip)] = Route("next_hop", port, tier)
    ids: dict[tuple[int, ...], int] = {}
    for members in intact.values():
        if len(members) > 1:
            ids.setdefault(members, len(ids) + 1)
    first_spare = len(ids) + 1
    groups: dict[int, tuple[int, ...]] = {}
    for index, leaf in enumerate(topology.prefixes):
        members = alive.get(leaf, ())
        if not members:
            continue
        if len(members) == 1:
            route = Route("next_hop", members[0], tier)
        else:
            group = ids.setdefault(members, first_spare + index)
            if group not in groups:
                groups[group] = tuple(members[b % len(members)] for b in range(BUCKETS))
            route = Route("group", group, tier)
        for prefix in (topology.prefixes[leaf], *topology.other_prefixes.get(leaf, ())):
            routes[prefix] = route
    return SwitchForwarding(next_hops, dict(sorted(groups.items())), routes, frozenset(edge))


def _next_hop_sets(
    topology: Topology, down_links: frozenset[tuple[str, str]], down_switches: frozenset[str]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """switch -> leaf -> sorted ports of the shortest up/down paths; the leaf itself is left out."""
    level = {s.name: s.tier.level for s in topology.switches}
    above: dict[str, list[tuple[int, str]]] = {s: [] for s in level}
    below: dict[str, list[tuple[int, str]]] = {s: [] for s in level}
    beside: dict[str, list[tuple[int, str]]] = {s: [] for s in level}
    for link in topology.links:
        if topology.is_down(link, down_links) or link.a in down_switches or link.b in down_switches:
            continue
        if level[link.a] == level[link.b]:
            beside[link.a].append((link.a_port, link.b))
            beside[link.b].append((link.b_port, link.a))
            continue
        (low, low_port), (high, high_port) = sorted(
            ((link.a, link.a_port), (link.b, link.b_port)), key=lambda end: level[end[0]]
        )
        above[low].append((low_port, high))
        below[high].append((high_port, low))
    upward = sorted(level, key=lambda s: level[s])
    sets: dict[str, dict[str, tuple[int, ...]]] = {s: {} for s in level}
    for leaf in topology.prefixes:
        # Hops to the leaf going only down; then, from the top, hops going up or across first where needed.
        descent = {leaf: 0}
        for switch in upward:
            reach = [descent[s] for _, s in below[switch] if s in descent]
            if reach and switch != leaf:
                descent[switch] = 1 + min(reach)
        hops = dict(descent)
        for switch in reversed(upward):
            if switch == leaf:
                continue
            if switch in descent:
                ways = [(descent[s], p) for p, s in below[switch] if s in descent]
            else:
                ways = [(hops[s], p) for p, s in above[switch] if s in hops]
                ways += [(descent[s], p) for p, s in beside[switch] if s in descent]
            if not ways:
                continue
            best, _ = min(ways)
            hops[switch] = 1 + best
            sets[switch][leaf] = tuple(sorted(p for distance, p in ways if distance == best))
    return sets
