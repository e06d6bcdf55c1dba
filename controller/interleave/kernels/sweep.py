# SPDX-License-Identifier: Apache-2.0
"""The demand on a circle, its excess, and the excess as a function of one job's shift."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.interleave.kernels.compiled import kernel
from controller.interleave.link_arrays import LinkArrays

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_SHORT = 40
"""Up to this length an insertion sort is used. Chosen: it is faster than NumPy's sort there."""


@kernel
def _sort_demand(at: Ints, step: Ints, size: int) -> None:
    if size > _SHORT:
        order = np.argsort(at[:size])
        at[:size] = at[:size][order]
        step[:size] = step[:size][order]
        return
    for i in range(1, size):
        key, value = at[i], step[i]
        k = i - 1
        while k >= 0 and at[k] > key:
            at[k + 1], step[k + 1] = at[k], step[k]
            k -= 1
        at[k + 1], step[k + 1] = key, value


@kernel
def _sort_slopes(at: Ints, slope: Floats, size: int) -> None:
    if size > _SHORT:
        order = np.argsort(at[:size])
        at[:size] = at[:size][order]
        slope[:size] = slope[:size][order]
        return
    for i in range(1, size):
        key, value = at[i], slope[i]
        k = i - 1
        while k >= 0 and at[k] > key:
            at[k + 1], slope[k + 1] = at[k], slope[k]
            k -= 1
        at[k + 1], slope[k + 1] = key, value


@kernel
def _demand(
    x: LinkArrays, link: int, skip: int, placed: Flags, shifts: Ints, at: Ints, rate: Ints
) -> tuple[int, int]:
    """The total demand of the placed jobs without `skip`: edges in `at`, the rate after each in `rate`.

    Returns the number of edges, and the rate before the first, which is the rate after the last.
    """
    around = x.length[link]
    size = 0
    base = 0
    for entry in range(x.first[link], x.first[link + 1]):
        job = x.job[entry]
        if job == skip or not placed[job]:
            continue
        period = x.period[job]
        for p in range(x.phase[entry], x.phase[entry + 1]):
            width = x.end[p] - x.begin[p]
            if width == period:
                base += x.rate[p]
                continue
            start = (x.begin[p] + shifts[job]) % period
            for lap in range(around // period):
                a = start + lap * period
                b = a + width
                if b >= around:
                    b -= around
                    base += x.rate[p]
                at[size], rate[size] = a, x.rate[p]
                at[size + 1], rate[size + 1] = b, -x.rate[p]
                size += 2
    _sort_demand(at, rate, size)
    count = 0
    total = base
    i = 0
    while i < size:
        edge = at[i]
        while i < size and at[i] == edge:
            total += rate[i]
            i += 1
        at[count], rate[count] = edge, total
        count += 1
    return count, base


@kernel
def link_loss(x: LinkArrays, link: int, placed: Flags, shifts: Ints) -> float:
    """The weight of a link times 1 - its score, for the placed jobs."""
    at = np.empty(x.events[link], dtype=np.int64)
    rate = np.empty(x.events[link], dtype=np.int64)
    count, base = _demand(x, link, -1, placed, shifts, at, rate)
    capacity, limit, around = x.capacity[link], x.limit[link], x.length[link]
    area = 0.0
    if count == 0:
        if base > limit:
            area = float(base - capacity) * around
    else:
        for k in range(count):
            if rate[k] > limit:
                after = at[k + 1] if k + 1 < count else at[0] + around
                area += float(rate[k] - capacity) * (after - at[k])
    loss: float = x.weight[link] * area / around / capacity
    return loss


@kernel
def job_loss(x: LinkArrays, job: int, placed: Flags, shifts: Ints) -> float:
    """The sum of `link_loss` over the links of a job."""
    total = 0.0
    for m in range(x.mine_first[job], x.mine_first[job + 1]):
        total += link_loss(x, x.link[x.mine[m]], placed, shifts)
    return total


@kernel
def total_loss(x: LinkArrays, placed: Flags, shifts: Ints) -> float:
    """The sum of `link_loss` over all links."""
    total = 0.0
    for link in range(len(x.length)):
        total += link_loss(x, link, placed, shifts)
    return total


@kernel
def _added(total: int, more: int, capacity: int, limit: int) -> float:
    """How much `more` adds to the excess of `total`."""
    before = total - capacity if total > limit else 0
    after = total + more - capacity if total + more > limit else 0
    return float(after - before)


@kernel
def _rate_after(at: Ints, rate: Ints, count: int, base: int, time: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if at[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return rate[low - 1] if low else base


@kernel
def sweep(x: LinkArrays, job: int, placed: Flags, shifts: Ints) -> tuple[int, Ints, Floats]:
    """The loss on the job's links at each corner of its shift, with the other placed jobs fixed.

    As the job rotates, the slope of the loss changes where an edge of its phases meets an edge of the others'
    demand. Corners without such a change are kept, because a job placed later may meet the job there. Returns
    the number of corners, the corners in ns (0 first, ascending) and the losses.
    """
    was_placed, was_at = placed[job], shifts[job]
    placed[job], shifts[job] = True, 0
    value = job_loss(x, job, placed, shifts)
    placed[job], shifts[job] = was_placed, was_at
    period = x.period[job]
    most = 1
    for m in range(x.mine_first[job], x.mine_first[job + 1]):
        entry = x.mine[m]
        most += 2 * (x.phase[entry + 1] - x.phase[entry]) * x.events[x.link[entry]]
    corner = np.empty(most, dtype=np.int64)
    slope_change = np.empty(most)
    size = 0
    slope = 0.0
    for m in range(x.mine_first[job], x.mine_first[job + 1]):
        entry = x.mine[m]
        link = x.link[entry]
        at = np.empty(x.events[link], dtype=np.int64)
        rate = np.empty(x.events[link], dtype=np.int64)
        count, base = _demand(x, link, job, placed, shifts, at, rate)
        if count == 0:
            continue
        capacity, limit, around = x.capacity[link], x.limit[link], x.length[link]
        scale = x.weight[link] / around / capacity
        for p in range(x.phase[entry], x.phase[entry + 1]):
            more = x.rate[p]
            for lap in range(around // period):
                late = _rate_after(at, rate, count, base, (x.end[p] + lap * period) % around)
                early = _rate_after(at, rate, count, base, x.begin[p] + lap * period)
                slope += scale * (_added(late, more, capacity, limit) - _added(early, more, capacity, limit))
            gone = base
            for k in range(count):
                change = scale * (
                    _added(rate[k], more, capacity, limit) - _added(gone, more, capacity, limit)
                )
                gone = rate[k]
                corner[size], slope_change[size] = (at[k] - x.end[p]) % period, change
                corner[size + 1], slope_change[size + 1] = (at[k] - x.begin[p]) % period, -change
                size += 2
    _sort_slopes(corner, slope_change, size)
    place = np.empty(size + 1, dtype=np.int64)
    losses = np.empty(size + 1)
    place[0], losses[0] = 0, value
    found = 1
    here = 0
    i = 0
    while i < size:
        edge = corner[i]
        change = 0.0
        while i < size and corner[i] == edge:
            change += slope_change[i]
            i += 1
        if edge > 0:
            value += slope * (edge - here)
            slope += change
            here = edge
            place[found], losses[found] = edge, max(0.0, value)
            found += 1
    return found, place, losses
