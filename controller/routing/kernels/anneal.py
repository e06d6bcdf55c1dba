# SPDX-License-Identifier: Apache-2.0
"""Simulated annealing of paths, with random numbers of its own so that it always does the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@kernel
def _add(load: Floats, links: Ints, row: int, weight: float, capacity: Floats) -> float:
    """Put `weight` on a path; returns by how much the sum of the squares of the loads grows."""
    grown = 0.0
    for h in range(links.shape[1]):
        link = links[row, h]
        if link < 0:
            break
        step = weight / capacity[link]
        grown += step * (2 * load[link] + step)
        load[link] += step
    return grown


@kernel
def anneal(
    movable: Ints,
    first: Ints,
    count: Ints,
    links: Ints,
    weight: Floats,
    capacity: Floats,
    state: Ints,
    schedule: Floats,
    tries: int,
    seed: int,
) -> Ints:
    """The best state seen: for each flow a row of `links` (paths, hops), of its first[f] .. + count[f].

    `state` (flows,) is where it begins, -1 for a flow without a path, and is changed; `movable` are the
    flows with a choice. schedule (steps,) are temperatures in units of the first energy a movable flow.
    """
    load = np.zeros(len(capacity))
    energy = 0.0
    for f in range(len(state)):
        if state[f] >= 0:
            energy += _add(load, links, state[f], weight[f], capacity)
    best, best_load, best_energy = state.copy(), load.max(), energy
    unit = energy / max(len(movable), 1)
    random = np.uint64(seed) * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)
    for temperature in schedule:
        for _ in range(tries):
            # xorshift64*; the flow, its path and its luck are taken from 21, 20 and 23 bits of one number.
            random ^= random >> np.uint64(12)
            random ^= random << np.uint64(25)
            random ^= random >> np.uint64(27)
            drawn = random * np.uint64(0x2545F4914F6CDD1D)
            f = movable[np.int64(drawn >> np.uint64(43)) % len(movable)]
            new = first[f] + np.int64((drawn >> np.uint64(23)) & np.uint64(0xFFFFF)) % count[f]
            luck = (np.float64(drawn & np.uint64(0x7FFFFF)) + 0.5) / 8388608.0
            old = state[f]
            if new == old:
                continue
            change = _add(load, links, old, -weight[f], capacity) + _add(
                load, links, new, weight[f], capacity
            )
            if change <= 0 or luck < np.exp(-change / (unit * temperature)):
                state[f] = new
                energy += change
                continue
            _add(load, links, new, -weight[f], capacity)
            _add(load, links, old, weight[f], capacity)
        highest = load.max()
        if highest < best_load * (1 - 1e-9) or (highest <= best_load * (1 + 1e-9) and energy < best_energy):
            best[:] = state
            best_load, best_energy = highest, energy
    return best
