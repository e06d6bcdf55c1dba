# SPDX-License-Identifier: Apache-2.0
"""A leaf-spine in which several cables may join a leaf and a spine, each with its own rate and load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import (
    Cable,
    Candidates,
    Floats,
    Ints,
    LeafDemand,
    TwoTier,
    ceil_share,
    grouped,
    two_tier,
)
from controller.routing.topology_cache import cached_by_topology
from topo.graph import Tier, Topology

AddTable = Callable[[int, Iterable[int]], int]
"""The number of the bucket table of a tier with these members; -1 for a single member."""


@dataclass(frozen=True, eq=False)
class CableFabric:
    """A path is a cable up to a spine and a cable down from it.

    The live cables are numbered by leaf, then by the port of the leaf; `begin` (leaves + 1,) has the first
    one of each leaf. `spine` and `spine_port` (cables,) are where a cable ends, `rate` (cables,) is in bit/s
    each way. A choice is `width` * the place of the first cable among those of the first leaf + the place of
    the second cable among those of the last leaf.

    `matched` is the same fabric with one column for each cable of a spine, for algorithms that colour edges;
    None where cables are down or bundles differ. `column` (cables,) is the column of a cable.
    """

    leaves: tuple[str, ...]
    spines: tuple[str, ...]
    begin: Ints
    spine: Ints
    spine_port: Ints
    rate: Floats
    matched: TwoTier | None
    column: Ints

    @cached_property
    def width(self) -> int:
        """The largest number of cables of a leaf."""
        return int(np.diff(self.begin).max(initial=0)) or 1

    @cached_property
    def capacity(self) -> Floats:
        """The cables from leaf to spine, then the cables from spine to leaf, in bit/s."""
        return np.concatenate((self.rate, self.rate))

    @cached_property
    def reaches(self) -> NDArray[np.bool_]:
        """Which spines each leaf reaches, (leaves, spines)."""
        found = np.zeros((len(self.leaves), len(self.spines)), dtype=np.bool_)
        found[np.repeat(np.arange(len(self.leaves)), np.diff(self.begin)), self.spine] = True
        return found

    def links(self, demand: LeafDemand, choice: Ints) -> Ints:
        """Two links a flow: a cable up and a cable down. Raises IndexError for a choice that is no path."""
        result = np.full((len(demand), 2), -1, dtype=np.int32)
        far = np.flatnonzero((choice >= 0) & (demand.src != demand.dst))
        up = self.begin[demand.src[far]] + choice[far] // self.width
        down = self.begin[demand.dst[far]] + choice[far] % self.width
        ends = self.begin[demand.src[far] + 1], self.begin[demand.dst[far] + 1]
        if (up >= ends[0]).any() or (down >= ends[1]).any() or (self.spine[up] != self.spine[down]).any():
            raise IndexError("a choice is no path")
        result[far, 0], result[far, 1] = up, len(self.rate) + down
        return result

    def spines_of(self, demand: LeafDemand, choice: Ints) -> Ints:
        """The index of each flow's spine, (flows,); -1 for flows without a path or inside a leaf."""
        up = self.links(demand, choice)[:, 0]
        found = np.full(len(up), -1, dtype=np.int32)
        found[up >= 0] = self.spine[up[up >= 0]]
        return found

    def nodes(self, src: int, dst: int, choice: int) -> tuple[str, ...]:
        """Leaf, spine, leaf; the leaf alone for a flow inside it."""
        if src == dst:
            return (self.leaves[src],)
        spine = self.spine[self.begin[src] + choice // self.width]
        return self.leaves[src], self.spines[spine], self.leaves[dst]

    def candidates(self, demand: LeafDemand) -> Candidates:
        """Every cable up with every cable down from the same spine."""
        pair, src, dst = grouped(demand, len(self.leaves))
        found: list[Ints] = []
        for u, v in zip(src.tolist(), dst.tolist(), strict=True):
            ups, downs = (self.spine[self.begin[x] : self.begin[x + 1]] for x in (u, v))
            i, j = np.nonzero(ups[:, None] == downs[None, :]) if u != v else (ups[:0], ups[:0])
            found.append((i * self.width + j).astype(np.int32))
        counts = np.array([len(c) for c in found], dtype=np.int64)
        first = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        choice = np.concatenate(found) if found else np.empty(0, dtype=np.int32)
        ends = LeafDemand(np.repeat(src, counts), np.repeat(dst, counts))
        return Candidates(pair, first, self.links(ends, choice), choice)

    def bound(self, demand: LeafDemand) -> int:
        """The largest over leaves of ceil(flows between leaves, out or in, over live cables)."""
        between = demand.take(demand.src != demand.dst)
        ways = np.diff(self.begin).astype(np.intp)
        return max(
            ceil_share(np.bincount(ends, minlength=len(ways)), ways) for ends in (between.src, between.dst)
        )

    def of_columns(self, demand: LeafDemand, columns: Ints) -> Ints:
        """The choices (flows,) on `matched` as choices of this fabric: a cable up and its like down."""
        assert self.matched is not None
        place = np.full((len(self.leaves), len(self.matched.spines)), -1, dtype=np.int32)
        leaf = np.repeat(np.arange(len(self.leaves)), np.diff(self.begin))
        place[leaf, self.column] = np.arange(len(leaf)) - self.begin[leaf]
        choice = place[demand.src, columns] * self.width + place[demand.dst, columns]
        return np.where(columns >= 0, choice, -1).astype(np.int32)

    def tables_up(self, demand: LeafDemand, add: AddTable) -> tuple[Ints, Ints]:
        """The table by which the first leaf of each flow chooses a cable, (flows,), and the only cable where
        there is one, else -1, (flows,).

        Members are places among the leaf's cables: the leaf uses all those to spines that reach the other
        leaf, in the order of its ports.
        """
        pair, src, dst = grouped(demand, len(self.leaves))
        both = self.reaches[src] & self.reaches[dst]
        kinds = np.column_stack((src, np.packbits(both, axis=1)))
        _, first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        rows = []
        for p in first.tolist():
            spines = self.spine[self.begin[src[p]] : self.begin[src[p] + 1]]
            rows.append(_table(0, np.flatnonzero(both[p, spines]).tolist(), add))
        found = np.array(rows, dtype=np.int32).reshape(-1, 2)[kind.reshape(-1)[pair]]
        return found[:, 0], found[:, 1]

    def tables_down(self, add: AddTable) -> tuple[Ints, Ints]:
        """As `tables_up` for a spine on the way to a leaf, both (leaves, spines).

        Members are places among the leaf's cables, in the order of the spine's ports.
        """
        shape = len(self.leaves), len(self.spines)
        table, only = np.full(shape, -1, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
        for v in range(len(self.leaves)):
            spines = self.spine[self.begin[v] : self.begin[v + 1]]
            ports = self.spine_port[self.begin[v] : self.begin[v + 1]]
            order = np.argsort(ports, kind="stable")
            for s in set(spines.tolist()):
                table[v, s], only[v, s] = _table(1, order[spines[order] == s].tolist(), add)
        return table, only


def _table(tier: int, members: list[int], add: AddTable) -> tuple[int, int]:
    """The table with these members, and the only member."""
    if len(members) == 1:
        return -1, members[0]
    return add(tier, members) if members else -1, -1


@cached_by_topology
def cable_fabric(
    topology: Topology,
    down_links: frozenset[Cable] = frozenset(),
    down_switches: frozenset[str] = frozenset(),
) -> CableFabric | None:
    """The live cables of a leaf-spine; None where the fabric has cores, or cables inside a tier."""
    tier = {s.name: s.tier for s in topology.switches}
    if Tier.CORE in tier.values() or any(
        {tier[k.a], tier[k.b]} != {Tier.LEAF, Tier.SPINE} for k in topology.links
    ):
        return None
    leaves = tuple(name for name, t in tier.items() if t is Tier.LEAF)
    spines = tuple(name for name, t in tier.items() if t is Tier.SPINE)
    leaf, spine = ({name: i for i, name in enumerate(names)} for names in (leaves, spines))
    rows = []
    for k in topology.links:
        dead = topology.is_down(k, down_links) or k.a in down_switches or k.b in down_switches
        if not dead:
            a, b = (k.a, k.a_port), (k.b, k.b_port)
            (u, port), (s, far_port) = (a, b) if k.a in leaf else (b, a)
            rows.append((leaf[u], port, spine[s], far_port, k.rate_bps))
    rows.sort()
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    begin = np.searchsorted(table[:, 0], np.arange(len(leaves) + 1)).astype(np.int32)
    matched = None if topology.split_bundles(down_links) else two_tier(topology, down_links, down_switches)
    column = None if matched is None else _columns(matched, spines, table[:, 0], table[:, 2])
    return CableFabric(
        leaves,
        spines,
        begin,
        table[:, 2].astype(np.int32),
        table[:, 3].astype(np.int32),
        table[:, 4].astype(np.float64),
        matched if column is not None else None,
        np.empty(0, dtype=np.int32) if column is None else column,
    )


def _columns(
    matched: TwoTier, spines: tuple[str, ...], leaf: NDArray[np.int64], spine: NDArray[np.int64]
) -> Ints | None:
    """The column of each cable, (cables,), by its leaf and spine; None where a column is a whole bundle."""
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(matched.spines):
        columns.setdefault(name, []).append(i)
    unused: dict[tuple[int, int], Iterator[int]] = {}
    found = []
    for u, s in zip(leaf.tolist(), spine.tolist(), strict=True):
        column = next(unused.setdefault((u, s), iter(columns[spines[s]])), None)
        if column is None:
            return None
        found.append(column)
    return np.array(found, dtype=np.int32)
