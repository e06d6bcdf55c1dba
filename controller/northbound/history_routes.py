# SPDX-License-Identifier: Apache-2.0
"""REST routes of the past: what was measured in the last 24 hours, what happened, and what slowed a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Query
from pydantic import Field

from controller.northbound import schema
from controller.northbound.fabric_routes import Name
from controller.northbound.paging import USUAL, Most, PageStart, Start
from controller.northbound.problems import leading, problems

HistoryKind = Literal["iterations", "loads", "marks"]
EventKind = Literal["job_arrived", "job_left", "plan", "switch_up", "switch_down", "link_up", "link_down"]
_ERRORS = problems(_404="No such subject or cursor.", _503="This controller does not lead.")
_TIME = Query(ge=0, le=1 << 62, description="Fabric time in ns.")
From = Annotated[int | None, _TIME]
To = Annotated[int | None, _TIME]
# Chosen: a chart of a page has fewer pixels.
MOST_POINTS = 1_000


class SeriesOut(schema.Out):
    """One subject. The lists are as long as `times_ns`; null: nothing was measured then."""

    subject: str
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


class MeasuredPastOut(schema.Out):
    """A page of the subjects, sorted by name, over the same times."""

    kind: HistoryKind
    step_ns: int = Field(description="Each point stands for so much time from its time on.")
    times_ns: tuple[int, ...]
    series: tuple[SeriesOut, ...]
    next: str | None = Field(description="Cursor of the next page; null: this is the last.")


class LinkColumnsOut(schema.Out):
    """The directions of cables, in the order of the keyframe of the event stream; null: not measured."""

    load: tuple[float | None, ...] = Field(description="Per cent.")
    marks: tuple[float | None, ...] = Field(description="ECN-marked packets a second.")


class PastJobOut(schema.Out):
    """A job whose iterations ended in the moment."""

    mean_ms: float


class PastPlanInForceOut(schema.Out):
    """The plan that was in force."""

    version: int
    policy: str
    made_ns: int | None = Field(description="When it came into force; null: no longer known.")
    reason: str = Field(description="What had changed since the plan before; or that it is not known.")


class PastAlarmOut(schema.Out):
    """An alarm that was on."""

    name: str = Field(description="As `name` of an alarm that stands.")
    since_ns: int
    text: str


class MomentOut(schema.Out):
    """The fabric at a time of the past: what was measured from `time_ns` on, for `step_ns`. `present`, `down`
    and `alarms` are null if the state of that time is no longer known."""

    time_ns: int
    step_ns: int
    links: LinkColumnsOut
    jobs: dict[str, PastJobOut]
    present: tuple[str, ...] | None = Field(description="The jobs on the fabric.")
    plan: PastPlanInForceOut | None
    down: tuple[str, ...] | None = Field(description="Cables and switches that did not work.")
    alarms: tuple[PastAlarmOut, ...] | None


class EventOut(schema.Out):
    """Something that happened."""

    id: int
    time_ns: int
    kind: EventKind
    subject: str = Field(description="The job, plan, switch or cable.")
    text: str


class EventsOut(schema.Out):
    """A page of the log, the newest first."""

    time_ns: schema.Time
    events: tuple[EventOut, ...]
    next: str | None = Field(description="Cursor of the next page; null: this is the last.")


class BlamedOut(schema.Out):
    """A slow iteration, and what slowed it."""

    index: int
    ended_ns: int
    took_ms: float
    usual_ms: float = Field(description="The median of the job's last iterations.")
    slower_ms: float
    host: str = Field(description="The host of its slowest worker.")
    link: str | None = Field(
        description='The direction of a cable that was fullest, as "leaf1>spine2"; null: none was full.'
    )
    other_job: str | None = Field(description="The job that communicated on that link; null: none did.")
    from_ns: int | None = Field(description="The moment: the poll interval in which the link was fullest.")
    to_ns: int | None
    load: int | None = Field(description="Load of the link in that moment in per cent.")
    marks: int | None = Field(description="Packets that it ECN-marked in that moment.")
    why: str


class BlameOut(schema.Out):
    """What slowed a job's last iterations, the slowest first; empty: none was slow."""

    job: str
    time_ns: schema.Time
    iterations: tuple[BlamedOut, ...]


@dataclass(frozen=True, slots=True)
class PastSpan:
    """A part of the past; None: as far as there is something."""

    from_ns: int | None
    to_ns: int | None


class HistoryOperations(Protocol):
    """What the routes call. Every method raises OperationError."""

    async def history(
        self,
        kind: HistoryKind,
        subjects: Sequence[str] | None,
        span: PastSpan,
        points: int,
        start: PageStart,
        most: int,
    ) -> MeasuredPastOut:
        """A page of subjects; `subjects` None: all."""

    async def moment(self, time_ns: int) -> MomentOut:
        """The fabric at a time."""

    async def log(
        self,
        kinds: Sequence[EventKind] | None,
        subject: str | None,
        span: PastSpan,
        start: PageStart,
        most: int,
    ) -> EventsOut:
        """A page of the log."""

    async def blame(self, job: str) -> BlameOut:
        """What slowed a job's last iterations."""


def history_routes(operations: HistoryOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter()

    @router.get(
        "/history",
        summary="Iteration times, link loads or ECN marks of the last 24 hours",
        description="In points of a second for the last minute, of 10 s for ten minutes, of 5 minutes for 24 "
        "hours: the finest that reach back far enough. `iterations` are in ms, `loads` in per cent, `marks` "
        "in packets a second.",
        responses=_ERRORS,
        tags=["history"],
    )
    async def get_history(
        kind: HistoryKind,
        start: Start,
        subject: Annotated[
            list[Annotated[str, Field(max_length=1_000)]] | None,
            Query(max_length=100, description='Only these jobs, or links as "leaf1>spine2".'),
        ] = None,
        from_ns: From = None,
        to_ns: To = None,
        points: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 300,
        most: Most = USUAL,
    ) -> MeasuredPastOut:
        span = PastSpan(from_ns, to_ns)
        return await leading(operations).history(kind, subject, span, points, start, most)

    @router.get(
        "/history/moment",
        summary="The fabric at a time of the past",
        responses=problems(_404="Nothing was measured then.", _503="This controller does not lead."),
        tags=["history"],
    )
    async def get_moment(time_ns: Annotated[int, _TIME]) -> MomentOut:
        return await leading(operations).moment(time_ns)

    @router.get("/event-log", summary="What happened, the newest first", responses=_ERRORS, tags=["history"])
    async def get_log(
        start: Start,
        kind: Annotated[list[EventKind] | None, Query(max_length=20, description="Only these kinds.")] = None,
        subject: Annotated[str | None, Query(max_length=1_000)] = None,
        from_ns: From = None,
        to_ns: To = None,
        most: Most = USUAL,
    ) -> EventsOut:
        return await leading(operations).log(kind, subject, PastSpan(from_ns, to_ns), start, most)

    @router.get(
        "/jobs/{name}/blame",
        summary="Which job, link and moment slowed a job's iterations",
        description="From measured iteration times and from counters read meanwhile. Counters are read often "
        "only while somebody watches (`stream`).",
        responses=_ERRORS,
        tags=["jobs"],
    )
    async def get_blame(name: Name) -> BlameOut:
        return await leading(operations).blame(name)

    return router
