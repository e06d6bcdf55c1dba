# SPDX-License-Identifier: Apache-2.0
"""Engines let jobs run on links between two decisions of the planner: the compiled engine, and the choice of
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from controller.kernel import available
from sim.engine_arrays import allocate, binding_links
from sim.jobrun import JobRun, slot_delay
from sim.reference import ReferenceEngine
from sim.task_graph import FLOW
from sim.units import NEVER

if TYPE_CHECKING:
    from sim.kernels.state import State


class FlowEngine(Protocol):
    """Runs jobs on links from the time `now` on. Between calls only time passes."""

    runs: list[JobRun]

    @property
    def now(self) -> int:
        """The engine's time in ps."""

    @property
    def events(self) -> int:
        """Flows begun and ended, and timers fired, since the engine was made."""

    @property
    def skipped(self) -> int:
        """Iterations that were skipped as repeats."""

    def next_event(self) -> int:
        """The time of the next event, in ps; NEVER if there is none."""

    def advance(self, until: int) -> list[str]:
        """Let time pass up to `until` (ps), inclusive, or to the first end of a job; returns who ended."""

    def earliest_end(self, shortest: Sequence[int]) -> int:
        """No job ends before this time, in ps; `shortest` bounds each one's iterations from below."""

    def export(self) -> list[JobRun]:
        """Write the progress of every job back to its JobRun and return them."""

    def rates(self) -> dict[tuple[str, int], float]:
        """Each active flow's rate in bit/s, by (job, task)."""


EngineFactory = Callable[..., FlowEngine]


@cache
def best_engine() -> EngineFactory:
    """The compiled engine where Numba is installed, else the plain one. Both give the same results."""
    return KernelEngine if available() else ReferenceEngine


class KernelEngine:
    """The compiled engine (see `sim/kernels`). It keeps only links that can be short, under numbers of
    its own: a link that can carry all its channels at their best rates limits no channel.

    `capacity` (bit/s) and `marks` (1: a switch's port) are of all links, by number. `log` keeps how often
    each length of an iteration occurred. `skip` lets it skip repeats; `full` makes it re-solve everything
    at every event (to measure what local repair is worth).
    """

    def __init__(
        self,
        capacity: NDArray[np.float64],
        marks: NDArray[np.int8],
        runs: Sequence[JobRun],
        now: int,
        *,
        log: bool = False,
        skip: bool = True,
        full: bool = False,
    ) -> None:
        from sim.kernels import state as k
        from sim.kernels.allocate import repair
        from sim.kernels.flowlets import choose_ways, settle_loads
        from sim.kernels.flows import join, schedule, settle
        from sim.kernels.loop import run as run_kernel

        self.runs = list(runs)
        self._k, self._settle, self._run = k, settle, run_kernel
        links, paths, best = binding_links(capacity, self.runs)
        self._state = s = allocate(capacity, marks, self.runs, links, paths, best, now, log)
        s.reg[k.NOW], s.reg[k.FULL] = now, full
        # What links have sent belongs to the state that repeats are told by, so flowlets are not skipped.
        s.reg[k.PERIODIC] = skip and not s.reg[k.HALF_LIFE] and not any(run.jitter for run in self.runs)
        self._first_channel = np.cumsum([0, *(len(r.paths) for r in self.runs)])
        self._job_of_loop = np.repeat(np.arange(len(self.runs)), [len(r.loops) for r in self.runs])
        self._first_task = np.cumsum([0, *(len(r.program.kind) for r in self.runs)])
        for j, run in enumerate(self.runs):
            if run.ended >= 0:
                continue
            first, progress = int(self._first_task[j]), run.progress
            assert progress is not None
            for loop, root in zip(run.loops, run.program.loops.tolist(), strict=False):
                if loop.ended < 0 <= loop.ready:
                    at = max(now, loop.ready)
                    schedule(s, first + root, at + slot_delay(at, run.schedule, loop.aligned))
            for task in np.flatnonzero(progress.active):
                if run.program.kind[task] == FLOW:
                    join(s, first + int(task), progress.left[task])
                else:
                    s.tasks["active"][first + task] = k.ACTIVE
                    schedule(s, first + int(task), int(progress.key[task]))
        if s.reg[k.HALF_LIFE]:
            # The flows that send already have not paused.
            for flow in s.starters["id"][: s.reg[k.STARTERS]]:
                s.flowlets["since"][s.flowlets["owner"][flow]] = now
            choose_ways(s)
            repair(s)
            settle_loads(s)

    @property
    def now(self) -> int:
        """The engine's time in ps."""
        return int(self._state.reg[self._k.NOW])

    @property
    def events(self) -> int:
        """Flows begun and ended, and timers fired, since the engine was made."""
        k = self._k
        return int(self._state.reg[[k.STARTS, k.FINISHES, k.TIMERS]].sum())

    @property
    def skipped(self) -> int:
        """Iterations that were skipped as repeats."""
        return int(self._state.reg[self._k.SKIPPED])

    @property
    def state(self) -> State:
        """The kernel's arrays, to look at."""
        return self._state

    def next_event(self) -> int:
        """The time of the next event, in ps; NEVER if there is none."""
        s, k = self._state, self._k
        if s.reg[k.DIRTY]:
            # Rates are not known before the first step; whatever comes, it is not before now.
            return self.now
        return int(s.heap["key"][0]) if s.reg[k.HEAP] else NEVER

    def advance(self, until: int) -> list[str]:
        """Let time pass up to `until` (ps), inclusive, or to the first end of a job; returns who ended."""
        s, k = self._state, self._k
        running = self._loops_running()
        while True:
            s.reg[k.DONE] = 0
            # The statuses of `loop.run`: 2 asks to empty the log and go on.
            while self._run(s, until) == 2:
                self._empty_log()
            if not s.reg[k.DONE]:
                return []
            # Loops have ended. A job ends with its last loop.
            over = np.flatnonzero((running > 0) & (self._loops_running() == 0))
            if len(over):
                return [self.runs[j].name for j in over]

    def _loops_running(self) -> NDArray[np.int64]:
        """How many loops of each job have not ended, shape (jobs,)."""
        alive = self._state.jobs[:, self._k.ENDED] < 0
        return np.bincount(self._job_of_loop[alive], minlength=len(self.runs))

    def earliest_end(self, shortest: Sequence[int]) -> int:
        """No job ends before this time, in ps; `shortest` bounds each one's iterations from below."""
        s, k = self._state, self._k
        alive = s.jobs[:, k.ENDED] < 0
        if not alive.any():
            return NEVER
        left = np.maximum(s.jobs[:, k.TARGET] - s.jobs[:, k.COUNT] - 1, 0)
        whole = left * np.asarray(shortest, np.int64)[self._job_of_loop]
        return max(self.now + int(whole[alive].min()), self.next_event())

    def export(self) -> list[JobRun]:
        """Write the progress of every job back to its JobRun and return them."""
        s, k = self._state, self._k
        self._empty_log()
        for task in np.flatnonzero(s.tasks["active"]):
            if s.tasks["kind"][task] == FLOW:
                self._settle(s, int(s.tasks["channel"][task]))
        for row, loop in zip(s.jobs, (loop for run in self.runs for loop in run.loops), strict=True):
            values: dict[str, int] = {
                name: int(row[column])
                for name, column in (
                    ("count", k.COUNT),
                    ("begin", k.BEGIN),
                    ("total", k.TOTAL),
                    ("slot_wait", k.HELD),
                    ("ready", k.READY),
                    ("longest", k.LONGEST),
                    ("ended", k.ENDED),
                )
            }
            for name, value in values.items():
                setattr(loop, name, value)
            loop.aligned = bool(row[k.ALIGNED])
        for j, run in enumerate(self.runs):
            run.gather()
            tasks = slice(*self._first_task[j : j + 2])
            progress = run.progress
            assert progress is not None
            progress.waiting[:] = s.tasks["waiting"][tasks]
            progress.tokens[:] = s.tasks["tokens"][tasks]
            progress.active[:] = s.tasks["active"][tasks]
            sending = (s.tasks["kind"][tasks] == FLOW) & (progress.active == 1)
            progress.left[sending] = s.channels["left"][s.tasks["channel"][tasks][sending]]
            place = s.place[tasks]
            progress.key[:] = np.where(place >= 0, s.heap["key"][np.maximum(place, 0)], NEVER)
            channels = slice(*self._first_channel[j : j + 2])
            run.sent[:] = s.channels["sent"][channels]
            run.congested[:] = s.channels["congested"][channels]
            if run.flowlets is not None:
                run.flowlets.way[:] = s.flowlets["way"][channels]
                run.flowlets.since[:] = s.flowlets["since"][channels]
                for c, ways in enumerate(run.ways):
                    first = int(s.first_way[self._first_channel[j] + c])
                    run.flowlets.carried[c, : len(ways)] = s.carried[first : first + len(ways)]
        return self.runs

    def rates(self) -> dict[tuple[str, int], float]:
        """Each active flow's rate in bit/s, by (job, task)."""
        s, k = self._state, self._k
        loop = s.tasks["job"]
        return {
            (self.runs[self._job_of_loop[loop[t]]].name, int(t - s.jobs[loop[t], k.FIRST])): float(
                s.flows["rate"][s.tasks["channel"][t]]
            )
            for t in np.flatnonzero(s.tasks["active"])
            if s.tasks["kind"][t] == FLOW
        }

    def _empty_log(self) -> None:
        s, k = self._state, self._k
        for loop, length, times in s.log[: s.reg[k.LOGGED]].tolist():
            lengths = self.runs[self._job_of_loop[loop]].lengths
            lengths[length] = lengths.get(length, 0) + times
        s.reg[k.LOGGED] = s.reg[k.SAVED] = s.reg[k.SAVED_LOG] = 0
        s.last_log[:] = -1
