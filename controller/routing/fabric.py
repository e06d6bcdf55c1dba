# SPDX-License-Identifier: Apache-2.0
"""Fabrics and flows as arrays: the input of the routing algorithms.

A flow goes from a leaf to a leaf. A choice is a number that says which path between the two leaves the flow
takes. Each kind of fabric defines what the number means, and turns it into links and nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.routing.topology_cache import cached_by_topology
from topo.graph import Tier, Topology

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Cable = tuple[str, str]


class UnsuitableError(ValueError):
    """The algorithm cannot run on this fabric or demand. The message names the condition that fails."""


@dataclass(frozen=True, slots=True)
class LeafDemand:
    """Flows from leaf `src` to leaf `dst`, both of shape (flows,), as indices of leaves.

    `weight` (flows,) is in bit/s; None means that all flows have the same weight.
    """

    src: Ints
    dst: Ints
    weight: Floats | None = None

    def __len__(self) -> int:
        return len(self.src)

    @property
    def weights(self) -> Floats:
        """The weights, 1 each where none are given."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> LeafDemand:
        """The flows at these indices, or where the mask is true."""
        return LeafDemand(
            self.src[index], self.dst[index], None if self.weight is None else self.weight[index]
        )


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate paths of every pair of leaves.

    Pair p has the rows first[p] to first[p + 1] - 1 of `links` (paths, hops); -1 pads a row. `choice`
    (paths,) is the number that the fabric gives to each path. `pair` (flows,) is the pair of each flow.
    """

    pair: Ints
    first: Ints
    links: Ints
    choice: Ints


class Fabric(Protocol):
    """What every kind of fabric offers. Links are directed; a dead link has a capacity of 0 bit/s."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the leaves, by index."""

    @property
    def capacity(self) -> Floats:
        """Bit/s of every directed link, (links,)."""

    def links(self, demand: LeafDemand, choice: Ints) -> Ints:
        """The links of each flow, (flows, hops); -1 pads, and fills rows of choice -1 or inside a leaf."""

    def nodes(self, src: int, dst: int, choice: int) -> tuple[str, ...]:
        """The switches on a path, from leaf to leaf."""

    def candidates(self, demand: LeafDemand) -> Candidates:
        """The live paths of every pair of leaves in the demand."""

    def bound(self, demand: LeafDemand) -> int:
        """A lower bound: every assignment puts at least this number of flows on some link."""


@cached_by_topology
def capacities(
    topology: Topology,
    down_links: frozenset[Cable] = frozenset(),
    down_switches: frozenset[str] = frozenset(),
) -> Mapping[Cable, int]:
    """Bit/s of every live directed switch-to-switch link; parallel cables are one link.

    `down_links` are names of cables (`Topology.cables`).
    """
    rates: dict[Cable, int] = defaultdict(int)
    for k in topology.links:
        dead = topology.is_down(k, down_links) or k.a in down_switches or k.b in down_switches
        if not dead:
            rates[k.a, k.b] += k.rate_bps
            rates[k.b, k.a] += k.rate_bps
    return dict(rates)


def grouped(demand: LeafDemand, leaves: int) -> tuple[Ints, Ints, Ints]:
    """(pair of each flow, and the source and destination leaf of each pair)."""
    key = demand.src.astype(np.int64) * leaves + demand.dst
    pairs, pair = np.unique(key, return_inverse=True)
    return (
        pair.astype(np.int32),
        (pairs // leaves).astype(np.int32),
        (pairs % leaves).astype(np.int32),
    )


def ceil_share(counts: NDArray[np.intp], ways: NDArray[np.intp]) -> int:
    """The largest ceil(counts[i] / ways[i]) over all i with ways[i] > 0."""
    some = ways > 0
    return int(np.max(-(-counts[some] // ways[some]), initial=0))


@dataclass(frozen=True)
class TwoTier:
    """A leaf-spine fabric. `up` (leaves, spines) is the bit/s of the link each way, 0 where dead; a choice
    is the index of a spine. A spine with several cables to every leaf stands there once for each of them,
    in the order of the leaf's ports."""

    leaves: tuple[str, ...]
    spines: tuple[str, ...]
    up: Floats

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """Which links are alive, (leaves, spines)."""
        return self.up > 0

    @cached_property
    def ways(self) -> NDArray[np.intp]:
        """The live uplinks of each leaf, (leaves,)."""
        ways: NDArray[np.intp] = self.live.sum(axis=1)
        return ways

    @cached_property
    def equal(self) -> bool:
        """Whether all live links have the same rate."""
        some = self.up[self.live]
        return bool(some.size == 0 or some.min() == some.max())

    @cached_property
    def capacity(self) -> Floats:
        """Links leaf -> spine by (leaf, spine), then spine -> leaf by (leaf, spine)."""
        return np.concatenate((self.up.ravel(), self.up.ravel()))

    def links(self, demand: LeafDemand, choice: Ints) -> Ints:
        """Two links a flow: up to the spine and down from it."""
        size = self.up.shape[1]
        result = np.empty((len(demand), 2), dtype=np.int32)
        result[:, 0] = demand.src * size + choice
        result[:, 1] = self.up.size + demand.dst * size + choice
        result[(choice < 0) | (demand.src == demand.dst)] = -1
        return result

    def nodes(self, src: int, dst: int, choice: int) -> tuple[str, ...]:
        """Leaf, spine, leaf; the leaf alone for a flow inside it."""
        if src == dst:
            return (self.leaves[src],)
        return self.leaves[src], self.spines[choice], self.leaves[dst]

    def candidates(self, demand: LeafDemand) -> Candidates:
        """Every spine that both leaves reach."""
        pair, src, dst = grouped(demand, len(self.leaves))
        both = self.live[src] & self.live[dst]
        first = np.concatenate(([0], np.cumsum(both.sum(axis=1)))).astype(np.int32)
        rows, spine = np.nonzero(both)
        demand_of = LeafDemand(src[rows], dst[rows])
        choice = spine.astype(np.int32)
        return Candidates(pair, first, self.links(demand_of, choice), choice)

    def bound(self, demand: LeafDemand) -> int:
        """The largest over leaves of ceil(inter-leaf flows out, or in, over live uplinks)."""
        between = demand.src != demand.dst
        return max(
            ceil_share(np.bincount(ends[between], minlength=len(self.leaves)), self.ways)
            for ends in (demand.src, demand.dst)
        )


def two_tier(
    topology: Topology,
    down_links: frozenset[Cable] = frozenset(),
    down_switches: frozenset[str] = frozenset(),
) -> TwoTier | None:
    """The fabric as leaves and spines, None if it has cores, or cables inside a tier. Of the cables between
    two switches all are down, or none is."""
    tier = {s.name: s.tier for s in topology.switches}
    if any({tier[k.a], tier[k.b]} != {Tier.LEAF, Tier.SPINE} for k in topology.links):
        return None
    leaves = tuple(s.name for s in topology.switches if s.tier is Tier.LEAF)
    spines = tuple(s.name for s in topology.switches if s.tier is Tier.SPINE)
    if any(t is Tier.CORE for t in tier.values()):
        return None
    cables = _cables(topology)
    most = {s: max((len(cables.get((u, s), ())) for u in leaves), default=0) for s in spines}
    if any(len(bundle) != most[s] for (_, s), bundle in cables.items()):
        # Bundles of different widths: each counts as one cable of the joint rate.
        rates = capacities(topology, down_links, down_switches)
        up = [[rates.get((u, s), 0) for s in spines] for u in leaves]
    else:
        alive = capacities(topology, down_links, down_switches)
        dead = cables.keys() - alive.keys()
        columns = [(s, i) for s in spines for i in range(max(most[s], 1))]
        up = [
            [cables[u, s][i] if (u, s) in cables and (u, s) not in dead else 0 for s, i in columns]
            for u in leaves
        ]
        spines = tuple(s for s, _ in columns)
    return TwoTier(leaves, spines, np.array(up, dtype=np.float64).reshape(len(leaves), len(spines)))


def _cables(topology: Topology) -> Mapping[Cable, list[int]]:
    """(leaf, spine) -> bit/s of each of their cables, in the order of the leaf's ports."""
    leaves = topology.prefixes.keys()
    found: dict[Cable, list[tuple[int, int]]] = defaultdict(list)
    for k in topology.links:
        u, port, s = (k.a, k.a_port, k.b) if k.a in leaves else (k.b, k.b_port, k.a)
        found[u, s].append((port, k.rate_bps))
    return {ends: [rate for _, rate in sorted(bundle)] for ends, bundle in found.items()}
