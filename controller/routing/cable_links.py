# SPDX-License-Identifier: Apache-2.0
"""The cables that a flow takes where several join two switches, and the source ports that lead along them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.routing.forwarding import SwitchForwarding
from controller.routing.numbering import DirectedLink
from controller.routing.paths import Path, ports_along, route_to
from controller.routing.topology_cache import cached_by_topology
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.graph import Topology

Way = tuple[DirectedLink, ...]
"""The directed links of a flow from host to host. A cable of a bundle is a link of its own, whose ends are
named as `Topology.cables` names them."""

_MOST_KEPT = 512
"""Paths whose ports are remembered. Chosen: 144 KiB each with two bundles, so 72 MiB at most."""


class CableLinks:
    """The ways of flows over the fabric. The hash decides at each switch between the cables to the next one.

    Where the hash is unknown, or a flow has no port, the cables of a bundle are one link of their joint rate.
    """

    def __init__(self, topology: Topology, forwarding: Mapping[str, SwitchForwarding]) -> None:
        self._topology, self._forwarding = topology, forwarding
        self._found: dict[Path, tuple[NDArray[np.bool_], NDArray[np.int32], list[int]] | None] = {}

    def way(self, path: Path, port: int | None) -> Way:
        """The links of a flow with that source port on its path; none of an empty path."""
        plain = tuple(pairwise(path))
        if not path or port is None or not self._topology.bundles:
            return plain
        found, index = self._cables(path), port - ROCE_SOURCE_PORTS.start
        if found is None or not 0 <= index < len(found[0]) or not found[0][index]:
            return plain
        return self._named(plain, found[2], found[1][:, index].tolist())

    def ways(self, path: Path, most: int) -> tuple[Way, ...]:
        """The ways along a path to which some source port leads, up to `most` of them."""
        plain = tuple(pairwise(path))
        found = self._cables(path) if self._topology.bundles else None
        if found is None:
            return (plain,)
        good, egress, at = found
        # One number for all egress ports of a source port: sorting rows of numbers takes far longer.
        width = int(egress.max(initial=0)) + 1
        key = np.zeros(int(good.sum()), dtype=np.int64)
        for row in egress:
            key = key * width + row[good]
        _, first = np.unique(key, return_index=True)
        choices = egress[:, good][:, first[:most]].T.tolist()
        return tuple(self._named(plain, at, choice) for choice in choices)

    def path(self, way: Way) -> Path:
        """The path by names of the nodes that a way leads along."""
        ends = [way[0][0], *(b for _, b in way)] if way else []
        nodes = self._topology
        return tuple(e if e in nodes.switch or e in nodes.host else e.rpartition(":")[0] for e in ends)

    def port(self, path: Path, way: Way, taken: Collection[int]) -> int | None:
        """The lowest source port that leads along `way` and is not in `taken`; None if there is none."""
        found = self._cables(path)
        if found is None:
            return None
        good, egress, at = found
        free = good.copy()
        used = np.fromiter(taken, np.int64, len(taken)) - ROCE_SOURCE_PORTS.start
        free[used[(used >= 0) & (used < len(free))]] = False
        for row, hop in zip(egress, at, strict=True):
            if way[hop][0] != path[hop]:
                free &= row == int(way[hop][0].rpartition(":")[2])
        index = int(np.argmax(free))
        return ROCE_SOURCE_PORTS.start + index if free[index] else None

    def _cables(self, path: Path) -> tuple[NDArray[np.bool_], NDArray[np.int32], list[int]] | None:
        """Which source ports lead along the path, (ports,); the egress port that each gives at each bundle,
        (bundles, ports); and the places of the bundles among the hops. None without a known hash."""
        if path not in self._found:
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            self._found[path] = self._look_up(path)
        return self._found[path]

    def _look_up(self, path: Path) -> tuple[NDArray[np.bool_], NDArray[np.int32], list[int]] | None:
        along = ports_along(self._topology, self._forwarding, path) if self._topology.hash.known else None
        if along is None or not along[0].any():
            return None
        good, chosen = along
        bundles, at, rows = self._topology.bundles, [], []
        by_switch = dict(chosen)
        for hop, (a, b) in enumerate(pairwise(path)):
            if (min(a, b), max(a, b)) not in bundles:
                continue
            egress = by_switch.get(a)
            if egress is None:
                # A switch with one live way on does not choose.
                route = route_to(self._topology, self._forwarding, a, path[-1])
                assert route is not None
                only = self._forwarding[a].next_hops[route.id].port
                egress = np.full(len(good), only, dtype=np.int32)
            at.append(hop)
            rows.append(egress)
        return good, np.array(rows, dtype=np.int32).reshape(len(rows), len(good)), at

    def _named(self, plain: Way, at: list[int], egress: list[int]) -> Way:
        """The links with the cables at these egress ports in the places `at`."""
        named = list(plain)
        for hop, port in zip(at, egress, strict=True):
            switch = plain[hop][0]
            peer = self._topology.ports[switch][port]
            named[hop] = (f"{switch}:{port}", f"{peer.node}:{peer.port}")
        return tuple(named)


@cached_by_topology
def cable_rates(topology: Topology) -> Mapping[DirectedLink, int]:
    """The bit/s of every cable of a bundle each way, by its name."""
    found: dict[DirectedLink, int] = {}
    for names in topology.bundles.values():
        for a, b in names:
            (node, port), _ = topology.cables[a, b]
            found[a, b] = found[b, a] = topology.ports[node][port].rate_bps
    return found
