# SPDX-License-Identifier: Apache-2.0
"""`fluid.plain_lengths`, compiled. Import this module only where it runs, because it imports Numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.interleave import jitter, slot_tolerance
from controller.interleave.jitter import PRIME
from controller.interleave.joint import fluid
from controller.interleave.joint.fluid import (
    _DONE_BITS,
    _FULL,
    STAIRS,
    Between,
    Floats,
    FluidArrays,
    Ints,
    nothing,
)
from controller.interleave.slot_tolerance import REST, SETTLE_NS, TOUCH
from controller.kernel import compiler

_KNOWN = 4096
"""How many sets of rates are remembered at once. Chosen: few groups have more states, and clearing the marks
of so many takes less than a microsecond."""
_RATE = 8
"""The work of finding a stream's rate, beside that of looking at it. Chosen: about as measured."""
PIECE = 1_000_000
"""How much work, in looks at a stream, is done without a pause. Chosen: a millisecond or two. No signal
reaches the process meanwhile, and a job that comes waits as long."""

kernel = compiler(__file__, fluid.__file__, jitter.__file__, slot_tolerance.__file__)
_draw = kernel(jitter.draw)
_begin_at = kernel(fluid.begin_at)
_later_by = kernel(slot_tolerance.later_by)
_mean_length = kernel(fluid.mean_length)


@kernel
def _weight(x: FluidArrays, s: int, sent: Floats, whole: Floats) -> tuple[float, float]:
    if not x.mltcp[x.job[s]]:
        return 1.0, np.inf
    stair = min(STAIRS - 1, int(STAIRS * sent[s] / whole[s] + 1e-9))
    weight = x.slope * (stair + 0.5) / STAIRS + x.intercept
    until = np.inf if stair == STAIRS - 1 else whole[s] * (stair + 1) / STAIRS - sent[s]
    return weight, until


@kernel
def _rates(
    x: FluidArrays,
    active: Ints,
    size: int,
    step: Ints,
    weight: Floats,
    rates: Floats,
    room: Floats,
    asked: Floats,
) -> int:
    """Fill `rates` for the active streams. `active[:size]` is sorted by level.

    Returns the work, in the unit of PIECE.
    """
    room[:] = x.capacity
    begin, work = 0, 0
    while begin < size:
        level = x.level[x.job[active[begin]]]
        end = begin
        while end < size and x.level[x.job[active[end]]] == level:
            end += 1
        left = end
        # The rates of active[begin:left] still rise. Streams that stop are swapped behind them.
        while left > begin:
            work += _RATE * (left - begin) + len(asked)
            asked[:] = 0.0
            for i in range(begin, left):
                s = active[i]
                for n in range(x.at[s], x.at[s + 1]):
                    asked[x.link[n]] += x.flows[s] * weight[s]
            water = np.inf
            for i in range(begin, left):
                s = active[i]
                j = x.job[s]
                water = min(water, x.rate[x.first[j] + step[j]] / weight[s])
                for n in range(x.at[s], x.at[s + 1]):
                    k = x.link[n]
                    water = min(water, room[k] / asked[k])
            bound = water * (1 + _FULL)
            for i in range(begin, left):
                s = active[i]
                j = x.job[s]
                stops = x.rate[x.first[j] + step[j]] / weight[s] <= bound
                for n in range(x.at[s], x.at[s + 1]):
                    k = x.link[n]
                    stops |= room[k] / asked[k] <= bound
                rates[s] = weight[s] * water if stops else -1.0
            i = begin
            while i < left:
                s = active[i]
                if rates[s] >= 0.0:
                    for n in range(x.at[s], x.at[s + 1]):
                        k = x.link[n]
                        room[k] = max(0.0, room[k] - x.flows[s] * rates[s])
                    left -= 1
                    active[i], active[left] = active[left], active[i]
                else:
                    i += 1
        begin = end
    return work


@kernel
def _known_place(
    x: FluidArrays, active: Ints, size: int, limit: Ints, sent: Floats, whole: Floats, state: Ints
) -> int:
    """Fill `state` with what the rates follow from: 0 for a stream that does not send, else a number for its
    stair and for the rate of its job's step, `limit`. Returns where the rates for this state are remembered.
    """
    state[:] = 0
    place = 0
    for i in range(size):
        s = active[i]
        j = x.job[s]
        stair = min(STAIRS - 1, int(STAIRS * sent[s] / whole[s] + 1e-9)) if x.mltcp[j] else 0
        state[s] = 1 + limit[j] * STAIRS + stair
        place = (place * 31 + s * 1_009 + state[s]) % 2_147_483_647
    return place % _KNOWN


class _Simulation(NamedTuple):
    """A simulation that is under way: by job, by stream, by link and by step, and where it is.

    `at` holds the time; `flags` the number of active streams, and 1 if their rates have to be found again.
    """

    timer: Floats
    done_at: Floats
    begun: Floats
    waiting: NDArray[np.bool_]
    step: Ints
    iteration: Ints
    counted: Ints
    total: Floats
    shift: Floats
    rest_until: Floats
    left: Floats
    sent: Floats
    whole: Floats
    rates: Floats
    weight: Floats
    room: Floats
    asked: Floats
    busy: Ints
    own_at: Ints
    own: Ints
    by_level: Ints
    active: Ints
    state: Ints
    alike: Ints
    limit: Ints
    at: Floats
    flags: Ints


@kernel
def _begun(x: FluidArrays, starts: Floats) -> _Simulation:
    """The simulation at its start; see `fluid._PlainFluid`."""
    jobs, streams, links = len(x.level), len(x.job), len(x.capacity)
    timer, whole = np.zeros(jobs), np.zeros(streams)
    own_at = np.zeros(jobs + 1, dtype=np.int64)
    own, by_level = np.zeros(streams, dtype=np.int64), np.zeros(streams, dtype=np.int64)
    for s in range(streams):
        own_at[x.job[s] + 1] += 1
        j = x.job[s]
        for at in range(x.first[j], x.first[j + 1]):
            whole[s] += x.up[at] * x.rate[at]
        whole[s] *= x.relative_size[s]
    for j in range(jobs):
        own_at[j + 1] += own_at[j]
        timer[j] = _begin_at(starts[j], x.period[j], x.shift[j], 0.0)
    fill = own_at[:-1].copy()
    for s in range(streams):
        own[fill[x.job[s]]] = s
        fill[x.job[s]] += 1
    size = 0
    for level in range(jobs):
        for s in range(streams):
            if x.level[x.job[s]] == level:
                by_level[size] = s
                size += 1
    # Steps of one rate share a number.
    alike = np.zeros(x.first[jobs], dtype=np.int64)
    limit = np.zeros(jobs, dtype=np.int64)
    for j in range(jobs):
        for at in range(x.first[j], x.first[j + 1]):
            while x.rate[x.first[j] + alike[at]] != x.rate[at]:
                alike[at] += 1
    flags = np.zeros(2, dtype=np.int64)
    flags[1] = 1
    return _Simulation(
        timer,
        np.zeros(jobs),
        np.full(jobs, -1.0),
        np.ones(jobs, dtype=np.bool_),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs),
        x.shift.copy(),
        np.full(jobs, -np.inf),
        np.zeros(streams),
        np.zeros(streams),
        whole,
        np.zeros(streams),
        np.ones(streams),
        np.zeros(links),
        np.zeros(links),
        np.zeros(jobs, dtype=np.int64),
        own_at,
        own,
        by_level,
        np.zeros(streams, dtype=np.int64),
        np.zeros(streams, dtype=np.int64),
        alike,
        limit,
        np.zeros(1),
        flags,
    )


@kernel
def _goes_on(
    x: FluidArrays,
    y: _Simulation,
    salts: Ints,
    horizon: float,
    result: Floats,
    known: NDArray[np.bool_],
    states: NDArray[np.int32],
    table: Floats,
    piece: int,
) -> bool:
    """Go on by about `piece` of work. At the end fill `result` with the mean iteration of each job, and
    return False.

    Where `known`, the rates for a state of the streams (a row of `states`) are in the same row of `table`.
    """
    jobs, streams = len(x.level), len(x.job)
    timer, done_at, begun, waiting = y.timer, y.done_at, y.begun, y.waiting
    step, iteration, counted, total = y.step, y.iteration, y.counted, y.total
    shift, rest_until = y.shift, y.rest_until
    left, sent, whole, rates, weight = y.left, y.sent, y.whole, y.rates, y.weight
    room, asked = y.room, y.asked
    busy, own_at, own, by_level = y.busy, y.own_at, y.own, y.by_level
    active, state, alike, limit = y.active, y.state, y.alike, y.limit
    any_mltcp = x.mltcp.any()
    size, now, dirty = y.flags[0], y.at[0], y.flags[1] != 0
    work = 0
    while work < piece:
        if dirty:
            size = 0
            for i in range(streams):
                s = by_level[i]
                if left[s] > _DONE_BITS:
                    active[size] = s
                    size += 1
                else:
                    rates[s] = 0.0
            if size:
                place = _known_place(x, active, size, limit, sent, whole, state)
                same = known[place]
                if same:
                    for s in range(streams):
                        same &= states[place, s] == state[s]
                if same:
                    for i in range(size):
                        rates[active[i]] = table[place, active[i]]
                else:
                    if any_mltcp:
                        for i in range(size):
                            weight[active[i]], _ = _weight(x, active[i], sent, whole)
                    work += _rates(x, active, size, step, weight, rates, room, asked)
                    known[place] = True
                    for s in range(streams):
                        states[place, s] = state[s]
                        table[place, s] = rates[s]
            dirty = False
            work += 2 * streams
        work += jobs + 2 * size
        then = horizon
        for j in range(jobs):
            then = min(then, timer[j])
        for i in range(size):
            s = active[i]
            if rates[s] > 0:
                needs = left[s]
                if any_mltcp:
                    _, until = _weight(x, s, sent, whole)
                    needs = min(needs, until)
                then = min(then, now + needs / rates[s])
        for i in range(size):
            s = active[i]
            if rates[s] <= 0:
                continue
            moved = rates[s] * (then - now)
            # Late in a long run a double cannot resolve the time to the end: a stream that is due has ended.
            ends = now + left[s] / rates[s] <= then
            left[s] = 0.0 if ends else max(0.0, left[s] - moved)
            if any_mltcp:
                dirty = True
                sent[s] += moved
            if left[s] <= _DONE_BITS:
                dirty = True
                j = x.job[s]
                busy[j] -= 1
                if not busy[j]:
                    timer[j] = max(then, done_at[j])
        now = then
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
                    timer[j] = _begin_at(now, x.period[j], shift[j], x.late[j])
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
                    limit[j] = alike[at]
                    done_at[j] = now + x.uncontended_size[j] * x.up[at]
                    timer[j] = done_at[j]
                    for i in range(own_at[j], own_at[j + 1]):
                        s = own[i]
                        if step[j] == 0:
                            sent[s] = 0.0
                        left[s] = x.relative_size[s] * x.up[at] * x.rate[at]
                        if left[s] > _DONE_BITS:
                            busy[j] += 1
                            timer[j] = np.inf
                            dirty = True
    y.flags[0], y.flags[1], y.at[0] = size, dirty, now
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
    streams = len(arrays.job)
    known = np.zeros(_KNOWN, dtype=np.bool_)
    states = np.empty((_KNOWN, streams), dtype=np.int32)
    table = np.empty((_KNOWN, streams))
    for i in range(len(salts)):
        y = _begun(arrays, starts[i])
        while _goes_on(arrays, y, salts[i], horizon, result[i], known, states, table, piece):
            between()
        between()
    return result
