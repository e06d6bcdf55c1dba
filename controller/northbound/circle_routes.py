# SPDX-License-Identifier: Apache-2.0
"""REST routes of the circles of links: who sends when, and what other time-shifts would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol

from fastapi import APIRouter, Body, Query
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.fabric_routes import Name
from controller.northbound.problems import leading, problems
from controller.northbound.tokens import Role

_ERRORS = problems(
    _404="No such cable, or it does not begin at that node; or no plan yet.",
    _409="The shifts do not fit the plan, or jobs have no profile yet.",
    _503="The controller has not connected to its fabric, or does not lead.",
)
Source = Annotated[
    str | None,
    Query(max_length=1_000, description="The direction that leaves this node; none: the first end."),
]
# Chosen: a day; no job's period is as long.
_MOST_MS = 86_400_000.0


class ArcOut(schema.Out):
    """A job on the circle of a link."""

    job: str
    level: int
    dscp: int
    period_ms: float
    shift_ms: float
    rounds: int | None = Field(description="How often its period fits into the perimeter; null without one.")
    slotted: bool = Field(description="Whether the job is held to its slots; else its shift means nothing.")
    phases: tuple[schema.PhaseOut, ...] = Field(
        description="When it sends, counted from its shift; the rate is its whole rate on this link."
    )
    expected_ms: float | None = Field(description="Its expected iteration; null: it was not evaluated.")
    alone_ms: float


class PredictedOut(schema.Out):
    """The expected mean iteration of a job."""

    job: str
    expected_ms: float


class CircleOut(schema.Out):
    """The unified circle of one direction of a cable under the plan in force, or with other shifts."""

    link: str
    src: str
    dst: str
    time_ns: schema.Time
    plan: int = Field(description="Number of the plan.")
    epoch_ns: int = Field(description="Fabric time that shifts count from.")
    capacity_bps: int
    perimeter_ms: float | None = Field(description="null: no job, or their periods do not meet again soon.")
    score: float = Field(description="CASSINI's compatibility score; 1 is no overlap beyond capacity.")
    jobs: tuple[ArcOut, ...]


class TriedCircleOut(CircleOut):
    """The circle with the shifts that were asked for, and what they do to all jobs of the plan."""

    before: tuple[PredictedOut, ...] = Field(description="Iterations under the plan in force.")
    after: tuple[PredictedOut, ...] = Field(description="Iterations with these shifts.")


class ShiftsIn(schema.In):
    """Shifts to try. Nothing is changed."""

    shifts_ms: dict[Annotated[str, Field(max_length=200)], Annotated[float, Field(ge=0, le=_MOST_MS)]] = (
        Field(min_length=1, max_length=100, description="By job: jobs that are held to slots, on any link.")
    )


class CircleOperations(Protocol):
    """What the routes call. Every method raises OperationError."""

    async def circle(self, cable: str, src: str | None) -> CircleOut:
        """The circle of the direction of a cable that leaves `src`; None: its first end."""

    async def tried(self, cable: str, src: str | None, shifts_ns: Mapping[str, int]) -> TriedCircleOut:
        """The same with other shifts, and the expected iterations of all jobs."""


def circle_routes(operations: CircleOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["circles"])

    @router.get("/fabric/links/{name}/circle", summary="Who sends when on a link", responses=_ERRORS)
    async def get_circle(name: Name, src: Source = None) -> CircleOut:
        return await leading(operations).circle(name, src)

    @router.post(
        "/fabric/links/{name}/circle",
        summary="What other time-shifts would do; nothing is changed",
        responses=_ERRORS,
        dependencies=[requires(Role.READ)],
    )
    async def try_shifts(
        name: Name, asked: Annotated[ShiftsIn, Body()], src: Source = None
    ) -> TriedCircleOut:
        shifts = {job: round(ms * 1e6) for job, ms in asked.shifts_ms.items()}
        return await leading(operations).tried(name, src, shifts)

    return router
