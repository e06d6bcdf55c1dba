# SPDX-License-Identifier: Apache-2.0
"""A local search that lowers the largest load of a link: single flows move off links over a limit.

The links over the limit get more expensive with every step that does not help (P. Morris, "The Breakout
Method for Escaping from Local Minima", AAAI 1993), and a flow that moved stays for some steps (tabu search).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

_LOWER = 1e-6
"""A state is better if its largest load is lower by this part. Chosen: far below one flow's share."""
_TOWARD = 0.1
"""The limit is by this part of the way nearer to `least` than the largest load is. Chosen: with a limit at
the load itself, a link that is just as loaded would seem free."""
_SAME = 1e-12
"""Costs that differ by less count as equal."""


@kernel
def _load(link: int, o: int, more: float, there: int, count: Longs, felt: Floats, overlap: Floats) -> float:
    """The most that an owner feels on a link, if owner o sent `more` there and had `there` more flows."""
    most = 0.0
    for p in range(len(felt)):
        if count[p, link] + (there if p == o else 0) > 0:
            most = max(most, felt[p, link] + overlap[p, o] * more)
    return most


@kernel
def _cost(
    row: int,
    o: int,
    more: float,
    there: int,
    limit: float,
    links: Ints,
    capacity: Floats,
    price: Floats,
    load: Floats,
    count: Longs,
    felt: Floats,
    overlap: Floats,
) -> float:
    """By how much the priced excess of a path's links over the limit would grow."""
    total = 0.0
    for h in range(links.shape[1]):
        k = links[row, h]
        if k < 0:
            break
        after = _load(k, o, more, there, count, felt, overlap) / capacity[k]
        total += price[k] * (max(0.0, after - limit) - max(0.0, load[k] - limit))
    return total


@kernel
def _put(
    row: int,
    o: int,
    more: float,
    there: int,
    links: Ints,
    capacity: Floats,
    load: Floats,
    count: Longs,
    felt: Floats,
    overlap: Floats,
) -> None:
    """Put a flow of owner o on a path (`there` 1), or take it off (`there` -1 and `more` negative)."""
    for h in range(links.shape[1]):
        k = links[row, h]
        if k < 0:
            break
        load[k] = _load(k, o, more, there, count, felt, overlap) / capacity[k]
        count[o, k] += there
        for p in range(len(felt)):
            felt[p, k] += overlap[p, o] * more


@kernel
def _full(load: Floats, limit: float, number: int) -> int:
    """One of the links over the limit, counted round and round."""
    full = 0
    for k in range(len(load)):
        full += load[k] > limit
    left = number % full
    for k in range(len(load)):
        if load[k] > limit:
            if left == 0:
                return k
            left -= 1
    return -1


@kernel
def _on(row: int, link: int, links: Ints) -> bool:
    """Whether a path has a link."""
    found = False
    for h in range(links.shape[1]):
        found = found or links[row, h] == link
    return found


@kernel
def relieve(
    first: Ints,
    ways: Ints,
    links: Ints,
    weight: Floats,
    owner: Ints,
    capacity: Floats,
    overlap: Floats,
    state: Ints,
    least: float,
    patience: int,
) -> Ints:
    """The best state found: for each flow a row of `links` (paths, hops), of its first[f] .. + ways[f].

    `state` (flows,) is where the search begins, -1 for a flow without a path, and is changed. The search
    wants every load below a limit, somewhat below the best state's largest load. In each step, of the flows
    on a random link over the limit, the one moves that lowers the excess over the limit most, or raises it
    least; of equal moves a random one. Where none lowers it, all links over the limit get a higher price.
    The search ends at the load `least`, or after `patience` steps without a better state. Loads are as
    owners feel them: `overlap` (owners, owners) is the part of the second owner's traffic that meets the
    first owner's.
    """
    flows = len(state)
    count = np.zeros((len(overlap), len(capacity)), dtype=np.int64)
    felt = np.zeros((len(overlap), len(capacity)))
    load = np.zeros(len(capacity))
    for f in range(flows):
        if state[f] >= 0:
            _put(state[f], owner[f], weight[f], 1, links, capacity, load, count, felt, overlap)
    best, lowest = state.copy(), load.max()
    price = np.ones(len(capacity))
    stays = np.zeros(flows, dtype=np.int64)
    random = np.uint64(0x9E3779B97F4A7C15)
    step = 0
    since = 0
    while step - since < patience and lowest > least * (1 + _LOWER):
        step += 1
        limit = lowest - _TOWARD * (lowest - least)
        # xorshift64*; the first flow, the link, the first path, and how long a flow stays are its bits.
        random ^= random >> np.uint64(12)
        random ^= random << np.uint64(25)
        random ^= random >> np.uint64(27)
        drawn = random * np.uint64(0x2545F4914F6CDD1D)
        begin = int(drawn >> np.uint64(40)) % flows
        turn = int(drawn >> np.uint64(24) & np.uint64(0xFFFF))
        link = _full(load, limit, int(drawn >> np.uint64(8) & np.uint64(0xFFFF)))
        moved, new, least_cost = -1, -1, np.inf
        for i in range(flows):
            f = (begin + i) % flows
            old = int(state[f])
            if old < 0 or stays[f] > step or not _on(old, link, links):
                continue
            o, w = owner[f], weight[f]
            gain = _cost(old, o, -w, -1, limit, links, capacity, price, load, count, felt, overlap)
            _put(old, o, -w, -1, links, capacity, load, count, felt, overlap)
            for j in range(ways[f]):
                row = int(first[f]) + (turn + j) % ways[f]
                if row == old:
                    continue
                cost = gain + _cost(row, o, w, 1, limit, links, capacity, price, load, count, felt, overlap)
                if cost < least_cost - _SAME:
                    moved, new, least_cost = f, row, cost
            _put(old, o, w, 1, links, capacity, load, count, felt, overlap)
        if least_cost >= 0:
            for k in range(len(load)):
                if load[k] > limit:
                    price[k] += 1
        if moved < 0:
            continue
        was, o, w = int(state[moved]), owner[moved], weight[moved]
        _put(was, o, -w, -1, links, capacity, load, count, felt, overlap)
        _put(new, o, w, 1, links, capacity, load, count, felt, overlap)
        state[moved] = new
        stays[moved] = step + 2 + np.int64(drawn & np.uint64(3))
        highest = load.max()
        if highest < lowest * (1 - _LOWER):
            for f in range(flows):
                best[f] = state[f]
            for k in range(len(price)):
                price[k] = 1
            lowest, since = highest, step
    return best
