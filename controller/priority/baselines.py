# SPDX-License-Identifier: Apache-2.0
"""The orders and compressions that CRUX is compared with: Sincronia and Varys (CRUX, section 4.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bssi(seconds: NDArray[np.float64], weight: NDArray[np.float64] | None = None) -> list[int]:
    """Sincronia's order, first to last: bottleneck, select, scale, iterate (Sincronia, algorithm 1).

    `seconds` is the time that each coflow needs of each port, shape (coflows, ports); `weight` holds the
    coflows' weights, 1 by default. The order is filled from the last position to the first. In each step the
    port with the most remaining time is the bottleneck. The coflow with the least weight per time on it goes
    last. The weights of the others fall by their time on that port multiplied by that price. Ties: the later
    coflow goes last.
    """
    count = len(seconds)
    left = np.ones(count) if weight is None else np.array(weight, dtype=np.float64)
    waiting = np.ones(count, dtype=np.bool_)
    order: list[int] = []
    for _ in range(count):
        demand = seconds[waiting].sum(axis=0)
        on = seconds[:, int(demand.argmax())] if demand.size else np.zeros(count)
        users = np.flatnonzero(waiting & (on > 0))
        if not len(users):
            order += np.flatnonzero(waiting)[::-1].tolist()
            break
        price = left[users] / on[users]
        last = int(users[np.flatnonzero(price == price.min())[-1]])
        waiting[last] = False
        order.append(last)
        others = users[users != last]
        left[others] = np.maximum(0.0, left[others] - left[last] * on[others] / on[last])
    return order[::-1]


def sebf(seconds: NDArray[np.float64]) -> list[int]:
    """Varys' order: the smallest effective bottleneck first; ties in the given order (Varys, section 5.3)."""
    return [int(i) for i in np.argsort(seconds.max(axis=1, initial=0.0), kind="stable")]


def top_levels(count: int, levels: int) -> list[int]:
    """Sincronia's compression: the first levels - 1 jobs get one level each, all others the lowest."""
    return [min(place, levels - 1) for place in range(count)]


def balanced(count: int, levels: int) -> list[int]:
    """Varys' compression: the order is cut into `levels` runs of equal length, as far as that is possible."""
    return [place * levels // max(count, levels) for place in range(count)]
