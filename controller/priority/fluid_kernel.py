# SPDX-License-Identifier: Apache-2.0
"""`fluid.progress`, compiled. Import this module only where it runs, because it imports Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.kernel import compiler

kernel = compiler(__file__)


@kernel
def _speeds(
    traffic: NDArray[np.float64],
    seconds: NDArray[np.float64],
    level: NDArray[np.int64],
    active: NDArray[np.bool_],
    speed: NDArray[np.float64],
) -> None:
    """Each active job's speed; 0 for the others. See `fluid.speeds`."""
    count, links = seconds.shape
    room = np.ones(links)
    load = np.zeros(links)
    growing = np.zeros(count, dtype=np.bool_)
    speed[:] = 0.0
    done = np.int64(-1)
    while True:
        k = np.int64(2**62)
        for j in range(count):
            if active[j] and done < level[j] < k:
                k = level[j]
        if k == 2**62:
            return
        done = k
        left = 0
        for j in range(count):
            growing[j] = active[j] and level[j] == k
            left += growing[j]
        while left > 0:
            load[:] = 0.0
            for j in range(count):
                if growing[j]:
                    for e in range(links):
                        load[e] += seconds[j, e] / traffic[j]
            step = np.inf
            for e in range(links):
                if load[e] > 0:
                    step = min(step, room[e] / load[e])
            for e in range(links):
                room[e] = max(room[e] - step * load[e], 0.0)
            for j in range(count):
                if growing[j]:
                    speed[j] += step
                    for e in range(links):
                        if seconds[j, e] > 0 and room[e] <= 1e-12:
                            growing[j] = False
                    left -= not growing[j]


@kernel
def run(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    traffic: NDArray[np.float64],
    seconds: NDArray[np.float64],
    level: NDArray[np.int64],
    horizon: float,
    table: NDArray[np.float64],
    computed: NDArray[np.float64],
    sent: NDArray[np.float64],
) -> None:
    """Fill `computed` and `sent`; levels count from 0.

    `table`, shape (2^jobs, jobs) of -1, stores the speeds of each set of active jobs; with one row nothing is
    stored.
    """
    count = len(level)
    due, left = np.zeros(count), np.zeros(count)
    active = np.zeros(count, dtype=np.bool_)
    speed = np.zeros(count)
    mask = 0
    kept = table.shape[0] > 1
    now = 0.0
    computed[:] = 0.0
    sent[:] = 0.0
    while now < horizon:
        for j in range(count):
            while not active[j] and due[j] <= now and before[j] + after[j] + traffic[j] > 0:
                if traffic[j] > 0:
                    left[j] = 1.0
                    active[j] = True
                    mask |= 1 << j
                else:
                    sent[j] += 1
                    computed[j] += max(0.0, min(due[j] + after[j], horizon) - max(due[j] - before[j], 0.0))
                    due[j] = due[j] + after[j] + before[j]
        if kept and table[mask, 0] >= 0:
            speed[:] = table[mask]
        else:
            _speeds(traffic, seconds, level, active, speed)
            if kept:
                table[mask] = speed
        then = horizon
        for j in range(count):
            if not active[j]:
                if before[j] + after[j] + traffic[j] > 0:
                    then = min(then, due[j])
            elif speed[j] > 0:
                then = min(then, now + left[j] * traffic[j] / speed[j])
        for j in range(count):
            if active[j]:
                part = (then - now) * speed[j] / traffic[j]
                over = speed[j] > 0 and now + left[j] * traffic[j] / speed[j] <= then
                sent[j] += min(part, left[j])
                left[j] -= part
                if over or left[j] <= 1e-12:
                    active[j] = False
                    mask &= ~(1 << j)
                    computed[j] += max(0.0, min(due[j] + after[j], horizon) - max(due[j] - before[j], 0.0))
                    due[j] = max(then, due[j] + after[j]) + before[j]
        now = then
    for j in range(count):
        if before[j] + after[j] + traffic[j] > 0:
            computed[j] += max(0.0, min(due[j] + after[j], horizon) - max(due[j] - before[j], 0.0))
