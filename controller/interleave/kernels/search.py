# SPDX-License-Identifier: Apache-2.0
"""Coordinate descent and branch and bound over the shifts of one connected set of jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.interleave.kernels.compiled import kernel
from controller.interleave.kernels.sweep import job_loss, sweep, total_loss
from controller.interleave.link_arrays import LinkArrays

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_EPS = 1e-9
_MOST = 1 << 62
_ODD = np.int64(-7046029254386353131)
_ODD_TOO = np.int64(-4658895280553007687)
"""Odd constants of the hash SplitMix64 (0x9E3779B97F4A7C15 and 0xBF58476D1CE4E5B9)."""


@kernel
def insert(x: LinkArrays, order: Ints, shifts: Ints) -> None:
    """Place the jobs one after another where each loses least. The first of `order` is placed at 0."""
    placed = np.zeros(len(x.period), dtype=np.bool_)
    for i in range(len(order)):
        job = order[i]
        shifts[job] = 0
        if i:
            count, at, loss = sweep(x, job, placed, shifts)
            best = 0
            for k in range(1, count):
                if loss[k] < loss[best] - _EPS:
                    best = k
            shifts[job] = at[best]
        placed[job] = True


@kernel
def descend(x: LinkArrays, order: Ints, shifts: Ints, bound: float, rounds: int) -> float:
    """Move each job but the first to its best position until none improves. Returns the loss."""
    placed = np.ones(len(x.period), dtype=np.bool_)
    best = total_loss(x, placed, shifts)
    for _ in range(rounds):
        before = best
        for i in range(1, len(order)):
            if best <= bound + _EPS:
                return best
            job = order[i]
            now = job_loss(x, job, placed, shifts)
            count, at, loss = sweep(x, job, placed, shifts)
            k = np.argmin(loss[:count])
            if loss[k] < now - _EPS:
                shifts[job] = at[k]
                best += loss[k] - now
        if best >= before - _EPS:
            break
    return total_loss(x, placed, shifts)


@kernel
def restarts(x: LinkArrays, orders: Ints, start: Ints, shifts: Ints, bound: float, rounds: int) -> float:
    """Descent from `start` (if not empty) and from an insertion in each of `orders`. The best is left in
    `shifts`.
    """
    best = np.inf
    trial = np.zeros(len(x.period), dtype=np.int64)
    for r in range(-1 if len(start) else 0, len(orders)):
        if r < 0:
            trial[:] = start
        else:
            insert(x, orders[r], trial)
        loss = descend(x, orders[max(r, 0)], trial, bound, rounds)
        if loss < best - _EPS:
            best = loss
            shifts[:] = trial
        if best <= bound + _EPS:
            break
    return best


@kernel
def _remember(seen: Ints, key: np.int64) -> bool:
    """Add a key to a hash set whose size is a power of two; False if it was present (a full set forgets)."""
    mask = len(seen) - 1
    place = (key ^ (key >> 29)) & mask
    for _ in range(64):
        if seen[place] == key:
            return False
        if seen[place] == 0:
            seen[place] = key
            return True
        place = (place + 1) & mask
    return True


@kernel
def _gcd(a: np.int64, b: np.int64) -> np.int64:
    while b:
        a, b = b, a % b
    return a


@kernel
def branch(
    x: LinkArrays, first: int, shifts: Ints, best: float, bound: float, nodes: int, convex: bool
) -> tuple[float, bool]:
    """Branch and bound over alignment trees, from the incumbent in `shifts` with loss `best`.

    Some optimum aligns the edges of the jobs along a spanning tree. So each job is tried at the corners that
    the jobs before it make. A rotation of all jobs that leaves the placed jobs unchanged changes nothing; so
    the shift of a job matters only modulo the gcd of its period and the lcm of theirs. Excess grows with
    demand. Where it is convex (no slack) each remaining job adds at least what it would add now, so the sum
    of these least additions is a bound. False if `nodes` sweeps did not suffice.
    """
    n = len(x.period)
    size = 256
    jobs = np.empty(size, dtype=np.int64)
    places = np.empty(size, dtype=np.int64)
    losses = np.empty(size)
    floors = np.empty(size)
    used = 0
    depth_end = np.zeros(n + 1, dtype=np.int64)
    chosen = np.full(n + 1, -1, dtype=np.int64)
    placed = np.zeros(n, dtype=np.bool_)
    current = np.zeros(n, dtype=np.int64)
    least = np.empty(n)
    seen = np.zeros(1 << 14, dtype=np.int64)
    placed[first] = True
    depth = 1
    entered = True
    loss_here = np.zeros(n + 1)
    loss_here[1] = total_loss(x, placed, current)
    while depth >= 1:
        if entered:
            entered = False
            depth_end[depth] = used
            key = np.int64(0)
            for job in range(n):
                if placed[job]:
                    mixed = (current[job] + 1) * _ODD ^ (job + 1) * _ODD_TOO
                    key += (mixed ^ (mixed >> 31)) * _ODD_TOO
            if key == 0 or _remember(seen, key):
                begin = used
                together = 0.0
                common_period = np.int64(1)
                for job in range(n):
                    if placed[job] and common_period > 0:
                        laps = common_period // _gcd(common_period, x.period[job])
                        # If the lcm does not fit into 64 bits, every shift of the job is tried.
                        common_period = laps * x.period[job] if laps < _MOST // x.period[job] else np.int64(0)
                for job in range(n):
                    if placed[job]:
                        continue
                    nodes -= 1
                    if nodes < 0:
                        return best, False
                    apart = loss_here[depth] - job_loss(x, job, placed, current)
                    count, at, loss = sweep(x, job, placed, current)
                    lowest = loss[:count].min()
                    apart_by = _gcd(common_period, x.period[job]) if common_period > 0 else x.period[job]
                    least[job] = max(0.0, lowest + apart - loss_here[depth])
                    together += least[job]
                    for k in range(count):
                        if at[k] < apart_by and loss[k] + apart < best - _EPS:
                            if used == size:
                                size *= 2
                                jobs = np.concatenate((jobs, jobs))
                                places = np.concatenate((places, places))
                                losses = np.concatenate((losses, losses))
                                floors = np.concatenate((floors, floors))
                            jobs[used], places[used], losses[used] = job, at[k], loss[k] + apart
                            used += 1
                            if depth == n - 1 and loss[k] <= lowest:
                                break
                if depth == n - 1:
                    for k in range(begin, used):
                        if losses[k] < best - _EPS:
                            best = losses[k]
                            shifts[:] = current
                            shifts[jobs[k]] = places[k]
                    used = begin
                    if best <= bound + _EPS:
                        return best, True
                else:
                    for k in range(begin, used):
                        floor = losses[k]
                        if convex:
                            floor += together - least[jobs[k]]
                        else:
                            for job in range(n):
                                if not placed[job] and job != jobs[k]:
                                    floor = max(floor, loss_here[depth] + least[job])
                        floors[k] = floor
                    # The most promising candidate is at the end, which is visited first.
                    order = np.argsort(-floors[begin:used])
                    jobs[begin:used] = jobs[begin:used][order]
                    places[begin:used] = places[begin:used][order]
                    losses[begin:used] = losses[begin:used][order]
                    floors[begin:used] = floors[begin:used][order]
        if chosen[depth] >= 0:
            placed[chosen[depth]] = False
            current[chosen[depth]] = 0
            chosen[depth] = -1
        if used > depth_end[depth] and floors[used - 1] < best - _EPS:
            used -= 1
            job = jobs[used]
            chosen[depth] = job
            placed[job], current[job] = True, places[used]
            loss_here[depth + 1] = losses[used]
            depth += 1
            entered = True
        else:
            used = depth_end[depth]
            depth -= 1
    return best, True
