# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 of CRUX in plain Python: what the kernel must equal, and what runs without Numba."""

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

    The graph as in `graph.Graph`, with whole weights; `draws` in [0, 1), shape (orders, jobs).
    `previous` is the level a job is on, -1 for none, and `bonus` what leaving it must gain. Parts of
    the graph that do not touch are cut independently, without a previous level on as few levels as
    their best cut needs.
    """
    above = [
        list(zip(superior[a:b].tolist(), weight[a:b].tolist(), strict=True))
        for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)
    ]
    was, worth = previous.tolist(), bonus.tolist()
    result = np.zeros(len(above), dtype=np.int64)
    for part in _parts(above):
        known = any(was[job] >= 0 for job in part)
        samples = len(draws) if len(part) > 2 or known else 1
        best = -1
        for sample in range(samples):
            if sample == 0:
                order = part
            elif sample == 1 and known:
                order = _by_previous(part, above, was)
            else:
                order = _random_order(part, above, draws[sample].tolist())
            value, blocks = _cut(order, above, levels, was if known else None, worth)
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
    part: Sequence[int], above: Sequence[Sequence[tuple[int, int]]], was: Sequence[int]
) -> list[int]:
    """The topological order that follows the previous levels as far as the edges let it."""
    level: dict[int, int] = {}
    for job in part:
        level[job] = max([was[job], 0, *(level[other] for other, _ in above[job])])
    return sorted(part, key=lambda job: (level[job], job))


def _random_order(
    part: Sequence[int], above: Sequence[Sequence[tuple[int, int]]], draws: Sequence[float]
) -> list[int]:
    """A random topological order: any of the jobs whose superiors are all out comes next."""
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
    was: Sequence[int] | None,
    worth: Sequence[int],
) -> tuple[int, list[int]]:
    """The best cut of a sequence into at most `levels` blocks: its value and each position's block.

    f(i, k) = max over j <= i of f(j, k-1) + C(j, i), where C(j, i) is the weight from the first j jobs
    to jobs j+1 .. i, plus what the jobs of a block on their previous level are worth. C's column i comes
    from column i-1 by the edges into job i. The best j never falls as i grows (quadrangle inequality).
    """
    n, last = len(order), min(levels, len(order)) - 1 if was is None else levels - 1
    place = {job: i for i, job in enumerate(order, 1)}
    column = [0] * (n + 1)
    value = [[0] * (n + 1) for _ in range(last + 1)]
    choice = [[0] * (n + 1) for _ in range(last + 1)]
    hysteresis = [[0] * (n + 1) for _ in range(last + 1)]
    for i, job in enumerate(order, 1):
        step = [0] * (n + 1)
        for other, weight in above[job]:
            step[place[other]] += weight
        total = 0
        for j in range(i):
            total += step[j]
            column[j] += total
        for k in range(last + 1):
            hysteresis[k][i] = hysteresis[k][i - 1] + (worth[job] if was is not None and was[job] == k else 0)
        value[0][i] = hysteresis[0][i]
        for k in range(1, last + 1):
            best, at = -1, 0
            for j in range(choice[k][i - 1], i + 1):
                option = value[k - 1][j] + column[j] + hysteresis[k][i] - hysteresis[k][j]
                if option > best:
                    best, at = option, j
            value[k][i], choice[k][i] = best, at
    k = last
    if was is None:
        k = next(k for k in range(last + 1) if value[k][n] == value[last][n])
    blocks = [0] * n
    end = n
    best = value[k][n]
    while k > 0:
        start = choice[k][end]
        blocks[start:end] = [k] * (end - start)
        end, k = start, k - 1
    return best, blocks
