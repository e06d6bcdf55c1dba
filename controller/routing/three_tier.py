# SPDX-License-Identifier: Apache-2.0
"""Three-tier Clos fabrics as arrays: pods of leaves and spines, and one group of cores per spine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
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
    capacities,
    ceil_share,
    grouped,
)
from topo.graph import Tier, Topology


@dataclass(frozen=True)
class ThreeTier:
    """Pods of equal size. Spine j of every pod is wired to every leaf of the pod and to core group j.

    `up` (leaves, spines of a pod) and `over` (pods, spines of a pod, cores of a group) are bit/s each way,
    0 where dead; leaves are numbered pod by pod. A choice is j * cores of a group + core; inside a pod
    the core is 0.
    """

    leaves: tuple[str, ...]
    spines: tuple[tuple[str, ...], ...]
    cores: tuple[tuple[str, ...], ...]
    up: Floats
    over: Floats

    @cached_property
    def per_pod(self) -> int:
        """Leaves of a pod."""
        return len(self.leaves) // len(self.spines)

    @cached_property
    def capacity(self) -> Floats:
        """Links leaf -> spine, spine -> leaf, spine -> core, core -> spine, each in its array's order."""
        return np.concatenate((self.up.ravel(), self.up.ravel(), self.over.ravel(), self.over.ravel()))

    def pods(self, leaf: Ints) -> Ints:
        """The pod of each leaf."""
        return (leaf // self.per_pod).astype(np.int32)

    def links(self, demand: LeafDemand, choice: Ints) -> Ints:
        """Four links a flow, two inside a pod: leaf up, spine up, spine down, leaf down."""
        _, size, group = self.over.shape
        spine, src_pod, dst_pod = choice // group, self.pods(demand.src), self.pods(demand.dst)
        result = np.full((len(demand), 4), -1, dtype=np.int32)
        far = src_pod != dst_pod
        base = 2 * self.up.size
        result[:, 0] = demand.src * size + spine
        down = self.up.size + demand.dst * size + spine
        result[:, 1] = np.where(far, base + src_pod * size * group + choice, down)
        result[far, 2] = (base + self.over.size + dst_pod * size * group + choice)[far]
        result[far, 3] = down[far]
        result[(choice < 0) | (demand.src == demand.dst)] = -1
        return result

    def nodes(self, src: int, dst: int, choice: int) -> tuple[str, ...]:
        """The switches from leaf to leaf: one, three inside a pod, or five."""
        if src == dst:
            return (self.leaves[src],)
        group = self.over.shape[2]
        a, b, spine = src // self.per_pod, dst // self.per_pod, choice // group
        if a == b:
            return self.leaves[src], self.spines[a][spine], self.leaves[dst]
        core = self.cores[spine][choice % group]
        return self.leaves[src], self.spines[a][spine], core, self.spines[b][spine], self.leaves[dst]

    def usable(self, src: Ints, dst: Ints) -> NDArray[np.bool_]:
        """Which choices are alive for pairs of leaves, (pairs, choices)."""
        _, size, group = self.over.shape
        a, b = self.pods(src), self.pods(dst)
        near = (self.up[src] > 0) & (self.up[dst] > 0)
        far = (self.over[a] > 0) & (self.over[b] > 0) & near[:, :, None]
        inside = np.zeros_like(far)
        inside[:, :, 0] = near
        return np.where((a == b)[:, None, None], inside, far).reshape(len(src), size * group)

    def candidates(self, demand: LeafDemand) -> Candidates:
        """Every pair of a spine and a core of its group, or the spines inside a pod."""
        pair, src, dst = grouped(demand, len(self.leaves))
        alive = self.usable(src, dst)
        first = np.concatenate(([0], np.cumsum(alive.sum(axis=1)))).astype(np.int32)
        rows, chosen = np.nonzero(alive)
        choice = chosen.astype(np.int32)
        return Candidates(pair, first, self.links(LeafDemand(src[rows], dst[rows]), choice), choice)

    def bound(self, demand: LeafDemand) -> int:
        """Over leaves ceil(flows between leaves / live uplinks), over pods the same with core links."""
        between = demand.take(demand.src != demand.dst)
        far = between.take(self.pods(between.src) != self.pods(between.dst))
        ways, out = (self.up > 0).sum(axis=1), (self.over > 0).sum(axis=(1, 2))
        return max(
            *(ceil_share(np.bincount(e, minlength=len(ways)), ways) for e in (between.src, between.dst)),
            *(ceil_share(np.bincount(self.pods(e), minlength=len(out)), out) for e in (far.src, far.dst)),
        )


def _connected(neighbours: Mapping[str, set[str]]) -> list[set[str]]:
    """The connected components of a graph."""
    parts: list[set[str]] = []
    left = set(neighbours)
    while left:
        part, todo = set(), [left.pop()]
        while todo:
            node = todo.pop()
            part.add(node)
            todo += neighbours[node] & left
            left -= neighbours[node]
        parts.append(part)
    return parts


def three_tier(
    topology: Topology,
    down_links: frozenset[Cable] = frozenset(),
    down_switches: frozenset[str] = frozenset(),
) -> ThreeTier | None:
    """The fabric as pods and core groups, None if it is not wired like that.

    The wiring is that of the whole fabric; what is down only has no capacity.
    """
    tier = {s.name: s.tier for s in topology.switches}
    lower: dict[str, set[str]] = {n: set() for n, t in tier.items() if t is not Tier.CORE}
    cores_of: dict[str, set[str]] = defaultdict(set)
    for k in topology.links:
        low, high = sorted((k.a, k.b), key=lambda n: tier[n].level)
        if tier[high].level - tier[low].level != 1:
            return None
        if tier[high] is Tier.CORE:
            cores_of[low].add(high)
        else:
            lower[low].add(high)
            lower[high].add(low)
    order = {s.name: i for i, s in enumerate(topology.switches)}
    pods = [sorted(c, key=order.__getitem__) for c in _connected(lower)]
    pods.sort(key=lambda c: order[c[0]])
    leaves = [[n for n in pod if tier[n] is Tier.LEAF] for pod in pods]
    groups = [
        sorted(
            ((tuple(sorted(cores_of[n], key=order.__getitem__)), n) for n in pod if tier[n] is Tier.SPINE),
            key=lambda e: [order[c] for c in e[0]],
        )
        for pod in pods
    ]
    cores = tuple(group for group, _ in groups[0]) if groups else ()
    regular = (
        cores
        and len({len(g) for g in cores}) == 1
        and cores[0]
        and len(set().union(*cores)) == sum(map(len, cores))
        and all(tuple(group for group, _ in g) == cores for g in groups)
        and len({len(x) for x in leaves}) == 1
        and all(len(lower[n]) == len(cores) for pod in leaves for n in pod)
    )
    if not regular:
        return None
    rates = capacities(topology, down_links, down_switches)
    spines = tuple(tuple(n for _, n in g) for g in groups)
    up = [[rates.get((u, s), 0) for s in spines[p]] for p, pod in enumerate(leaves) for u in pod]
    over = [
        [[rates.get((s, c), 0) for c in cores[j]] for j, s in enumerate(spines[p])] for p in range(len(pods))
    ]
    names = tuple(n for pod in leaves for n in pod)
    return ThreeTier(names, spines, cores, np.array(up, dtype=np.float64), np.array(over, dtype=np.float64))
