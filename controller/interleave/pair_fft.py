# SPDX-License-Identifier: Apache-2.0
"""Two jobs in short time slots: the excess of every rotation at once, by FFT.

The excess is no product. But for each level of one job's demand it is a cross-correlation of two functions:
where that level is, and by how much the other job's demand would exceed the link at that level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from controller.interleave.circle import Floats, Ints, SharedLink, overlay

MOST_SLOTS = 1 << 20
"""The longest FFT. Chosen: about 0.1 s and some dozens of MB."""
_LEVELS = 64
"""The most levels of demand, each of which costs an FFT. Chosen: bounds the work."""
_FEW = 2_000
"""Below so many pairs of edges / 4 there is no FFT. Chosen: a sweep over all of them is faster."""
_ROUNDING = 1e-9
"""The relative error that is allowed for the FFT."""


def excess_by_shift(still: Ints, shifted: Ints, limit: int, capacity: int) -> Floats:
    """The mean excess for each shift k of `shifted`: of still[t] + shifted[t - k] over t, in bit/s.

    Both are demands in bit/s by slot, of equal length. Demand of at most `limit` is no excess. O(n log n) for
    each level of the job that has fewer levels.
    """
    count = len(still)
    levels, others = np.unique(still), np.unique(shifted)
    if len(others) < len(levels):
        # A shift of one job by k is a shift of the other by -k.
        back = excess_by_shift(shifted, still, limit, capacity)
        return np.roll(back[::-1], 1)
    total: NDArray[np.complex128] = np.zeros(count // 2 + 1, dtype=np.complex128)
    for level in levels:
        sums = shifted + level
        over = np.where(sums > limit, sums - capacity, 0).astype(np.float64) / capacity
        if over.any():
            total += np.fft.rfft((still == level).astype(np.float64)) * np.conj(np.fft.rfft(over))
    found: Floats = np.fft.irfft(total, count) * (capacity / count)
    return found


def best_pair_shift(link: SharedLink, periods: Mapping[str, int], slack: float) -> tuple[float, int] | None:
    """The least loss of a link of two jobs, and the shift of the second job in ns, by FFT.

    None where the FFT does not pay: if trying all edges of so few phases is cheaper, or if the edges have no
    common grid of at most MOST_SLOTS. All edges lie on the grid, so the optimum does too.
    """
    (first, still), (second, shifted) = link.demands.items()
    around = math.lcm(periods[first], periods[second])
    edges = [t for phases in link.demands.values() for p in phases for t in (p.start_ns, p.end_ns)]
    slot = math.gcd(periods[first], periods[second], *edges)
    count = around // slot
    pairs = around // periods[first] * len(still) * len(shifted)
    levels = min(len({p.rate_bps for p in still}), len({p.rate_bps for p in shifted})) + 1
    if count > MOST_SLOTS or levels > _LEVELS or 4 * pairs < max(_FEW, levels * count):
        return None
    slots = []
    for job, phases in link.demands.items():
        demand = overlay([(phases, periods[job], 0)], around)
        slots.append(np.repeat(demand.rate.astype(np.int64), demand.widths // slot))
    limit = math.floor(link.rate_bps * (1 + slack))
    mean = excess_by_shift(slots[0], slots[1], limit, link.rate_bps)[: periods[second] // slot]
    # Of shifts that differ only by rounding, the first.
    best = int(np.argmax(mean <= mean.min() + _ROUNDING * link.rate_bps))
    return max(0.0, float(mean[best])) / link.rate_bps, best * slot
