# SPDX-License-Identifier: Apache-2.0
"""Paths through the fabric: which paths exist, which one a source port gives, and a port for a path."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.routing.forwarding import Route, SwitchForwarding
from controller.routing.hash import UDP, ecmp_hash, source_port_hashes
from controller.wire.rocev2 import ROCE_PORT, ROCE_SOURCE_PORTS
from topo.addresses import host_prefix
from topo.graph import OUR_HASH, Topology

Path = tuple[str, ...]
Forwarding = Mapping[str, SwitchForwarding]


def route_to(topology: Topology, forwarding: Forwarding, switch: str, dst: str) -> Route | None:
    """The longest-prefix route of a switch toward a host, None if it has none."""
    host = topology.host[dst]
    routes = forwarding[switch].routes
    return routes.get(host_prefix(host.ip)) or routes.get(topology.prefixes[host.leaf])


def members(forwarding: Forwarding, switch: str, route: Route) -> tuple[int, ...]:
    """The distinct egress ports of a route, sorted."""
    if route.kind == "next_hop":
        return (forwarding[switch].next_hops[route.id].port,)
    table = forwarding[switch]
    return tuple(sorted({table.next_hops[n].port for n in table.groups[route.id]}))


def paths(topology: Topology, forwarding: Forwarding, src: str, dst: str) -> tuple[Path, ...]:
    """Every path from host to host that the forwarding allows, in the order of the ports of the switches.

    On a leaf-spine this is the order of the spines, as Algorithm 1 of the routing paper wants it. Parallel
    cables between two switches are one hop. Empty if there is no path.
    """
    found: list[Path] = []
    stack: list[Path] = [(src, topology.host[src].leaf)]
    while stack:
        path = stack.pop()
        if path[-1] == dst:
            found.append(path)
            continue
        route = route_to(topology, forwarding, path[-1], dst)
        if route is None:
            continue
        nodes = dict.fromkeys(topology.ports[path[-1]][p].node for p in members(forwarding, path[-1], route))
        stack.extend((*path, node) for node in reversed(nodes))
    return tuple(found)


def path_of(
    topology: Topology,
    forwarding: Forwarding,
    src: str,
    dst: str,
    source_port: int,
    *,
    protocol: int = UDP,
    dest_port: int = ROCE_PORT,
) -> Path:
    """The path, host to host, that the hash of the switches gives to a flow with these ports; without
    `protocol` and `dest_port` to a RoCEv2 flow.

    Empty if a switch drops the flow, or if a switch on the path chooses by an unknown hash.
    """
    spec = topology.hash
    value = 0
    if spec.known:
        ends = topology.host[src].ip, topology.host[dst].ip
        value = ecmp_hash(
            *ends, source_port, protocol=protocol, dest_port=dest_port, algorithm=spec.algorithm
        )
    path: Path = (src, topology.host[src].leaf)
    while path[-1] != dst:
        switch = path[-1]
        route = route_to(topology, forwarding, switch, dst)
        if route is None or (route.kind == "group" and not spec.known):
            return ()
        table = forwarding[switch]
        hop = (
            table.groups[route.id][value >> spec.slices[route.tier] & 0xFF]
            if route.kind == "group"
            else route.id
        )
        path = (*path, topology.ports[switch][table.next_hops[hop].port].node)
    return path


def port_for_path(
    topology: Topology, forwarding: Forwarding, path: Path, used: Collection[int] = ()
) -> int | None:
    """The lowest UDP source port in 0xC000-0xFFFF whose hash leads along `path` and that is not in `used`.

    `used` are the ports of the other flows of the same pair of hosts. None if there is no such port, if the
    forwarding does not allow the path, or if a switch on it chooses by an unknown hash.
    """
    found = ports_along(topology, forwarding, path)
    if found is None:
        return None
    good, _ = found
    taken = np.fromiter(used, np.int64, len(used)) - ROCE_SOURCE_PORTS.start
    good[taken[(taken >= 0) & (taken < len(good))]] = False
    index = int(np.argmax(good))
    return ROCE_SOURCE_PORTS.start + index if good[index] else None


def ports_along(
    topology: Topology, forwarding: Forwarding, path: Path
) -> tuple[NDArray[np.bool_], list[tuple[str, NDArray[np.int32]]]] | None:
    """Which of the source ports 0xC000-0xFFFF lead along `path`, (ports,), and for each switch that chooses
    by the hash the egress port that each source port gives, (ports,).

    None if the forwarding does not allow the path, or if a switch on it chooses by an unknown hash.
    """
    src, dst = path[0], path[-1]
    spec = topology.hash
    egress: list[tuple[str, NDArray[np.int32]]] = []
    a, b = topology.host[src].ip, topology.host[dst].ip
    algorithm = spec.algorithm if spec.known else OUR_HASH.algorithm
    hashes = source_port_hashes(a, b, algorithm=algorithm)[ROCE_SOURCE_PORTS.start :]
    good = np.ones(len(ROCE_SOURCE_PORTS), dtype=np.bool_)
    for switch, following in pairwise(path[1:]):
        route = route_to(topology, forwarding, switch, dst)
        if route is None:
            return None
        table, ports = forwarding[switch], topology.ports[switch]
        leads = {n for n, hop in table.next_hops.items() if ports[hop.port].node == following}
        if route.kind == "next_hop":
            if route.id not in leads:
                return None
            continue
        if not spec.known:
            return None
        group = table.groups[route.id]
        wanted = np.array([n in leads for n in group], dtype=np.bool_)
        bucket = (hashes >> np.uint32(spec.slices[route.tier])) & np.uint32(0xFF)
        good &= wanted[bucket]
        egress.append((switch, np.array([table.next_hops[n].port for n in group], dtype=np.int32)[bucket]))
    return good, egress
