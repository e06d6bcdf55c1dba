# SPDX-License-Identifier: Apache-2.0
"""Evaluate every choice of paths and levels of a small case exactly. This module imports Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.kernel import compiler
from controller.priority import fluid_kernel
from controller.priority.fluid_kernel import run

kernel = compiler(__file__, fluid_kernel.__file__)


@kernel
def utilities(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    seconds: NDArray[np.float64],
    levels: NDArray[np.int64],
    gpus: NDArray[np.float64],
    horizon: float,
) -> NDArray[np.float64]:
    """The GPU-seconds computed in `horizon` for each choice of paths and levels, shape (paths, partitions).

    `seconds`, shape (paths, jobs, links), is the time that each link needs for the bytes of an iteration; the
    slowest link of a job needs the same time on all paths. `levels`, shape (partitions, jobs), count from 0.
    Only the order of jobs that share a link matters, so partitions with the same order are evaluated once.
    """
    paths, jobs, links = seconds.shape
    partitions = len(levels)
    result = np.zeros((paths, partitions))
    computed, sent = np.zeros(jobs), np.zeros(jobs)
    table = np.empty((1 << jobs, jobs))
    traffic = np.zeros(jobs)
    orders = 3 ** (jobs * (jobs - 1) // 2)
    known = np.full(orders, -1, dtype=np.int64)
    for p in range(paths):
        for j in range(jobs):
            traffic[j] = seconds[p, j].max()
        share = np.zeros((jobs, jobs), dtype=np.bool_)
        for a in range(jobs):
            for b in range(a + 1, jobs):
                for e in range(links):
                    share[a, b] |= seconds[p, a, e] > 0 and seconds[p, b, e] > 0
        known[:] = -1
        for q in range(partitions):
            order = 0
            for a in range(jobs):
                for b in range(a + 1, jobs):
                    order *= 3
                    if share[a, b]:
                        order += 1 + (levels[q, a] > levels[q, b]) - (levels[q, a] < levels[q, b])
            if known[order] < 0:
                known[order] = q
                table[:] = -1.0
                run(before, after, traffic, seconds[p], levels[q], horizon, table, computed, sent)
                result[p, q] = (computed * gpus).sum()
            else:
                result[p, q] = result[p, known[order]]
    return result
