# SPDX-License-Identifier: Apache-2.0
"""The past that the REST API shows, on a running controller: history, log, and what slowed a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

import numpy as np

from controller.live.blame import Blamed, Measured, blamed
from controller.live.core import Core
from controller.live.event_log import LogEntry
from controller.live.history import (
    NO_LOAD,
    NO_MARKS,
    Bucket,
    Column,
    job_column,
    known_figures,
    link_column,
)
from controller.live.plan_reasons import PlanReasons
from controller.live.recorder import Recorder
from controller.northbound.history_routes import (
    BlamedOut,
    BlameOut,
    EventKind,
    EventOut,
    EventsOut,
    HistoryKind,
    LinkColumnsOut,
    MeasuredPastOut,
    MomentOut,
    PastAlarmOut,
    PastJobOut,
    PastPlanInForceOut,
    PastSpan,
    SeriesOut,
)
from controller.northbound.paging import PageStart, page
from controller.northbound.problems import OperationError
from controller.northbound.stream_state import sending_ends

_DAY_NS = 86_400_000_000_000
_NS_PER_MS = 1e6


class RunningHistory:
    """The `HistoryOperations` of a running controller. Use it on the controller's event loop."""

    def __init__(self, core: Core, recorder: Recorder, reasons: PlanReasons) -> None:
        self._core = core
        self._recorder = recorder
        self._reasons = reasons
        # For each direction of the event stream, its number in the history.
        numbers = core.topology.directions
        self._order = np.array([numbers[end] for end in sending_ends(core.topology)], dtype=np.intp)

    async def history(
        self,
        kind: HistoryKind,
        subjects: Sequence[str] | None,
        span: PastSpan,
        points: int,
        start: PageStart,
        most: int,
    ) -> MeasuredPastOut:
        """A page of subjects; `subjects` None: all. Raises OperationError."""
        recorder, now_ns = self._recorder, self._core.now_ns
        to_ns = now_ns + 1 if span.to_ns is None else span.to_ns
        from_ns = max(0, now_ns - _DAY_NS) if span.from_ns is None else span.from_ns
        recorder.history.advance(now_ns)
        step_ns, buckets = recorder.history.buckets(from_ns, to_ns)
        jobs = {job for bucket in buckets for job in bucket.iterations}
        known = jobs | {job.name for job in self._core.registry.jobs}
        if kind != "iterations":
            known = set(recorder.directions)
        for subject in subjects or ():
            if subject not in known:
                raise OperationError(404, f"no {kind} of {subject!r}; legal: {_some(known)}")
        names, after = page(sorted(known if subjects is None else set(subjects)), start, most)
        directions = [recorder.directions[name] for name in names] if kind != "iterations" else []
        return await asyncio.to_thread(_shown, kind, names, directions, step_ns, buckets, points, after)

    async def moment(self, time_ns: int) -> MomentOut:
        """The fabric at a time. Raises OperationError."""
        recorder = self._recorder
        recorder.history.advance(self._core.now_ns)
        step_ns, buckets = recorder.history.buckets(time_ns, time_ns + 1)
        bucket = next((b for b in buckets if b.start_ns <= time_ns < b.start_ns + step_ns), None)
        if bucket is None:
            raise OperationError(404, "nothing was measured at that time; legal: times of /history")
        load: tuple[float | None, ...] = (None,) * len(self._order)
        marks = load
        if bucket.links is not None:
            load = known_figures(bucket.links.mean[self._order], NO_LOAD)
            marks = known_figures(bucket.links.marks[self._order], NO_MARKS)
        state = recorder.states.at(time_ns)
        plan = None
        if state is not None and state.version is not None:
            made_ns, reason = self._reasons.of(state.version)
            plan = PastPlanInForceOut(
                version=state.version, policy=state.policy, made_ns=made_ns, reason=reason
            )
        return MomentOut(
            time_ns=bucket.start_ns,
            step_ns=step_ns,
            links=LinkColumnsOut(load=load, marks=marks),
            jobs={job: PastJobOut(mean_ms=mean) for job, (_, mean, _, _) in bucket.iterations.items()},
            present=None if state is None else state.jobs,
            plan=plan,
            down=None if state is None else state.down,
            alarms=None
            if state is None
            else tuple(
                PastAlarmOut(name=alarm.name, since_ns=alarm.since_ns, text=alarm.text)
                for alarm in state.alarms
            ),
        )

    async def log(
        self,
        kinds: Sequence[EventKind] | None,
        subject: str | None,
        span: PastSpan,
        start: PageStart,
        most: int,
    ) -> EventsOut:
        """A page of the log. Raises OperationError."""
        before = start.number()

        def wanted(entry: LogEntry) -> bool:
            return (
                (before is None or entry.number < before)
                and (kinds is None or entry.kind in kinds)
                and (subject is None or entry.subject == subject)
                and (span.from_ns is None or entry.time_ns >= span.from_ns)
                and (span.to_ns is None or entry.time_ns < span.to_ns)
            )

        found = list(islice(filter(wanted, self._recorder.log.newest_first()), most + 1))
        events = tuple(
            EventOut.model_validate(
                {"id": e.number, "time_ns": e.time_ns, "kind": e.kind, "subject": e.subject, "text": e.text}
            )
            for e in found[:most]
        )
        after = start.cursor_after(str(found[most - 1].number)) if len(found) > most else None
        return EventsOut(time_ns=self._core.now_ns, events=events, next=after)

    async def blame(self, job: str) -> BlameOut:
        """What slowed a job's last iterations. Raises OperationError."""
        core, recorder = self._core, self._recorder
        jobs = {known.name: known for known in core.registry.jobs}
        if job not in jobs:
            raise OperationError(404, f"no job {job!r}; legal: {_some(set(jobs))}")
        if core.plan is None:
            raise OperationError(404, "no plan yet: the first one is made when all jobs are known")
        measured = Measured(
            core.topology,
            core.plan,
            jobs,
            recorder.iterations(),
            tuple(recorder.samples),
            recorder.directions,
        )
        found = await asyncio.to_thread(blamed, measured, job)
        return BlameOut(job=job, time_ns=core.now_ns, iterations=tuple(map(_blamed, found)))


def _shown(
    kind: HistoryKind,
    names: Sequence[str],
    directions: Sequence[int],
    step_ns: int,
    buckets: Sequence[Bucket],
    points: int,
    after: str | None,
) -> MeasuredPastOut:
    together = max(1, -(-len(buckets) // points))
    series = []
    for place, name in enumerate(names):
        if kind == "iterations":
            column = job_column(buckets, name)
        else:
            column = link_column(buckets, directions[place], marks=kind == "marks")
        mean, low, high = _merged(column, together)
        series.append(SeriesOut(subject=name, mean=mean, low=low, high=high))
    return MeasuredPastOut(
        kind=kind,
        step_ns=step_ns * together,
        times_ns=tuple(bucket.start_ns for bucket in buckets[::together]),
        series=tuple(series),
        next=after,
    )


def _merged(
    column: Column, together: int
) -> tuple[tuple[float | None, ...], tuple[float | None, ...], tuple[float | None, ...]]:
    """So many points together as one: the mean of means, the lowest, the highest."""

    def parts(values: Sequence[float | None]) -> list[list[float]]:
        return [
            [v for v in values[at : at + together] if v is not None] for at in range(0, len(values), together)
        ]

    mean = tuple(sum(part) / len(part) if part else None for part in parts(column.mean))
    low = tuple(min(part, default=None) for part in parts(column.low))
    high = tuple(max(part, default=None) for part in parts(column.high))
    return mean, low, high


def _blamed(found: Blamed) -> BlamedOut:
    it = found.iteration
    return BlamedOut(
        index=it.index,
        ended_ns=it.end_ns,
        took_ms=it.length_ns / _NS_PER_MS,
        usual_ms=found.usual_ns / _NS_PER_MS,
        slower_ms=(it.length_ns - found.usual_ns) / _NS_PER_MS,
        host=it.host,
        link=found.link,
        other_job=found.other,
        from_ns=found.moment_ns[0] if found.moment_ns else None,
        to_ns=found.moment_ns[1] if found.moment_ns else None,
        load=found.load,
        marks=found.marks,
        why=found.why,
    )


def _some(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "") or "none yet"
