# SPDX-License-Identifier: Apache-2.0
"""`fluid.plain_lengths`, compiled. Import this module only where it runs, because it imports Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.interleave import jitter, slot_tolerance
from controller.interleave.jitter import PRIME
from controller.interleave.joint import fluid, windows
from controller.interleave.joint.fair_rates import FULL
from controller.interleave.joint.fluid import DONE_BITS, Between, nothing
from controller.interleave.joint.fluid_arrays import Floats, FluidArrays, Ints
from controller.interleave.joint.kernel_rates import change, look_ahead, set_rates, settle
from controller.interleave.joint.kernel_state import FluidState, begin_at, inlined, started
from controller.interleave.slot_tolerance import REST, SETTLE_NS, TOUCH

PIECE = 1_000_000
"""How much work, in looks at a stream or a link, is done without a pause. Chosen: a millisecond or two.
No signal reaches the process meanwhile, and a job that comes waits as long."""

_draw = inlined(jitter.draw)
_rest_wait = inlined(windows.rest_wait)
_later_by = inlined(slot_tolerance.later_by)
_mean_length = inlined(fluid.mean_length)


@inlined
def _wait_for_rests(x: FluidArrays, y: FluidState, j: int, now: float) -> None:
    """Streams of a job are to end `now`: what is longer than a window may come later."""
    at = x.first[j] + y.step[j]
    cap = x.rate[at]
    for i in range(y.own_at[j], y.own_at[j + 1]):
        s = y.own[i]
        if y.ends[s] <= now:
            wait = _rest_wait(x.relative_size[s] * x.up[at] * cap, x.window[j], y.rate[s], cap)
            if wait > 0 and _waits(x, y, s):
                y.done_at[j] = max(y.done_at[j], now + wait)


@inlined
def _waits(x: FluidArrays, y: FluidState, s: int) -> bool:
    """Whether a stream waits in a full queue of the fabric."""
    links = len(x.capacity)
    for n in range(x.at[s], x.at[s + 1]):
        k = x.link[n]
        if x.queues[k]:
            used = 0.0
            for level in range(len(y.level_at) - 1):
                m = level * links + k
                for i in range(y.using_at[m], y.using_at[m + 1]):
                    used += x.flows[y.using[i]] * y.rate[y.using[i]]
            if used >= (x.capacity[k] - x.control[k]) * (1 - FULL):
                return True
    return False


@inlined
def _goes_on(
    x: FluidArrays,
    y: FluidState,
    salts: Ints,
    horizon: float,
    result: Floats,
    piece: int,
) -> bool:
    """Go on by about `piece` of work. At the end fill `result` with the mean iteration of each job, and
    return False.
    """
    jobs = len(x.level)
    timer, due, done_at, begun, waiting = y.timer, y.due, y.done_at, y.begun, y.waiting
    step, iteration, counted, total = y.step, y.iteration, y.counted, y.total
    shift, rest_until = y.shift, y.rest_until
    now, work = y.at[0], 0
    while work < piece:
        work += jobs + set_rates(x, y, now)
        now = horizon
        for j in range(jobs):
            if y.stale[j]:
                y.stale[j] = False
                due[j] = np.inf
                for i in range(y.own_at[j], y.own_at[j + 1]):
                    due[j] = min(due[j], y.ends[y.own[i]], y.rises[y.own[i]])
            now = min(now, timer[j], due[j])
        for j in range(jobs):
            if due[j] <= now:
                _wait_for_rests(x, y, j, now)
        for j in range(jobs):
            if due[j] <= now:
                for i in range(y.own_at[j], y.own_at[j + 1]):
                    s = y.own[i]
                    if y.ends[s] <= now:
                        settle(y, s, now)
                        # Late in a long run a double cannot resolve the time to the end: a stream that is due
                        # has ended.
                        y.left[s] = 0.0
                        y.rate[s] = 0.0
                        y.wants[s] = 0.0
                        look_ahead(x, y, s)
                        change(y, s)
                        y.busy[j] -= 1
                        if y.busy[j] == 0:
                            timer[j] = max(now, done_at[j])
                    elif y.rises[s] <= now:
                        settle(y, s, now)
                        y.stair[s] += 1
                        look_ahead(x, y, s)
                        change(y, s)
        if now >= horizon:
            for j in range(jobs):
                open_ns = horizon - begun[j] if begun[j] >= 0 else 0.0
                result[j] = _mean_length(total[j], counted[j], open_ns)
            return False
        for j in range(jobs):
            while timer[j] <= now:
                begins = False
                if waiting[j]:
                    if begun[j] >= 0:
                        total[j] += now - begun[j]
                        counted[j] += 1
                    begun[j] = now
                    waiting[j] = False
                    step[j] = 0
                    begins = True
                elif done_at[j] >= 0:
                    at = x.first[j] + step[j]
                    done_at[j] = -1.0
                    drawn = _draw(salts[j], iteration[j], step[j] + 1) / PRIME
                    timer[j] = now + x.compute[at] * (1 + x.jitter * drawn)
                elif step[j] + 1 < x.first[j + 1] - x.first[j]:
                    step[j] += 1
                    begins = True
                else:
                    iteration[j] += 1
                    waiting[j] = True
                    timer[j] = begin_at(now, x.period[j], shift[j], x.late[j])
                    if timer[j] <= now and x.period[j] > 0:
                        own_set = x.slot_set[j]
                        offset = (now - shift[j]) % x.period[j]
                        if offset > x.gap[j] and now >= rest_until[own_set]:
                            later = _later_by(offset, x.gap[j] - TOUCH * x.period[j])
                            rest_until[own_set] = now + REST * later + SETTLE_NS
                            for i in range(jobs):
                                if x.slot_set[i] == own_set:
                                    shift[i] += later
                                    if waiting[i] and timer[i] > now:
                                        timer[i] += later
                if begins:
                    at = x.first[j] + step[j]
                    y.fastest[j] = x.rate[at]
                    done_at[j] = now + x.uncontended_size[j] * x.up[at]
                    timer[j] = done_at[j]
                    for i in range(y.own_at[j], y.own_at[j + 1]):
                        s = y.own[i]
                        if step[j] == 0:
                            y.sent[s] = 0.0
                            y.stair[s] = 0
                        y.left[s] = x.relative_size[s] * x.up[at] * x.rate[at]
                        if y.left[s] > DONE_BITS:
                            y.busy[j] += 1
                            y.wants[s] = x.flows[s] * x.rate[at]
                            timer[j] = np.inf
                            change(y, s)
    y.at[0] = now
    return True


def fast_lengths(
    arrays: FluidArrays,
    salts: NDArray[Any],
    starts: NDArray[Any],
    horizon: float,
    between: Between = nothing,
    piece: int = PIECE,
) -> Floats:
    """The kernel's result for these salts and starts, shape (seeds, jobs). It works by the `piece`, and calls
    `between` after each."""
    result = np.zeros(salts.shape)
    for i in range(len(salts)):
        y = started(arrays, starts[i])
        while _goes_on(arrays, y, salts[i], horizon, result[i], piece):
            between()
        between()
    return result
