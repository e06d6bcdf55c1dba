# SPDX-License-Identifier: Apache-2.0
"""`optimal`: bipartite edge colouring by Euler splits, exact on a uniform Clos with equal flows.

A colour is a spine. Every leaf gets each colour at most ceil(degree / spines) times, in and out, which
is the bound that no assignment beats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms.base import Options
from controller.routing.backend import backend
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, TwoTier, UnsuitableError
from controller.routing.three_tier import ThreeTier


def optimal(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """Choices with the smallest possible largest load on every tier.

    Raises:
        UnsuitableError: flows of different weights, links of different rates, single dead links between
            leaves that other paths join, or a fabric that is no Clos.
    """
    weight = demand.weight
    if weight is not None and len(weight) and weight.min() != weight.max():
        raise UnsuitableError("the flows have different weights")
    if options.kept is not None and (options.kept >= 0).any():
        raise UnsuitableError("some flows have to stay where they are")
    if not len(demand):
        return np.empty(0, dtype=np.int32)
    if not isinstance(fabric, TwoTier | ThreeTier):
        raise UnsuitableError("the fabric is neither a leaf-spine nor a regular three-tier Clos")
    try:
        return _coloured(fabric, demand, options)
    except UnsuitableError:
        if (fabric.capacity > 0).all():
            raise
        return _without_lost(fabric, demand, options)


def _coloured(fabric: TwoTier | ThreeTier, demand: LeafDemand, options: Options) -> Ints:
    return _two(fabric, demand, options) if isinstance(fabric, TwoTier) else _three(fabric, demand, options)


def _without_lost(fabric: TwoTier | ThreeTier, demand: LeafDemand, options: Options) -> Ints:
    """-1 for the flows that have no path at all, and colours for the others.

    Raises:
        UnsuitableError: the others cannot be coloured either.
    """
    ways = fabric.candidates(demand)
    reached = (np.diff(ways.first) > 0)[ways.pair]
    choice = np.full(len(demand), -1, dtype=np.int32)
    if reached.any():
        choice[reached] = _coloured(fabric, demand.take(reached), options)
    return choice


def _same(capacity: Floats) -> NDArray[np.intp]:
    """The ways alive in every row of capacities (rows, ways), which must be alike."""
    if (capacity != capacity[0]).any():
        raise UnsuitableError("some links are down or slower than their likes")
    ways = np.flatnonzero(capacity[0])
    if len(set(capacity[0][ways].tolist())) > 1:
        raise UnsuitableError("links of one leaf have different rates")
    return ways


def _balanced(src: Ints, dst: Ints, vertices: int, k: int, options: Options) -> Ints:
    colour = np.empty(len(src), dtype=np.int32)
    backend(options.plain).balanced(src, dst, vertices, k, colour)
    return colour


def live_spines(fabric: TwoTier, demand: LeafDemand) -> Ints:
    """The spines that all leaves with flows have equal live links to.

    Raises:
        UnsuitableError: some of these links are down or slower.
    """
    busy = np.zeros(len(fabric.leaves), dtype=np.bool_)
    busy[demand.src] = busy[demand.dst] = True
    return _same(fabric.up[busy]).astype(np.int32)


def _two(fabric: TwoTier, demand: LeafDemand, options: Options) -> Ints:
    spines = live_spines(fabric, demand)
    if not len(spines):
        return np.full(len(demand), -1, dtype=np.int32)
    colour = _balanced(demand.src, demand.dst, len(fabric.leaves), len(spines), options)
    return spines[colour]


def _three(fabric: ThreeTier, demand: LeafDemand, options: Options) -> Ints:
    """First the spine in the pods, then, per spine, the core of its group.

    Where each spine has as many cores as its pod has leaves, colouring at the leaves suffices for the
    pods' bound. Where it has fewer, flows between pods are coloured at leaves and pods at once.
    """
    pods, size, group = fabric.over.shape
    ways = _same(fabric.up)
    _same(fabric.over.reshape(pods, -1))
    if len(ways) < size or (fabric.over == 0).any():
        raise UnsuitableError("some links are down")
    a, b = fabric.pods(demand.src), fabric.pods(demand.dst)
    far = a != b
    leaves = len(fabric.leaves)
    spine = np.empty(len(demand), dtype=np.int32)
    if group >= fabric.per_pod:
        spine[:] = _balanced(demand.src, demand.dst, leaves, size, options)
    elif size & (size - 1):
        raise UnsuitableError("fewer core links than leaf links, and no power of two of spines in a pod")
    else:
        colour = np.empty(int(far.sum()), dtype=np.int32)
        backend(options.plain).laminar(
            demand.src[far], demand.dst[far], a[far], b[far], leaves, pods, size, colour
        )
        spine[far] = colour
        spine[~far] = _balanced(demand.src[~far], demand.dst[~far], leaves, size, options)
    core = np.zeros(len(demand), dtype=np.int32)
    vertex = spine[far] * pods
    core[far] = _balanced(vertex + a[far], vertex + b[far], pods * size, group, options)
    return spine * np.int32(group) + core
