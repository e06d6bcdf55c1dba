# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 of CRUX, compiled. Import this module only where it runs, because it imports Numba.

Column i of C and the best split of every level for the first i jobs fit into the processor's cache. One order
costs O(jobs^2) additions whatever the number of levels. No matrix is stored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.kernel import compiler

kernel = compiler(__file__)


@kernel
def best_levels(
    at: NDArray[np.int64],
    superior: NDArray[np.int64],
    weight: NDArray[np.int64],
    levels: int,
    draws: NDArray[np.float64],
    previous: NDArray[np.int64],
    bonus: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The level of each job; see `reference.best_levels`."""
    n = len(at) - 1
    result = np.zeros(n, dtype=np.int64)
    below_at, below = _inverted(at, superior)
    members, part_at = _parts(at, superior)
    place = np.zeros(n, dtype=np.int64)
    blocks = np.zeros(n, dtype=np.int64)
    for p in range(len(part_at) - 1):
        part = members[part_at[p] : part_at[p + 1]]
        size = len(part)
        known = False
        for job in part:
            known |= previous[job] >= 0
        samples = len(draws) if size > 2 or known else 1
        best = np.int64(-1)
        for sample in range(samples):
            if sample == 0:
                order = part.copy()
            elif sample == 1 and known:
                order = _by_previous(part, at, superior, previous)
            else:
                order = _random_order(part, at, below_at, below, draws[sample])
            for i in range(size):
                place[order[i]] = i + 1
            value = _cut(order, place, at, superior, weight, levels, known, previous, bonus, blocks)
            if value > best:
                best = value
                for i in range(size):
                    result[order[i]] = blocks[i]
    return result


@kernel
def _inverted(
    at: NDArray[np.int64], superior: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same edges from above: below[below_at[a]:below_at[a + 1]] are the inferiors of a."""
    n = len(at) - 1
    below_at = np.zeros(n + 1, dtype=np.int64)
    for a in superior:
        below_at[a + 1] += 1
    below_at = np.cumsum(below_at)
    fill = below_at[:-1].copy()
    below = np.empty(len(superior), dtype=np.int64)
    for b in range(n):
        for e in range(at[b], at[b + 1]):
            below[fill[superior[e]]] = b
            fill[superior[e]] += 1
    return below_at, below


@kernel
def _parts(at: NDArray[np.int64], superior: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Connected components, each in order of priority: part p is members[part_at[p]:part_at[p + 1]]."""
    n = len(at) - 1
    root = np.arange(n)
    for b in range(n):
        for e in range(at[b], at[b + 1]):
            x, y = superior[e], b
            while root[x] != x:
                root[x] = root[root[x]]
                x = root[x]
            while root[y] != y:
                root[y] = root[root[y]]
                y = root[y]
            root[max(x, y)] = min(x, y)
    number = np.full(n, -1, dtype=np.int64)
    part_at = np.zeros(n + 1, dtype=np.int64)
    parts = 0
    for b in range(n):
        x = b
        while root[x] != x:
            x = root[x]
        root[b] = x
        if number[x] < 0:
            number[x] = parts
            parts += 1
        part_at[number[x] + 1] += 1
    part_at = np.cumsum(part_at[: parts + 1])
    fill = part_at[:-1].copy()
    members = np.empty(n, dtype=np.int64)
    for b in range(n):
        p = number[root[b]]
        members[fill[p]] = b
        fill[p] += 1
    return members, part_at


@kernel
def _by_previous(
    part: NDArray[np.int64],
    at: NDArray[np.int64],
    superior: NDArray[np.int64],
    previous: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The topological order that follows the previous levels as far as the edges allow it."""
    level = np.zeros(len(at) - 1, dtype=np.int64)
    for job in part:
        level[job] = max(previous[job], 0)
        for e in range(at[job], at[job + 1]):
            level[job] = max(level[job], level[superior[e]])
    return part[np.argsort(level[part] * len(at) + part)]


@kernel
def _random_order(
    part: NDArray[np.int64],
    at: NDArray[np.int64],
    below_at: NDArray[np.int64],
    below: NDArray[np.int64],
    draws: NDArray[np.float64],
) -> NDArray[np.int64]:
    """A random topological order: the next job is any of those whose superiors are all placed."""
    waiting = np.zeros(len(at) - 1, dtype=np.int64)
    ready = np.empty(len(part), dtype=np.int64)
    order = np.empty(len(part), dtype=np.int64)
    count = 0
    for job in part:
        waiting[job] = at[job + 1] - at[job]
        if waiting[job] == 0:
            ready[count] = job
            count += 1
    for i in range(len(part)):
        pick = int(draws[i] * count)
        job = ready[pick]
        count -= 1
        ready[pick] = ready[count]
        order[i] = job
        for e in range(below_at[job], below_at[job + 1]):
            low = below[e]
            waiting[low] -= 1
            if waiting[low] == 0:
                ready[count] = low
                count += 1
    return order


@kernel
def _cut(
    order: NDArray[np.int64],
    place: NDArray[np.int64],
    at: NDArray[np.int64],
    superior: NDArray[np.int64],
    weight: NDArray[np.int64],
    levels: int,
    known: bool,
    previous: NDArray[np.int64],
    bonus: NDArray[np.int64],
    blocks: NDArray[np.int64],
) -> np.int64:
    """The best cut of a sequence; `blocks` gets the block of each position. See `reference._cut`.

    Without previous levels the best split does not fall as a level is added either. So the searches of a
    column, from the lowest level up, together pass over it about once.
    """
    n = len(order)
    last = levels - 1 if known else min(levels, n) - 1
    column = np.zeros(n + 1, dtype=np.int64)
    step = np.zeros(n + 1, dtype=np.int64)
    # value[k, j] minus the bonuses of the jobs before j for level k + 1.
    base = np.zeros((last + 1, n + 1), dtype=np.int64)
    value = np.zeros((last + 1, n + 1), dtype=np.int64)
    choice = np.zeros((last + 1, n + 1), dtype=np.int64)
    bonus_sum = np.zeros(last + 1, dtype=np.int64)
    for i in range(1, n + 1):
        job = order[i - 1]
        first = i
        for e in range(at[job], at[job + 1]):
            p = place[superior[e]]
            step[p] += weight[e]
            first = min(first, p)
        total = np.int64(0)
        fresh, into = step[first:i], column[first:i]
        for j in range(len(fresh)):
            total += fresh[j]
            fresh[j] = 0
            into[j] += total
        if known and 0 <= previous[job] <= last:
            bonus_sum[previous[job]] += bonus[job]
        value[0, i] = bonus_sum[0]
        high = i
        for k in range(last, 0, -1):
            low = choice[k, i - 1]
            # The split at i itself, which is an empty block, follows below.
            row = base[k - 1, low : min(high, i - 1) + 1]
            beside = column[low : low + len(row)]
            best = np.int64(-(2**62))
            for j in range(len(row)):
                best = max(best, row[j] + beside[j])
            where = low
            if len(row) > 0:
                while base[k - 1, where] + column[where] != best:
                    where += 1
            value[k, i] = best + bonus_sum[k]
            choice[k, i] = where
            if not known:
                high = where
        for k in range(1, last + 1):
            # In ascending order, because an empty block passes on the value of the levels above.
            if value[k - 1, i] > value[k, i]:
                value[k, i] = value[k - 1, i]
                choice[k, i] = i
        for k in range(last):
            base[k, i] = value[k, i] - bonus_sum[k + 1]
    k = last
    if not known:
        while k > 0 and value[k - 1, n] == value[k, n]:
            k -= 1
    result: np.int64 = value[k, n]
    end = n
    while k > 0:
        start = choice[k, end]
        for i in range(start, end):
            blocks[i] = k
        end = start
        k -= 1
    for i in range(end):
        blocks[i] = 0
    return result
