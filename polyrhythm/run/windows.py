# SPDX-License-Identifier: Apache-2.0
"""The windows of fabric time over which sessions are compared: the same jobs are present in all. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyrhythm.fabric.presence import Presence
from polyrhythm.run.figures import JobFigures, MeasuredIteration, gpu_utilisation

STARVED = 3
"""Times the mean iteration. Chosen: no jitter and no fair share makes an iteration that long."""


@dataclass(frozen=True, slots=True)
class JobIteration:
    """One iteration of a whole job. It ends when its last worker begins the next one.

    `index` counts from the first iteration that counts. `ecn_marks` and `retransmits` are sums over workers,
    `compute_ns` is a mean.
    """

    index: int
    start_ns: int
    end_ns: int
    ecn_marks: int
    retransmits: int
    compute_ns: float


@dataclass(frozen=True, slots=True)
class JobTimes:
    """A job in a session: when it was present, its finished iterations in order, and when it was warm.

    `left_ns` None: it was there at the end. `warm_ns`: the warm-up, which follows the profiling, is over;
    None: it never was.
    """

    start_ns: int
    left_ns: int | None
    iterations: tuple[JobIteration, ...]
    warm_ns: int | None


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """The jobs of a session by name, and its end. Times are in ns from the start of the first job on."""

    jobs: Mapping[str, JobTimes]
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which the same jobs are present in every compared session.

    `end_ns` None: until the end of each session. `warm`: all jobs had been profiled and had warmed up.
    """

    start_ns: int
    end_ns: int | None
    jobs: frozenset[str]
    warm: bool

    def end_in(self, session: SessionTimes) -> int:
        """The end of the window in one of the sessions."""
        return session.ended_ns if self.end_ns is None else min(self.end_ns, session.ended_ns)


def session_times(
    records: Mapping[str, Sequence[MeasuredIteration]],
    presence: Mapping[str, Presence],
    ended_ns: int,
    warmup: int,
) -> SessionTimes:
    """What the workers of each job recorded, put together, in times from the start of the first job on.

    `warmup` is the number of warm-up iterations of a job.
    """
    origin_ns = min(own.start_ns for own in presence.values())
    return SessionTimes(
        {name: _job_times(own, presence[name], origin_ns, warmup) for name, own in records.items()},
        ended_ns - origin_ns,
    )


def _job_times(
    records: Sequence[MeasuredIteration], presence: Presence, origin_ns: int, warmup: int
) -> JobTimes:
    by_index: dict[int, list[MeasuredIteration]] = {}
    for record in records:
        by_index.setdefault(record.index, []).append(record)
    workers = len({record.rank for record in records})
    iterations: list[JobIteration] = []
    begun_ns = start_ns = presence.start_ns - origin_ns
    left_ns = None if presence.left_ns is None else presence.left_ns - origin_ns
    for index in sorted(by_index):
        own = by_index[index]
        if len(own) < workers:
            break
        end_ns = max(record.end_ns for record in own) - origin_ns
        marks, resent = sum(r.ecn_marks for r in own), sum(r.retransmits for r in own)
        compute_ns = sum(r.compute_ns for r in own) / workers
        iterations.append(JobIteration(index, start_ns, end_ns, marks, resent, compute_ns))
        start_ns = end_ns
    if presence.first is None:
        return JobTimes(begun_ns, left_ns, tuple(iterations), None)
    before = {iteration.index + 1: iteration.end_ns for iteration in iterations}
    before.setdefault(min(by_index, default=0), begun_ns)
    return JobTimes(begun_ns, left_ns, tuple(iterations), before.get(warmup))


def common_windows(sessions: Sequence[SessionTimes]) -> tuple[Window, ...]:
    """The windows in which the same jobs are present in all sessions, and warm in all of them.

    If the windows hold no iteration of some job in some session, warm-up and profiling are not left out: then
    the windows are all times in which the same jobs are present.
    """
    strict = _windows(sessions, warm=True)
    names = sessions[0].jobs.keys()
    if all(inside(session, strict, name) for session in sessions for name in names):
        return strict
    return _windows(sessions, warm=False)


def inside(session: SessionTimes, windows: Sequence[Window], job: str) -> tuple[JobIteration, ...]:
    """The iterations of a job that lie in one of the windows as a whole."""
    return tuple(
        iteration
        for window in windows
        if job in window.jobs
        for iteration in session.jobs[job].iterations
        if window.start_ns <= iteration.start_ns and iteration.end_ns <= window.end_in(session)
    )


def figures_in(session: SessionTimes, windows: Sequence[Window], job: str) -> JobFigures:
    """The figures of a job over its iterations in the windows.

    Without such iterations they are over all its iterations. The last iteration, which the session or the
    job's end cut off, counts with the time that it lasted if that is more than `STARVED` times the mean, or
    if there is no other: a job that starves is not left out.
    """
    times = session.jobs[job]
    own = inside(session, windows, job) or times.iterations
    lengths = [(i.end_ns - i.start_ns) / 1e6 for i in own]
    end_ns = session.ended_ns if times.left_ns is None else times.left_ns
    begun_ns = times.iterations[-1].end_ns if times.iterations else times.start_ns
    unfinished = (end_ns - begun_ns) / 1e6
    to_the_end = any(window.end_ns is None and job in window.jobs for window in windows)
    if not lengths or (to_the_end and unfinished > STARVED * sum(lengths) / len(lengths)):
        lengths.append(unfinished)
    return JobFigures(
        iterations_ms=tuple(lengths),
        ecn_marks_per_iteration=sum(i.ecn_marks for i in own) / len(lengths),
        retransmits_per_iteration=sum(i.retransmits for i in own) / len(lengths),
    )


def utilisation_in(session: SessionTimes, windows: Sequence[Window], gpus: Mapping[str, int]) -> float:
    """The GPU utilisation of a session over the windows, 0 to 1: the mean over the GPU time in them."""
    busy = allocated = 0.0
    for window in windows:
        jobs = {name: figures_in(session, [window], name) for name in window.jobs}
        compute = {name: _compute_ms(session, window, name) for name in window.jobs}
        weight = sum(gpus[name] for name in jobs) * (window.end_in(session) - window.start_ns)
        busy += weight * gpu_utilisation(gpus, compute, jobs)
        allocated += weight
    return busy / allocated


def _compute_ms(session: SessionTimes, window: Window, job: str) -> float:
    own = inside(session, [window], job) or session.jobs[job].iterations
    return sum(i.compute_ns for i in own) / len(own) / 1e6 if own else 0.0


def _windows(sessions: Sequence[SessionTimes], *, warm: bool) -> tuple[Window, ...]:
    edges = sorted(
        {0}
        | {
            edge
            for session in sessions
            for job in session.jobs.values()
            for edge in (job.start_ns, job.left_ns)
            if edge is not None
        }
    )
    found: list[Window] = []
    for start_ns, end_ns in zip(edges, [*edges[1:], None], strict=True):
        sets = {frozenset(n for n, job in s.jobs.items() if _present(job, start_ns)) for s in sessions}
        if len(sets) > 1:
            continue
        (jobs,) = sets
        if warm:
            times = [session.jobs[name].warm_ns for session in sessions for name in jobs]
            known = [time for time in times if time is not None]
            if len(known) < len(times):
                continue
            window = Window(max([start_ns, *known]), end_ns, jobs, warm=True)
        else:
            window = Window(start_ns, end_ns, jobs, warm=False)
        if jobs and all(window.start_ns < window.end_in(session) for session in sessions):
            found.append(window)
    return tuple(found)


def _present(job: JobTimes, at_ns: int) -> bool:
    return job.start_ns <= at_ns and (job.left_ns is None or at_ns < job.left_ns)
