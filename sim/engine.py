# SPDX-License-Identifier: Apache-2.0
"""Engines let jobs run on links between two decisions of the planner: the compiled engine, and the choice of
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from controller.kernel import available
from controller.model import REALIGN
from sim.jobrun import JobRun, slot_delay
from sim.reference import ReferenceEngine
from sim.task_graph import FLOW
from sim.units import NEVER

if TYPE_CHECKING:
    from sim.kernels.state import State

_LOG_ENTRIES = 4096
_Crossed = tuple[tuple[int, float], ...]
"""Links, each with the portion of a channel's bits that crosses it."""


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
        from sim.kernels.flows import join, schedule, settle
        from sim.kernels.loop import run as run_kernel

        self.runs = list(runs)
        self._k, self._settle, self._run = k, settle, run_kernel
        links, paths, best = _binding(capacity, self.runs)
        self._state = s = _allocate(capacity, marks, self.runs, links, paths, best, log)
        s.reg[k.NOW], s.reg[k.FULL] = now, full
        s.reg[k.PERIODIC] = skip and not any(run.jitter for run in self.runs)
        self._first_channel = np.cumsum([0, *(len(r.paths) for r in self.runs)])
        for j, run in enumerate(self.runs):
            if run.ended >= 0:
                continue
            root, progress = int(s.jobs[j, k.ROOT]), run.progress
            assert progress is not None
            if run.ready >= 0:
                at = max(now, run.ready)
                schedule(s, root, at + slot_delay(at, run.schedule, run.aligned))
            for task in np.flatnonzero(progress.active):
                if run.program.kind[task] == FLOW:
                    join(s, root + int(task), progress.left[task])
                else:
                    s.tasks["active"][root + task] = k.ACTIVE
                    schedule(s, root + int(task), int(progress.key[task]))

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
        s.reg[k.DONE] = 0
        before = s.jobs[:, k.ENDED].copy()
        # The statuses of `loop.run`: 2 asks to empty the log and go on.
        while self._run(s, until) == 2:
            self._empty_log()
        if not s.reg[k.DONE]:
            return []
        return [self.runs[j].name for j in np.flatnonzero(s.jobs[:, k.ENDED] != before)]

    def earliest_end(self, shortest: Sequence[int]) -> int:
        """No job ends before this time, in ps; `shortest` bounds each one's iterations from below."""
        s, k = self._state, self._k
        alive = s.jobs[:, k.ENDED] < 0
        if not alive.any():
            return NEVER
        whole = np.maximum(s.jobs[:, k.TARGET] - s.jobs[:, k.COUNT] - 1, 0) * np.asarray(shortest, np.int64)
        return max(self.now + int(whole[alive].min()), self.next_event())

    def export(self) -> list[JobRun]:
        """Write the progress of every job back to its JobRun and return them."""
        s, k = self._state, self._k
        self._empty_log()
        for task in np.flatnonzero(s.tasks["active"]):
            if s.tasks["kind"][task] == FLOW:
                self._settle(s, int(s.tasks["channel"][task]))
        for j, run in enumerate(self.runs):
            row: dict[str, int] = {
                name: int(s.jobs[j, column])
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
            for name, value in row.items():
                setattr(run, name, value)
            run.aligned = bool(s.jobs[j, k.ALIGNED])
            tasks = slice(int(s.jobs[j, k.ROOT]), int(s.jobs[j, k.SINK]) + 1)
            progress = run.progress
            assert progress is not None
            progress.waiting[:] = s.tasks["waiting"][tasks]
            progress.active[:] = s.tasks["active"][tasks]
            sending = (s.tasks["kind"][tasks] == FLOW) & (progress.active == 1)
            progress.left[sending] = s.channels["left"][s.tasks["channel"][tasks][sending]]
            place = s.place[tasks]
            progress.key[:] = np.where(place >= 0, s.heap["key"][np.maximum(place, 0)], NEVER)
            channels = slice(*self._first_channel[j : j + 2])
            run.sent[:] = s.channels["sent"][channels]
            run.congested[:] = s.channels["congested"][channels]
        return self.runs

    def rates(self) -> dict[tuple[str, int], float]:
        """Each active flow's rate in bit/s, by (job, task)."""
        s, k = self._state, self._k
        job = s.tasks["job"]
        return {
            (self.runs[job[t]].name, int(t - s.jobs[job[t], k.ROOT])): float(
                s.flows["rate"][s.tasks["channel"][t]]
            )
            for t in np.flatnonzero(s.tasks["active"])
            if s.tasks["kind"][t] == FLOW
        }

    def _empty_log(self) -> None:
        s, k = self._state, self._k
        for job, length, times in s.log[: s.reg[k.LOGGED]].tolist():
            lengths = self.runs[job].lengths
            lengths[length] = lengths.get(length, 0) + times
        s.reg[k.LOGGED] = s.reg[k.SAVED] = s.reg[k.SAVED_LOG] = 0
        s.last_log[:] = -1


def _binding(
    capacity: NDArray[np.float64], runs: Sequence[JobRun]
) -> tuple[NDArray[np.int64], list[_Crossed], NDArray[np.float64]]:
    """The links that can be short, which of them each channel crosses, and its best rate in bit/s."""
    limits = np.concatenate([np.zeros(0), *(r.program.channel_limit for r in runs)])
    crossed = [tuple(run.crossed(c)) for run in runs for c in range(len(run.paths))]
    ways = [path is not None for run in runs for path in run.paths]
    best = np.array(
        [
            min([limit, *(capacity[link] / portion for link, portion in some)]) if way else 0.0
            for some, way, limit in zip(crossed, ways, limits, strict=True)
        ]
    ).reshape(len(crossed))
    load: dict[int, float] = {}
    for some, rate in zip(crossed, best, strict=True):
        for link, portion in some:
            load[link] = load.get(link, 0.0) + rate * portion
    binding = [link for link, rate in load.items() if rate > capacity[link] * (1 + 1e-9)]
    number = {link: i for i, link in enumerate(sorted(binding))}
    paths = [tuple((number[k], portion) for k, portion in some if k in number) for some in crossed]
    return np.array(sorted(binding), dtype=np.int64), paths, best


def _allocate(
    capacity: NDArray[np.float64],
    marks: NDArray[np.int8],
    runs: Sequence[JobRun],
    links: NDArray[np.int64],
    paths: Sequence[_Crossed],
    best: NDArray[np.float64],
    log: bool,
) -> State:
    """The kernel's arrays for these jobs."""
    from sim.kernels import state as k

    programs = [r.program for r in runs]
    sizes = np.array([len(p.kind) for p in programs], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    first_channel = np.cumsum([0, *(len(r.paths) for r in runs)])
    t, n, j, m = int(first[-1]), len(paths), len(runs), len(links)
    hops = max([1, *map(len, paths)])
    path = np.full((n, hops), -1, dtype=np.int32)
    portion = np.ones((n, hops))
    for i, p in enumerate(paths):
        path[i, : len(p)] = [link for link, _ in p]
        portion[i, : len(p)] = [part for _, part in p]
    jobs = np.zeros((j, k.JOB_COLUMNS), dtype=np.int64)
    # Only the classes that occur, for every event looks at each.
    classes = sorted({run.klass for run in runs})
    for i, run in enumerate(runs):
        jobs[i, k.ROOT], jobs[i, k.SINK] = first[i], first[i + 1] - 1
        for column, value in (
            (k.COUNT, run.count),
            (k.TARGET, run.iterations),
            (k.BEGIN, run.begin),
            (k.TOTAL, run.total),
            (k.EPOCH, run.schedule.epoch),
            (k.SHIFT, run.schedule.shift),
            (k.PERIOD, run.schedule.period),
            (k.READY, run.ready),
            (k.HELD, run.slot_wait),
            (k.LONGEST, run.longest),
            (k.ENDED, run.ended),
            (k.JITTER, run.jitter),
            (k.SALT, run.salt),
            (k.ONCE, run.schedule.once),
            (k.LATE_BY, int(run.schedule.late * run.schedule.period)),
            (k.FIRST_BY, int(min(run.schedule.late, REALIGN) * run.schedule.period)),
            (k.ALIGNED, run.aligned),
        ):
            jobs[i, column] = value

    def joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    channel = joined([p.channel + c for p, c in zip(programs, first_channel, strict=False)], np.int32)
    kind = joined([p.kind for p in programs], np.int8)
    limit = joined([p.limit for p in programs], np.float64)
    flows = kind == FLOW
    limit[flows] = np.minimum(limit[flows], best[channel[flows]])
    edges = np.cumsum([0, *(len(p.succ) for p in programs)])
    succ_at = joined([p.succ_at[:-1] + e for p, e in zip(programs, edges, strict=False)], np.int64)

    reg = np.zeros(k.REGISTERS, dtype=np.int64)
    reg[k.HOPS], reg[k.CLASSES_IN] = hops, len(classes)
    reg[k.REFERENCE] = _reference(runs)
    tasks = np.zeros(t, dtype=k.TASK)
    tasks["kind"], tasks["limit"], tasks["channel"] = kind, limit, channel
    tasks["job"] = np.repeat(np.arange(j, dtype=np.int32), sizes)
    tasks["bits"] = joined([p.bits for p in programs], np.float64)
    tasks["span"] = joined([p.span for p in programs], np.int64)
    tasks["indegree"] = joined([p.indegree for p in programs], np.int32)
    tasks["waiting"] = joined([r.progress.waiting for r in runs if r.progress], np.int32)
    tasks["before"] = joined([p.before for p in programs], np.float64)
    table = np.zeros(m, dtype=k.LINK)
    table["cap"], table["marks"] = capacity[links], marks[links]
    table["full_at"] = len(classes)
    cells = np.zeros(m * len(classes), dtype=k.CELL)
    cells["solved"] = -1.0
    channels = np.zeros(n, dtype=k.CHANNEL)
    channels["sent"] = joined([r.sent for r in runs], np.float64)
    channels["congested"] = joined([r.congested for r in runs], np.float64)
    channels["whole"] = joined([p.whole for p in programs], np.float64)
    channels["klass"] = np.repeat(
        [classes.index(run.klass) for run in runs], [len(run.paths) for run in runs]
    )
    crossed = (path.astype(np.int64) * len(classes) + channels["klass"][:, None])[path >= 0]
    cells["first"] = np.cumsum(np.bincount(crossed, minlength=len(cells))) - np.bincount(
        crossed, minlength=len(cells)
    )
    flows_now = np.zeros(n, dtype=k.FLOWING)
    flows_now["task"], flows_now["bottleneck"] = -1, -2
    return k.State(
        reg=reg,
        links=table,
        cells=cells,
        tasks=tasks,
        slots=np.zeros(len(crossed), dtype=k.SLOT),
        seat=np.full(n * hops, -1, dtype=np.int32),
        flows=flows_now,
        channels=channels,
        heap=np.zeros(t, dtype=k.TIMED),
        place=np.full(t, -1, dtype=np.int32),
        levels=np.zeros(m, dtype=k.LEVEL),
        rank=np.full(m, -1, dtype=np.int32),
        weights=weight_table(runs),
        jobs=jobs,
        log=np.zeros((max(_LOG_ENTRIES, 8 * j) if log else 0, 3), dtype=np.int64),
        last_log=np.full(j, -1, dtype=np.int32),
        succ_at=np.append(succ_at, edges[-1]),
        succ=joined([p.succ + f for p, f in zip(programs, first, strict=False)], np.int32),
        path=path.reshape(-1),
        portion=portion.reshape(-1),
        saved=np.zeros(k.PER_JOB * j + k.PER_TASK * t, dtype=np.int64),
        saved_counts=np.zeros((j, 3), dtype=np.int64),
    )


def weight_table(runs: Sequence[JobRun]) -> NDArray[np.float64]:
    """The weights of each job by steps of equal parts of an iteration's bytes, shape (jobs, steps); all
    ones for a job without. No steps if none has any.

    Raises:
        ValueError: two jobs have different numbers of steps, or a weight is not positive.
    """
    steps = max((len(run.weights) for run in runs), default=0)
    for run in runs:
        if len(run.weights) not in (0, steps) or not all(0 < w < np.inf for w in run.weights):
            raise ValueError(f"job {run.name}: {steps} positive weights are needed, as the other jobs have")
    return np.array([run.weights or (1.0,) * steps for run in runs], np.float64).reshape(len(runs), steps)


def _reference(runs: Sequence[JobRun]) -> int:
    """The job whose iterations mark the points where repeats are looked for: the job with the longest
    compute.
    """
    alive = [i for i, run in enumerate(runs) if run.ended < 0]
    return max(alive, key=lambda i: int(runs[i].program.span.sum()), default=0)
