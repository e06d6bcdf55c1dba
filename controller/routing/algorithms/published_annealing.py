# SPDX-License-Identifier: Apache-2.0
"""`annealing-published`: simulated annealing as in the code that the routing paper's authors published.

Temperatures, energy, move and result are theirs. `annealing` is ours: other energy and moves, and it returns
the best state.
"""

from __future__ import annotations

import math

import numpy as np

from controller.routing.algorithms.annealing import COOLING, START, STOP
from controller.routing.algorithms.base import MAX_SEARCHED, Options
from controller.routing.algorithms.greedy import chosen
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, UnsuitableError


def published_annealing(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """From random paths, swap the paths of two destinations at each temperature; the last state.

    The energy is the sum of the relative loads of the most loaded links. Every flow counts as a destination,
    as in the paper's workload, where each NIC receives one. Two flows exchange the numbers of their paths
    among their candidates, and only if both have such a path. A worse state is kept with the probability
    exp(-increase / temperature), with loads in units of the mean weight of a flow on the fastest link.

    Raises:
        UnsuitableError: more flows than MAX_SEARCHED.
    """
    if len(demand) > MAX_SEARCHED:
        raise UnsuitableError(f"annealing-published takes at most {MAX_SEARCHED} flows")
    ways = fabric.candidates(demand)
    first = ways.first[ways.pair]
    count = ways.first[ways.pair + 1] - first
    random = np.random.default_rng(options.seed)
    place = (random.random(len(demand)) * count).astype(np.int32)
    movable = np.flatnonzero(count > 0)
    if len(movable) > 1:
        share = np.zeros(len(fabric.capacity))
        alive = fabric.capacity > 0
        share[alive] = fabric.capacity.max() / fabric.capacity[alive] / demand.weights.mean()
        load = np.zeros(len(fabric.capacity))
        for f in movable:
            _add(load, ways.links[first[f] + place[f]], float(demand.weights[f]), share)
        now, temperature = energy(load), START
        while temperature > STOP:
            a, b = random.choice(movable, 2, replace=False)
            if place[b] < count[a] and place[a] < count[b]:
                _swap(load, ways.links, first, place, demand.weights, share, a, b)
                after = energy(load)
                if after <= now or random.random() < math.exp((now - after) / temperature):
                    now = after
                else:
                    _swap(load, ways.links, first, place, demand.weights, share, a, b)
            temperature *= COOLING
    row = np.where(count > 0, place, -1).astype(np.int32)
    return chosen(ways.first, ways.pair, ways.choice, row)


def energy(load: Floats) -> float:
    """The sum of the loads of the most loaded links, those within rounding of the largest load."""
    most = load.max(initial=0.0)
    return float(load[load >= most * (1 - 1e-9)].sum())


def _swap(
    load: Floats, links: Ints, first: Ints, place: Ints, weights: Floats, share: Floats, a: int, b: int
) -> None:
    """Exchange the path numbers of flows `a` and `b`, and move their loads."""
    for f, new in ((a, int(place[b])), (b, int(place[a]))):
        _add(load, links[first[f] + place[f]], -float(weights[f]), share)
        _add(load, links[first[f] + new], float(weights[f]), share)
    place[a], place[b] = place[b], place[a]


def _add(load: Floats, path: Ints, weight: float, share: Floats) -> None:
    used = path[path >= 0]
    load[used] += weight * share[used]
