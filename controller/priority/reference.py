# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 of CRUX in plain Python: the reference of the kernel, and the fallback without Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def best_levels(
    at: NDArray[np.int64],
    superior: NDArray[np.int64],
    weight: NDArray[np.int64],
    levels: int,
    draws: NDArray[np.float64],
    previous: NDArray[np.int64],
    bonus: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The level of each job, shape (jobs,), by the best cut over `len(draws)` topological orders.

    The graph is as in `graph.Graph`, with whole weights. `draws` are in [0, 1), shape (orders, jobs).
    `previous` is the current level of a job, -1 for none, and `bonus` what a job must gain to leave it. Parts
    of the graph that are not connected are cut separately. Without previous levels they use as few levels as
    their best cut needs.
    """
    above = [
        list(zip(superior[a:b].tolist(), weight[a:b].tolist(), strict=True))
        for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)
    ]
    previous_level, bonuses = previous.tolist(), bonus.tolist()
    result = np.zeros(len(above), dtype=np.int64)
    for part in _parts(above):
        known = any(previous_level[job] >= 0 for job in part)
        samples = len(draws) if len(part) > 2 or known else 1
        best = -1
        for sample in range(samples):
            if sample == 0:
                order = part
            elif sample == 1 and known:
                order = _by_previous(part, above, previous_level)
            else:
                order = _random_order(part, above, draws[sample].tolist())
            value, blocks = _cut(order, above, levels, previous_level if known else None, bonuses)
            if value > best:
                best = value
                result[order] = blocks
    return result


def _parts(above: Sequence[Sequence[tuple[int, int]]]) -> list[list[int]]:
    """Connected components, each in order of priority."""
    root = list(range(len(above)))

    def find(job: int) -> int:
        while root[job] != job:
            root[job] = job = root[root[job]]
        return job

    for job, edges in enumerate(above):
        for other, _ in edges:
            a, b = find(other), find(job)
            root[max(a, b)] = min(a, b)
    parts: dict[int, list[int]] = {}
    for job in range(len(above)):
        parts.setdefault(find(job), []).append(job)
    return list(parts.values())


def _by_previous(
    part: Sequence[int], above: Sequence[Sequence[tuple[int, int]]], previous_level: Sequence[int]
) -> list[int]:
    """The topological order that follows the previous levels as far as the edges allow it."""
    level: dict[int, int] = {}
    for job in part:
        level[job] = max([previous_level[job], 0, *(level[other] for other, _ in above[job])])
    return sorted(part, key=lambda job: (level[job], job))


def _random_order(
    part: Sequence[int], above: Sequence[Sequence[tuple[int, int]]], draws: Sequence[float]
) -> list[int]:
    """A random topological order: the next job is any of those whose superiors are all placed."""
    waiting = {job: len(above[job]) for job in part}
    below: dict[int, list[int]] = {job: [] for job in part}
    for job in part:
        for other, _ in above[job]:
            below[other].append(job)
    ready = [job for job in part if not waiting[job]]
    order: list[int] = []
    while ready:
        pick = int(draws[len(order)] * len(ready))
        ready[pick], ready[-1] = ready[-1], ready[pick]
        order.append(ready.pop())
        for job in below[order[-1]]:
            waiting[job] -= 1
            if not waiting[job]:
                ready.append(job)
    return order


def _cut(
    order: Sequence[int],
    above: Sequence[Sequence[tuple[int, int]]],
    levels: int,
    previous_level: Sequence[int] | None,
    bonuses: Sequence[int],
) -> tuple[int, list[int]]:
    """The best cut of a sequence into at most `levels` blocks: its value and the block of each position.

    f(i, k) = max over j <= i of f(j, k-1) + C(j, i). C(j, i) is the weight from the first j jobs to jobs j+1
    .. i, plus the bonuses of the jobs of a block that stay on their previous level. Column i of C follows
    from column i-1 by the edges into job i. The best j does not fall as i grows (quadrangle inequality).
    """
    n, last = len(order), min(levels, len(order)) - 1 if previous_level is None else levels - 1
    place = {job: i for i, job in enumerate(order, 1)}
    column = [0] * (n + 1)
    value = [[0] * (n + 1) for _ in range(last + 1)]
    choice = [[0] * (n + 1) for _ in range(last + 1)]
    bonus_sum = [[0] * (n + 1) for _ in range(last + 1)]
    for i, job in enumerate(order, 1):
        step = [0] * (n + 1)
        for other, weight in above[job]:
            step[place[other]] += weight
        total = 0
        for j in range(i):
            total += step[j]
            column[j] += total
        for k in range(last + 1):
            bonus_sum[k][i] = bonus_sum[k][i - 1] + (
                bonuses[job] if previous_level is not None and previous_level[job] == k else 0
            )
        value[0][i] = bonus_sum[0][i]
        for k in range(1, last + 1):
            best, at = -1, 0
            for j in range(choice[k][i - 1], i + 1):
                option = value[k - 1][j] + column[j] + bonus_sum[k][i] - bonus_sum[k][j]
                if option > best:
                    best, at = option, j
            value[k][i], choice[k][i] = best, at
    k = last
    if previous_level is None:
        k = next(k for k in range(last + 1) if value[k][n] == value[last][n])
    blocks = [0] * n
    end = n
    best = value[k][n]
    while k > 0:
        start = choice[k][end]
        blocks[start:end] = [k] * (end - start)
        end, k = start, k - 1
    return best, blocks
