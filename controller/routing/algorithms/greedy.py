# SPDX-License-Identifier: Apache-2.0
"""`greedy`: each flow, in order, to the path that is least congested so far (Algorithm 1)."""

from __future__ import annotations

import numpy as np

from controller.routing.algorithms.base import Options, loads, ordered
from controller.routing.backend import backend
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, TwoTier

# Flows whose candidate paths are held at a time: 256 paths of 4 links each come to 16 MB.
CHUNK = 4096


def greedy(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """Greedy choices; ties go to the lowest choice, so to the lowest spine. Standing choices are loaded
    first. Loads are relative to capacity, and count flows where these have no weights."""
    result = np.full(len(demand), -1, dtype=np.int32)
    order = ordered(demand, options)
    kept = options.kept
    if kept is not None:
        held = kept >= 0
        result[held] = kept[held]
        order = order[~held[order]]
    mine = demand if kept is None and options.order == "given" else demand.take(order)
    carried = (
        np.zeros(len(fabric.capacity)) if kept is None else loads(fabric, demand, result, demand.weights)
    )
    result[order] = add(fabric, mine, carried, options)
    return result


def add(fabric: Fabric, demand: LeafDemand, carried: Floats, options: Options) -> Ints:
    """Greedy choices (flows,) of further flows, in the given order, on links that carry `carried` (links,).

    `carried` counts flows where the demand has no weights, else bit/s. It may be changed.
    """
    if not isinstance(fabric, TwoTier):
        return _any(fabric, demand, carried, options)
    equal = demand.weight is None and fabric.equal
    return (_unit if equal else _weighted)(fabric, demand, carried, options)


def _unit(fabric: TwoTier, demand: LeafDemand, carried: Floats, options: Options) -> Ints:
    kernels = backend(options.plain)
    shape, size = fabric.up.shape, fabric.up.size
    before = carried.astype(np.int32)
    # Most often no link needs more than twice its fair share; where one does, twice as many levels do.
    levels = int(before.max(initial=0)) + 2 * (len(demand) // max(size, 1)) + 4
    while True:
        up, down = before[:size].reshape(shape).copy(), before[size:].reshape(shape).copy()
        choice = np.empty(len(demand), dtype=np.int32)
        if kernels.greedy_unit(demand.src, demand.dst, fabric.live, up, down, levels, choice) == len(demand):
            return choice
        levels *= 2


def _weighted(fabric: TwoTier, demand: LeafDemand, carried: Floats, options: Options) -> Ints:
    shape, size = fabric.up.shape, fabric.up.size
    choice = np.empty(len(demand), dtype=np.int32)
    backend(options.plain).greedy_weighted(
        demand.src,
        demand.dst,
        demand.weights,
        fabric.up,
        carried[:size].reshape(shape),
        carried[size:].reshape(shape),
        choice,
    )
    return choice


def _any(fabric: Fabric, demand: LeafDemand, carried: Floats, options: Options) -> Ints:
    result = np.empty(len(demand), dtype=np.int32)
    for start in range(0, len(demand), CHUNK):
        some = demand.take(np.arange(start, min(start + CHUNK, len(demand))))
        ways = fabric.candidates(some)
        row = np.empty(len(some), dtype=np.int32)
        backend(options.plain).greedy_candidates(
            ways.pair, ways.first, ways.links, some.weights, fabric.capacity, carried, row
        )
        result[start : start + CHUNK] = chosen(ways.first, ways.pair, ways.choice, row)
    return result


def chosen(first: Ints, pair: Ints, choice: Ints, row: Ints) -> Ints:
    """From rows that count from each pair's first candidate to the fabric's own choices."""
    result = np.full(len(row), -1, dtype=np.int32)
    found = row >= 0
    result[found] = choice[first[pair[found]] + row[found]]
    return result
