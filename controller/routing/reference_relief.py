# SPDX-License-Identifier: Apache-2.0
"""The local search of `kernels.relief` in plain Python: its tests' oracle, and what runs where Numba is
missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_LOWER = 1e-6
_TOWARD = 0.1
_SAME = 1e-12


class _Links:
    """The loads of the links that candidate paths have, as owners feel them."""

    def __init__(self, rows: list[list[int]], capacity: list[float], overlap: list[list[float]]) -> None:
        self._rows, self._capacity, self._overlap = rows, capacity, overlap
        self._count: dict[int, dict[int, int]] = {k: {} for k in sorted({k for row in rows for k in row})}
        self._felt = {k: [0.0] * len(overlap) for k in self._count}
        self.load = dict.fromkeys(self._count, 0.0)
        self.price = dict.fromkeys(self._count, 1)

    def put(self, row: int, sign: int, owner: int, weight: float) -> None:
        """Put a flow on a path (sign 1), or take it off (sign -1)."""
        for k in self._rows[row]:
            count, felt = self._count[k], self._felt[k]
            count[owner] = count.get(owner, 0) + sign
            for p, part in enumerate(self._overlap):
                felt[p] += part[owner] * weight * sign
            self.load[k] = max((felt[o] for o, n in count.items() if n > 0), default=0.0) / self._capacity[k]

    def excess(self, row: int, limit: float) -> list[float]:
        """By how much each link of a path exceeds the limit."""
        return [max(0.0, self.load[k] - limit) for k in self._rows[row]]

    def cost(self, row: int, sign: int, flow: tuple[int, float], limit: float) -> float:
        """By how much the priced excess of a path's links grows when a flow is put there or taken off."""
        before = self.excess(row, limit)
        kept = {k: (self.load[k], dict(self._count[k]), list(self._felt[k])) for k in self._rows[row]}
        self.put(row, sign, *flow)
        after = self.excess(row, limit)
        # The flow is not taken off again: the sums could be off by a rounding, which would decide ties.
        for k, state in kept.items():
            self.load[k], self._count[k], self._felt[k] = state
        return sum(self.price[k] * (b - a) for k, a, b in zip(self._rows[row], before, after, strict=True))


def relieve(
    first: Array,
    ways: Array,
    links: Array,
    weight: Array,
    owner: Array,
    capacity: Array,
    overlap: Array,
    state: Array,
    least: float,
    patience: int,
) -> Array:
    """The same moves, with dictionaries of the links."""
    rows = [[k for k in row if k >= 0] for row in links.tolist()]
    flows = list(zip(owner.tolist(), weight.tolist(), strict=True))
    fabric = _Links(rows, capacity.tolist(), overlap.tolist())
    now = state.tolist()
    for f, row in enumerate(now):
        if row >= 0:
            fabric.put(row, 1, *flows[f])
    best, lowest = list(now), max(fabric.load.values(), default=0.0)
    stays = [0] * len(now)
    random, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    step = since = 0
    while step - since < patience and lowest > least * (1 + _LOWER):
        step += 1
        limit = lowest - _TOWARD * (lowest - least)
        random ^= random >> 12
        random ^= (random << 25) & mask
        random ^= random >> 27
        drawn = random * 0x2545F4914F6CDD1D & mask
        begin, turn = (drawn >> 40) % len(now), drawn >> 24 & 0xFFFF
        full = [k for k, load in fabric.load.items() if load > limit]
        link = full[(drawn >> 8 & 0xFFFF) % len(full)]
        moved, new, least_cost = -1, -1, float("inf")
        for f in (*range(begin, len(now)), *range(begin)):
            old = now[f]
            if old < 0 or stays[f] > step or link not in rows[old]:
                continue
            gain = fabric.cost(old, -1, flows[f], limit)
            fabric.put(old, -1, *flows[f])
            for j in range(ways[f]):
                row = int(first[f] + (turn + j) % ways[f])
                if row != old and (cost := gain + fabric.cost(row, 1, flows[f], limit)) < least_cost - _SAME:
                    moved, new, least_cost = f, row, cost
            fabric.put(old, 1, *flows[f])
        if least_cost >= 0:
            for k in full:
                fabric.price[k] += 1
        if moved < 0:
            continue
        fabric.put(now[moved], -1, *flows[moved])
        fabric.put(new, 1, *flows[moved])
        now[moved] = new
        stays[moved] = step + 2 + (drawn & 3)
        highest = max(fabric.load.values())
        if highest < lowest * (1 - _LOWER):
            best, lowest, since = list(now), highest, step
            fabric.price = dict.fromkeys(fabric.price, 1)
    return np.array(best, dtype=np.int32)
