# SPDX-License-Identifier: Apache-2.0
"""A fabric of any shape as arrays: the paths of each pair of leaves are listed one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise

import numpy as np

from controller.routing.fabric import (
    Cable,
    Candidates,
    Floats,
    Ints,
    LeafDemand,
    capacities,
    ceil_share,
    grouped,
)
from controller.routing.forwarding import forwarding
from controller.routing.paths import Forwarding, members
from topo.graph import Tier, Topology

MAX_PATHS = 1024


@dataclass(frozen=True)
class GenericFabric:
    """A fabric without a regular shape. A choice is an index into the list of paths of the pair of leaves.

    With `shortest` = k the paths are the k shortest in hops; only source routing can follow all of them.
    Otherwise they are the paths that the switches forward by, at most MAX_PATHS for a pair.
    """

    topology: Topology
    down_links: frozenset[Cable] = frozenset()
    down_switches: frozenset[str] = frozenset()
    shortest: int | None = None
    _paths: dict[tuple[int, int], list[tuple[str, ...]]] = field(default_factory=dict, repr=False)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the leaves, by index."""
        return tuple(s.name for s in self.topology.switches if s.tier is Tier.LEAF)

    @cached_property
    def _rates(self) -> Mapping[Cable, int]:
        return capacities(self.topology, self.down_links, self.down_switches)

    @cached_property
    def _number(self) -> dict[Cable, int]:
        return {link: i for i, link in enumerate(self._rates)}

    @cached_property
    def capacity(self) -> Floats:
        """Bit/s of the live directed links."""
        return np.array(list(self._rates.values()), dtype=np.float64)

    @cached_property
    def _neighbours(self) -> dict[str, list[str]]:
        near: dict[str, list[str]] = {
            s.name: [] for s in self.topology.switches if s.name not in self.down_switches
        }
        for a, b in self._rates:
            near[a].append(b)
        return near

    @cached_property
    def _forwarding(self) -> Forwarding:
        return forwarding(self.topology, self.down_links, self.down_switches)

    def _forwarded(self, src: str, dst: str) -> Iterator[tuple[str, ...]]:
        prefix = self.topology.prefixes[dst]
        stack: list[tuple[str, ...]] = [(src,)]
        while stack:
            path = stack.pop()
            if path[-1] == dst:
                yield path
                continue
            route = self._forwarding[path[-1]].routes.get(prefix)
            if route is None:
                continue
            ports = self.topology.ports[path[-1]]
            nodes = dict.fromkeys(ports[p].node for p in members(self._forwarding, path[-1], route))
            stack.extend((*path, node) for node in reversed(nodes))

    def paths(self, src: int, dst: int) -> Sequence[tuple[str, ...]]:
        """The paths of a pair of leaves as switch names. A choice is an index into this list."""
        if (src, dst) not in self._paths:
            a, b = self.leaves[src], self.leaves[dst]
            if a not in self._neighbours or b not in self._neighbours:
                found: list[tuple[str, ...]] = []
            elif self.shortest is None:
                found = list(islice(self._forwarded(a, b), MAX_PATHS))
            else:
                found = _shortest(self._neighbours, a, b, self.shortest)
            self._paths[src, dst] = found
        return self._paths[src, dst]

    def _row(self, path: Sequence[str]) -> list[int]:
        return [self._number[link] for link in pairwise(path)]

    def links(self, demand: LeafDemand, choice: Ints) -> Ints:
        """The links of each flow, padded with -1 to the longest path."""
        rows = [
            self._row(self.paths(u, v)[c]) if c >= 0 and u != v else []
            for u, v, c in zip(demand.src.tolist(), demand.dst.tolist(), choice.tolist(), strict=True)
        ]
        return _padded(rows)

    def nodes(self, src: int, dst: int, choice: int) -> tuple[str, ...]:
        """The switches on a path."""
        return (self.leaves[src],) if src == dst else self.paths(src, dst)[choice]

    def candidates(self, demand: LeafDemand) -> Candidates:
        """All paths of the pairs in the demand."""
        pair, src, dst = grouped(demand, len(self.leaves))
        ways = [self.paths(u, v) if u != v else () for u, v in zip(src.tolist(), dst.tolist(), strict=True)]
        counts = np.array([len(way) for way in ways], dtype=np.int64)
        first = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        links = _padded([self._row(path) for way in ways for path in way])
        choice = np.concatenate([np.arange(n) for n in counts] or [np.zeros(0)]).astype(np.int32)
        return Candidates(pair, first, links, choice)

    def bound(self, demand: LeafDemand) -> int:
        """The largest over leaves of ceil(inter-leaf flows out, or in, over live uplinks)."""
        between = demand.take(demand.src != demand.dst)
        ways = np.array([len(self._neighbours.get(n, ())) for n in self.leaves], dtype=np.intp)
        return max(
            ceil_share(np.bincount(ends, minlength=len(ways)), ways) for ends in (between.src, between.dst)
        )


def _shortest(neighbours: Mapping[str, Sequence[str]], src: str, dst: str, k: int) -> list[tuple[str, ...]]:
    """The k shortest paths without loops, in hops (Yen)."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(neighbours)
    graph.add_edges_from((a, b) for a, near in neighbours.items() for b in near)
    if not nx.has_path(graph, src, dst):
        return []
    return [tuple(path) for path in islice(nx.shortest_simple_paths(graph, src, dst), k)]


def _padded(rows: list[list[int]]) -> Ints:
    hops = max(map(len, rows), default=0)
    result = np.full((len(rows), max(hops, 1)), -1, dtype=np.int32)
    for i, row in enumerate(rows):
        result[i, : len(row)] = row
    return result
