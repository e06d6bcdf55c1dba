# SPDX-License-Identifier: Apache-2.0
"""Lower the largest load of a link where edge colouring cannot: unequal rates or weights, links down."""

from __future__ import annotations

import numpy as np

from controller.routing.algorithms.greedy import CHUNK, chosen
from controller.routing.backend import backend
from controller.routing.fabric import Candidates, Fabric, Floats, Ints, LeafDemand

PATIENCE = 300
"""The search ends after this number of steps without a better state. Chosen: on 16 leaves x 8 spines of three
rates with 1 to 8 links down, the last better state came after at most 190 steps."""
MOST_FLOWS = CHUNK
"""With more flows nothing is searched. Chosen: the candidate paths of so many flows are held at a time."""
_SAME = 1e-9


def relieved(
    fabric: Fabric,
    demand: LeafDemand,
    choice: Ints,
    owner: Ints,
    overlap: Floats | None = None,
    *,
    plain: bool = False,
) -> Ints:
    """Choices (flows,) whose largest relative link load is at most that of `choice`, by a local search.

    `demand` are flows between different leaves, with weights in bit/s. `owner` (flows,) and `overlap`
    (owners, owners) say how much of the flows' traffic meets in time; `overlap` None: all of it. A flow
    with choice -1 stays without a path. The result is the same for the same arguments, and depends on no
    clock.
    """
    if not len(demand) or len(demand) > MOST_FLOWS or _cannot_fall(fabric, demand, choice):
        return choice
    ways = fabric.candidates(demand)
    first = ways.first[ways.pair]
    count = ways.first[ways.pair + 1] - first
    state = _rows(ways, choice)
    if overlap is None or (overlap == 1).all():
        owner, overlap = np.zeros_like(owner), np.ones((1, 1))
    best = backend(plain).relieve(
        first,
        count,
        ways.links,
        demand.weights,
        owner,
        fabric.capacity,
        overlap,
        state,
        _least(fabric, demand, ways, state),
        PATIENCE,
    )
    row = np.where(best >= 0, best - first, -1).astype(np.int32)
    return chosen(ways.first, ways.pair, ways.choice, row)


def _cannot_fall(fabric: Fabric, demand: LeafDemand, choice: Ints) -> bool:
    """Whether no load exceeds that of the heaviest flow alone on the fastest link."""
    links = fabric.links(demand, choice)
    flow, hop = np.nonzero(links >= 0)
    if not len(flow):
        return True
    # Traffic that never meets only lowers what is felt, so these loads are no lower than the felt ones.
    carried = np.bincount(links[flow, hop], demand.weights[flow], minlength=len(fabric.capacity))
    highest = (carried[carried > 0] / fabric.capacity[carried > 0]).max()
    return bool(highest <= demand.weights[choice >= 0].max() / fabric.capacity.max() * (1 + _SAME))


def _rows(ways: Candidates, choice: Ints) -> Ints:
    """The row of each flow's choice among the candidates, (flows,); -1 without a path."""
    places = int(ways.choice.max(initial=0)) + 1
    pair = np.repeat(np.arange(len(ways.first) - 1), np.diff(ways.first))
    # The candidates of a pair are in ascending order, so these keys are.
    keys = pair * places + ways.choice
    wanted = ways.pair.astype(np.int64) * places + choice
    row = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    found = (choice >= 0) & (keys[row] == wanted) if len(keys) else np.zeros(len(choice), dtype=np.bool_)
    return np.where(found, row, -1).astype(np.int32)


def _least(fabric: Fabric, demand: LeafDemand, ways: Candidates, state: Ints) -> float:
    """A lower bound of the largest load: the flow that alone loads the best of its paths most."""
    narrowest = np.where(ways.links >= 0, fabric.capacity[ways.links], np.inf).min(axis=1, initial=np.inf)
    widest = np.zeros(len(ways.first) - 1)
    pair = np.repeat(np.arange(len(widest)), np.diff(ways.first))
    np.maximum.at(widest, pair, narrowest)
    placed = state >= 0
    alone = demand.weights[placed] / widest[ways.pair[placed]]
    return float(alone.max(initial=0.0))
