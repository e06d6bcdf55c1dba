# SPDX-License-Identifier: Apache-2.0
"""Skip repeats: when an engine reaches a state in which it has been before, the time between repeats itself.

The state is taken when the reference loop begins an iteration. It holds the time to each event, the bits left
of each flow (to a thousandth of a bit), what each task still waits for, the tokens of each gate, and the
place of each scheduled loop in its period, all relative to now. The engine is deterministic and nothing
outside acts on it before `until`. So equal states have equal futures: m whole repeats are m times the counts
and sums of one, and every pending time moves by m periods. Brent's cycle detection finds the period with one
saved state. Unequal states usually differ in the first numbers, so a comparison costs little.
"""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.state import (
    ACTIVE,
    ALIGNED,
    BEGIN,
    COUNT,
    ENDED,
    EPOCH,
    FLOW,
    GATE,
    HEAP,
    HELD,
    LIMIT,
    LOGGED,
    NOW,
    PER_JOB,
    PER_TASK,
    PERIOD,
    READY,
    SAVED,
    SAVED_AT,
    SAVED_LOG,
    SHIFT,
    SKIPPED,
    STEPS,
    TARGET,
    TOTAL,
    State,
)


@kernel
def _job_value(s: State, job: int, which: int) -> int:
    now = s.reg[NOW]
    if which == 0:
        return int(now - s.jobs[job, BEGIN])
    if which == 1:
        return int(now - s.jobs[job, READY]) if s.jobs[job, READY] >= 0 else -1
    if s.jobs[job, PERIOD] <= 0:
        return 0
    if which == 2:
        return int(s.jobs[job, ALIGNED])
    offset = now - s.jobs[job, EPOCH] - s.jobs[job, SHIFT]
    return int(offset) if offset < 0 else int(offset % s.jobs[job, PERIOD])


@kernel
def _task_value(s: State, task: int, which: int) -> int:
    if which == 0:
        return int(s.tasks[task].waiting)
    if which == 1:
        place = s.place[task]
        return int(s.heap[place].key - s.reg[NOW]) if place >= 0 else -1
    if s.tasks[task].kind == GATE:
        return int(s.tasks[task].tokens)
    if s.tasks[task].kind != FLOW or s.tasks[task].active != ACTIVE:
        return 0
    if which == 2:
        return int(s.channels[s.tasks[task].channel].left * 1e3 + 0.5)
    return int(s.reg[NOW] - s.channels[s.tasks[task].channel].since)


@kernel
def _same(s: State) -> bool:
    at = 0
    for job in range(len(s.jobs)):
        for which in range(PER_JOB):
            if s.saved[at] != _job_value(s, job, which):
                return False
            at += 1
    for task in range(len(s.tasks)):
        for which in range(PER_TASK):
            if s.saved[at] != _task_value(s, task, which):
                return False
            at += 1
    return True


@kernel
def _save(s: State) -> None:
    at = 0
    for job in range(len(s.jobs)):
        for which in range(PER_JOB):
            s.saved[at] = _job_value(s, job, which)
            at += 1
        _save_counts(s, job)
    for task in range(len(s.tasks)):
        for which in range(PER_TASK):
            s.saved[at] = _task_value(s, task, which)
            at += 1
    for c in range(len(s.channels)):
        s.channels[c].saved_sent = s.channels[c].sent
        s.channels[c].saved_congested = s.channels[c].congested
    s.reg[SAVED] = 1
    s.reg[SAVED_AT] = s.reg[NOW]
    # From here on the log counts anew, so that what a repeat holds can be told apart.
    s.reg[SAVED_LOG] = s.reg[LOGGED]
    s.last_log[:] = -1


@kernel
def _save_counts(s: State, job: int) -> None:
    s.saved_counts[job, 0] = s.jobs[job, COUNT]
    s.saved_counts[job, 1] = s.jobs[job, TOTAL]
    s.saved_counts[job, 2] = s.jobs[job, HELD]


@kernel
def skip_repeats(s: State, until: int) -> None:
    """Skip all whole repeats that end before `until` and before the last iteration of any job."""
    if not s.reg[SAVED]:
        s.reg[STEPS] = 0
        s.reg[LIMIT] = 1
        _save(s)
        return
    if not _same(s):
        s.reg[STEPS] += 1
        if s.reg[STEPS] == s.reg[LIMIT]:
            s.reg[STEPS] = 0
            s.reg[LIMIT] *= 2
            _save(s)
        return
    period = s.reg[NOW] - s.reg[SAVED_AT]
    times = (until - s.reg[NOW]) // period
    for job in range(len(s.jobs)):
        done = s.jobs[job, COUNT] - s.saved_counts[job, 0]
        if done > 0:
            times = min(times, (s.jobs[job, TARGET] - 1 - s.jobs[job, COUNT]) // done)
    if times > 0:
        _shift(s, times, times * period)
    _save(s)


@kernel
def _shift(s: State, times: int, by: int) -> None:
    """Account for `times` repeats, which take `by` ps in all."""
    for i in range(s.reg[HEAP]):
        s.heap[i].key += by
    for c in range(len(s.channels)):
        s.channels[c].since += by
    for job in range(len(s.jobs)):
        if s.jobs[job, ENDED] >= 0:
            continue
        s.reg[SKIPPED] += times * (s.jobs[job, COUNT] - s.saved_counts[job, 0])
        s.jobs[job, COUNT] += times * (s.jobs[job, COUNT] - s.saved_counts[job, 0])
        s.jobs[job, TOTAL] += times * (s.jobs[job, TOTAL] - s.saved_counts[job, 1])
        s.jobs[job, HELD] += times * (s.jobs[job, HELD] - s.saved_counts[job, 2])
        s.jobs[job, BEGIN] += by
        if s.jobs[job, READY] >= 0:
            s.jobs[job, READY] += by
    for entry in range(s.reg[SAVED_LOG], s.reg[LOGGED]):
        s.log[entry, 2] += times * s.log[entry, 2]
    for c in range(len(s.channels)):
        s.channels[c].sent += times * (s.channels[c].sent - s.channels[c].saved_sent)
        s.channels[c].congested += times * (s.channels[c].congested - s.channels[c].saved_congested)
    s.reg[NOW] += by
