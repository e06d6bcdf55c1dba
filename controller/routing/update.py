# SPDX-License-Identifier: Apache-2.0
"""From the spines that flows have to those they get when others come and go, moving few.

Kempe chains (`LiveSpines`) keep the colouring balanced; see `algorithms/optimal.py` for what a colour is.
"""

from __future__ import annotations

import numpy as np

from controller.routing.algorithms.optimal import live_spines
from controller.routing.fabric import Demand, Fabric, Ints, TwoTier, UnsuitableError
from controller.routing.live import LiveSpines

CHAIN = 16
"""No single arrival or departure moves more other flows than this."""


def rebalanced(
    fabric: Fabric, demand: Demand, before: Ints, max_moves: int | None = None, *, plain: bool = False
) -> Ints:
    """Choices for flows between leaves; `before` (flows,) is where each was, -1 for one that is new.

    Every leaf with d flows and k live spines gets at most ceil(d / k) flows on a link, as far as chains of
    CHAIN and `max_moves` in all (None: no limit) allow; flows keep their spines otherwise.

    Raises:
        UnsuitableError: no leaf-spine, weights or links that differ, or several cables to a spine.
    """
    if not isinstance(fabric, TwoTier) or len(set(fabric.spines)) < len(fabric.spines):
        raise UnsuitableError("the fabric is no leaf-spine with single cables")
    weight = demand.weight
    if weight is not None and len(weight) and weight.min() != weight.max():
        raise UnsuitableError("the flows have different weights")
    if not len(demand):
        return np.empty(0, dtype=np.int32)
    spines = live_spines(fabric, demand)
    if not len(spines):
        return np.full(len(demand), -1, dtype=np.int32)
    leaves, k = len(fabric.leaves), len(spines)
    out, into = (-(-np.bincount(ends, minlength=leaves) // k) for ends in (demand.src, demand.dst))
    colour = np.full(len(fabric.spines), -1, dtype=np.int32)
    colour[spines] = np.arange(k)
    old = np.where(before >= 0, colour[before], -1)
    live = LiveSpines(leaves, k, cap=CHAIN, plain=plain)
    live.deepen(int(max(out.max(), into.max())))
    numbers = np.full(len(demand), -1, dtype=np.int64)
    src, dst = demand.src.tolist(), demand.dst.tolist()
    displaced = []
    for f in np.flatnonzero(old >= 0).tolist():
        u, v = src[f], dst[f]
        number = live.seat(u, v, int(old[f]), (int(out[u]), int(into[v])))
        if number is None:
            displaced.append(f)
        else:
            numbers[f] = number
    left = len(demand) if max_moves is None else max_moves
    for f in displaced:
        if left > 0:
            numbers[f] = live.arrive(src[f], dst[f], left - 1)
            left -= live.moved + int(live.spine(int(numbers[f])) != old[f])
        else:
            number = live.seat(src[f], dst[f], int(old[f]))
            assert number is not None
            numbers[f] = number
    for f in np.flatnonzero(old < 0).tolist():
        numbers[f] = live.arrive(src[f], dst[f], left)
        left -= live.moved
    return spines[[live.spine(int(n)) for n in numbers]]
