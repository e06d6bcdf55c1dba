# SPDX-License-Identifier: Apache-2.0
"""`annealing`: simulated annealing with moves of one flow, keeping the best state."""

from __future__ import annotations

import numpy as np

from controller.routing.algorithms.base import MAX_SEARCHED, Options
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import chosen
from controller.routing.backend import backend
from controller.routing.fabric import Fabric, Ints, LeafDemand, UnsuitableError

START, COOLING, STOP = 1000.0, 0.99, 0.1
# Tries at each temperature: one a flow, up to this.
MAX_TRIES = 2048


def annealing(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """From random paths, move one flow at a time, and cool down.

    The schedule is the routing paper's published code's: temperature START, times COOLING a step until
    STOP. Its state returned is the last; ours is the best seen. Energy: the sum of the squares of the
    relative loads, in units in which the first state's is 1 a flow; a neighbour is another path for one
    flow.

    Raises:
        UnsuitableError: more flows than MAX_SEARCHED.
    """
    if len(demand) > MAX_SEARCHED:
        raise UnsuitableError(f"annealing takes at most {MAX_SEARCHED} flows")
    ways = fabric.candidates(demand)
    first = ways.first[ways.pair]
    count = ways.first[ways.pair + 1] - first
    movable = np.flatnonzero(count > 1).astype(np.int32)
    if not len(movable):
        return ecmp(fabric, demand, options)
    draw = np.random.default_rng(options.seed).random(len(demand))
    state = np.where(count > 0, first + (draw * count).astype(np.int32), -1).astype(np.int32)
    steps = int(np.ceil(np.log(STOP / START) / np.log(COOLING)))
    best = backend(options.plain).anneal(
        movable,
        first,
        count,
        ways.links,
        demand.weights,
        fabric.capacity,
        state,
        START * COOLING ** np.arange(steps),
        min(len(movable), MAX_TRIES),
        options.seed,
    )
    row = np.where(best >= 0, best - first, -1).astype(np.int32)
    return chosen(ways.first, ways.pair, ways.choice, row)
