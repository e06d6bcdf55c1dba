# SPDX-License-Identifier: Apache-2.0
"""The event loop: tasks end, their successors begin, rates are repaired, iterations are counted."""

from __future__ import annotations

from controller.interleave.jitter import draw
from sim.jitter import stretched
from sim.kernels.allocate import repair
from sim.kernels.compiler import kernel
from sim.kernels.flowlets import choose_ways
from sim.kernels.flows import join, leave, reweigh, schedule, unschedule
from sim.kernels.repeat import skip_repeats
from sim.kernels.state import (
    ACTIVE,
    ALIGNED,
    BEGIN,
    BOUNDARY,
    COMPUTE,
    COUNT,
    DIRTY,
    DONE,
    ENDED,
    EPOCH,
    FINISHES,
    FIRST,
    FIRST_BY,
    FLOW,
    GATE,
    HEAP,
    HELD,
    IDLE,
    JITTER,
    LATE_BY,
    LOGGED,
    LONGEST,
    NOW,
    ONCE,
    PERIOD,
    PERIODIC,
    READY,
    REFERENCE,
    ROOT,
    SALT,
    SHIFT,
    SINK,
    STARTERS,
    STARTS,
    TARGET,
    TIMERS,
    TOTAL,
    State,
)

REACHED, JOB_DONE, LOG_FULL = 0, 1, 2

_draw, _stretched = kernel(draw), kernel(stretched)


@kernel
def run(s: State, until: int) -> int:
    """Let time pass up to `until`, inclusive, or until a job is done or the log is full."""
    if s.reg[STARTERS]:
        choose_ways(s)
    if s.reg[DIRTY]:
        repair(s)
    while True:
        if not s.reg[HEAP] or s.heap[0].key > until:
            s.reg[NOW] = until
            return REACHED
        s.reg[NOW] = s.heap[0].key
        s.reg[BOUNDARY] = 0
        while s.reg[HEAP] and s.heap[0].key == s.reg[NOW]:
            task = s.heap[0].id
            unschedule(s, task)
            if task == s.jobs[s.tasks[task].job, ROOT]:
                s.reg[TIMERS] += 1
                _begin(s, s.tasks[task].job)
            elif s.tasks[task].kind == FLOW:
                c = s.tasks[task].channel
                if s.channels[c].mark > 0.0:
                    s.reg[TIMERS] += 1
                    reweigh(s, c)
                    continue
                s.reg[FINISHES] += 1
                leave(s, c)
            else:
                s.reg[TIMERS] += 1
                s.tasks[task].active = IDLE
            _complete(s, task)
        if s.reg[STARTERS]:
            choose_ways(s)
        if s.reg[DIRTY]:
            repair(s)
        if s.reg[DONE]:
            return JOB_DONE
        if s.reg[BOUNDARY] and s.reg[PERIODIC]:
            skip_repeats(s, until)
        if len(s.log) and s.reg[LOGGED] > len(s.log) - 2 * len(s.jobs):
            return LOG_FULL


@kernel
def _complete(s: State, task: int) -> None:
    """End a task. Start the tasks that waited only for it, and their successors where those take no time."""
    size = 1
    s.tasks[0].stack = task
    while size:
        size -= 1
        over = s.tasks[size].stack
        gate = s.tasks[over].gives
        if gate >= 0:
            s.tasks[gate].tokens += 1
            if s.tasks[gate].tokens <= 0:
                s.tasks[size].stack = gate
                size += 1
        for i in range(s.succ_at[over], s.succ_at[over + 1]):
            following = s.succ[i]
            s.tasks[following].waiting -= 1
            if s.tasks[following].waiting:
                continue
            job = s.tasks[following].job
            if s.tasks[following].kind == FLOW and s.tasks[following].bits > 0.0:
                s.reg[STARTS] += 1
                join(s, following, s.tasks[following].bits)
            elif s.tasks[following].kind == COMPUTE and s.tasks[following].span > 0:
                s.tasks[following].active = ACTIVE
                schedule(s, following, s.reg[NOW] + _span(s, job, following))
            elif s.tasks[following].kind == GATE:
                s.tasks[following].tokens -= 1
                if s.tasks[following].tokens >= 0:
                    s.tasks[size].stack = following
                    size += 1
            elif following == s.jobs[job, SINK]:
                if _end(s, job):
                    s.tasks[size].stack = s.jobs[job, ROOT]
                    size += 1
            else:
                s.tasks[size].stack = following
                size += 1


@kernel
def _span(s: State, job: int, task: int) -> int:
    """The duration of a compute in the running iteration."""
    row = s.jobs[job]
    if not row[JITTER]:
        return int(s.tasks[task].span)
    return _stretched(s.tasks[task].span, row[JITTER], _draw(row[SALT], row[COUNT], task - row[FIRST]))


@kernel
def slot_delay(s: State, job: int) -> int:
    """How long in ps an iteration that is ready now waits for its slot (see `sim.jobrun.slot_delay`)."""
    period = s.jobs[job, PERIOD]
    if period <= 0:
        return 0
    offset = s.reg[NOW] - s.jobs[job, EPOCH] - s.jobs[job, SHIFT]
    free = s.jobs[job, ONCE] and s.jobs[job, ALIGNED]
    if offset < 0 and not free:
        return int(-offset)
    offset %= period
    tolerance = s.jobs[job, LATE_BY] if free or not s.jobs[job, ONCE] else s.jobs[job, FIRST_BY]
    if offset <= tolerance or (free and period - offset <= tolerance):
        return 0
    return int(period - offset)


@kernel
def _end(s: State, job: int) -> bool:
    """End an iteration. Returns True if the next one begins at once."""
    now = s.reg[NOW]
    s.jobs[job, COUNT] += 1
    if s.jobs[job, COUNT] == s.jobs[job, TARGET]:
        _record(s, job)
        s.jobs[job, ENDED] = now
        s.reg[DONE] += 1
        return False
    s.jobs[job, READY] = now
    delay = slot_delay(s, job)
    if delay:
        schedule(s, s.jobs[job, ROOT], now + delay)
        return False
    _begin(s, job)
    return True


@kernel
def _begin(s: State, job: int) -> None:
    """Begin an iteration. The iteration before ends now, with the time for which it waited for its slot."""
    now = s.reg[NOW]
    # None has begun before if the job has just been given its GPUs, for the first time or again.
    if s.jobs[job, BEGIN] >= 0:
        _record(s, job)
        s.jobs[job, HELD] += now - s.jobs[job, READY]
    s.jobs[job, BEGIN] = now
    s.jobs[job, READY] = -1
    s.jobs[job, ALIGNED] = 1
    for task in range(s.jobs[job, ROOT], s.jobs[job, SINK] + 1):
        s.tasks[task].waiting = s.tasks[task].indegree
    if job == s.reg[REFERENCE]:
        s.reg[BOUNDARY] = 1


@kernel
def _record(s: State, job: int) -> None:
    length = s.reg[NOW] - s.jobs[job, BEGIN]
    s.jobs[job, TOTAL] += length
    s.jobs[job, LONGEST] = max(s.jobs[job, LONGEST], length)
    if not len(s.log):
        return
    last = s.last_log[job]
    if last >= 0 and s.log[last, 1] == length:
        s.log[last, 2] += 1
        return
    entry = s.reg[LOGGED]
    s.log[entry, 0], s.log[entry, 1], s.log[entry, 2] = job, length, 1
    s.last_log[job] = entry
    s.reg[LOGGED] += 1
