# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 of CRUX, compiled. Import it only where it runs: it brings Numba along.

Column i of C and the best split of every level for the first i jobs fit the processor's cache, and one
order costs O(jobs^2) additions whatever the number of levels: no matrix is kept.
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
    """The level of each job; `reference.best_levels` says what and how."""
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
    """The same edges from above: below[below_at[a]:below_at[a + 1]] are a's inferiors."""
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
    """The topological order that follows the previous levels as far as the edges let it."""
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
    """A random topological order: any of the jobs whose superiors are all out comes next."""
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
    """The best cut of a sequence; `blocks` gets each position's block. See `reference._cut`.

    Without previous levels the best split also never falls as a level is added, so that each column's
    searches, from the lowest level up, together pass over it about once.
    """
    n = len(order)
    last = levels - 1 if known else min(levels, n) - 1
    column = np.zeros(n + 1, dtype=np.int64)
    step = np.zeros(n + 1, dtype=np.int64)
    # value[k, j] less what the jobs before j are worth on level k + 1.
    base = np.zeros((last + 1, n + 1), dtype=np.int64)
    value = np.zeros((last + 1, n + 1), dtype=np.int64)
    choice = np.zeros((last + 1, n + 1), dtype=np.int64)
    hysteresis = np.zeros(last + 1, dtype=np.int64)
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
            hysteresis[previous[job]] += bonus[job]
        value[0, i] = hysteresis[0]
        high = i
        for k in range(last, 0, -1):
            low = choice[k, i - 1]
            # The split at i itself, an empty block, comes below.
            row = base[k - 1, low : min(high, i - 1) + 1]
            beside = column[low : low + len(row)]
            best = np.int64(-(2**62))
            for j in range(len(row)):
                best = max(best, row[j] + beside[j])
            where = low
            if len(row) > 0:
                while base[k - 1, where] + column[where] != best:
                    where += 1
            value[k, i] = best + hysteresis[k]
            choice[k, i] = where
            if not known:
                high = where
        for k in range(1, last + 1):
            # In ascending order: an empty block hands on what the levels above reach.
            if value[k - 1, i] > value[k, i]:
                value[k, i] = value[k - 1, i]
                choice[k, i] = i
        for k in range(last):
            base[k, i] = value[k, i] - hysteresis[k + 1]
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
