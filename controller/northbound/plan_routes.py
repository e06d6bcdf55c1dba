# SPDX-License-Identifier: Apache-2.0
"""REST routes that work with plans: their history, a rollback, and what another policy would change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, Path, Query
from pydantic import Field

from controller.model.plan import Plan
from controller.northbound import render, schema
from controller.northbound.access import requires
from controller.northbound.etags import IfMatch, check_match, tag_of
from controller.northbound.paging import USUAL, Most, Start
from controller.northbound.plan_difference import DifferenceOut, difference
from controller.northbound.policy_routes import OptionValue, Value
from controller.northbound.problems import leading, problems
from controller.northbound.tokens import Role

_ERRORS = problems(
    _404="No such plan, or no such cursor.",
    _409="It does not fit the fabric or the jobs of now.",
    _503="The controller has no store, or it does not answer.",
)
Version = Annotated[int, Path(ge=1, le=(1 << 53), description="Number of a plan.")]


class PastPlanOut(schema.Out):
    """A plan of the history."""

    version: int
    time_ns: int = Field(description="When it came into force, Unix time in ns.")
    policy: str
    in_force: bool
    reason: str = Field(
        description="What had changed since the plan before; or that it is not known, as of plans before the "
        "start of the controller.",
        examples=["down: leaf1-spine2"],
    )


class HistoryOut(schema.Out):
    """A page of the plans that are stored, the newest first."""

    plans: tuple[PastPlanOut, ...]
    next: schema.Next


class RolledBackOut(schema.Out):
    """A rollback that is done."""

    rolled_back_to: int
    version: int = Field(description="Number under which the earlier plan is in force now.")


class DryRunIn(schema.In):
    """What to plan."""

    policy: str = Field("", description="A registered policy; empty: the controller's own.", max_length=200)
    options: dict[Annotated[str, Field(max_length=200)], Value] = Field(
        default_factory=dict, max_length=100, description="Options of that policy."
    )
    jobs: list[dict[str, Any]] | None = Field(
        None,
        description="Jobs to plan instead of the present ones, as `polyrhythm apply SCENARIO` sends them.",
    )


class DryRunOut(schema.Out):
    """What a plan would change."""

    plan: schema.PlanOut
    entries: dict[str, tuple[str, ...]] = Field(description="Updates of each switch, in their order.")
    messages: tuple[str, ...] = Field(description="What agents would be told.")


class PlanOperations(Protocol):
    """What the routes call. Every method raises OperationError."""

    async def history(self, most: int, before: int | None) -> tuple[PastPlanOut, ...]:
        """The last plans, below a version if one is given, the newest first."""

    async def plan(self, version: int) -> Plan:
        """A plan of the history."""

    async def roll_back(self, version: int) -> int:
        """Bring a plan of the history into force again; returns its new number."""

    def in_force(self) -> Plan:
        """The plan in force."""

    async def dry_run(
        self, policy: str, options: Mapping[str, OptionValue], jobs: list[dict[str, Any]] | None
    ) -> tuple[Plan, dict[str, tuple[str, ...]], tuple[str, ...]]:
        """The plan of a policy with options (empty: the controller's own) for `jobs` (None: the present
        ones), the entries that it would change, and the messages to agents.
        """


def plan_routes(operations: PlanOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["plan"])

    @router.get(
        "/plans",
        summary="The history of plans",
        responses=problems(
            _404="No such cursor.", _503="The controller has no store, or it does not answer."
        ),
    )
    async def get_plans(start: Start, most: Most = 20) -> HistoryOut:
        before = start.number()
        found = await leading(operations).history(most + 1, before)
        after = start.cursor_after(str(found[most - 1].version)) if len(found) > most else None
        return HistoryOut(plans=found[:most], next=after)

    @router.get("/plans/{version}", summary="A plan of the history", responses=_ERRORS)
    async def get_past_plan(version: Version, start: Start, most: Most = USUAL) -> schema.PlanOut:
        plan = await leading(operations).plan(version)
        return await asyncio.to_thread(render.plan_page, plan, (), start, most)

    @router.get(
        "/plans/{version}/diff",
        summary="What differs between a plan of the history and another one",
        responses=_ERRORS,
    )
    async def get_difference(
        version: Version,
        start: Start,
        to: Annotated[
            int | None, Query(ge=1, le=(1 << 53), description="Number of the other; default: in force.")
        ] = None,
        most: Most = USUAL,
    ) -> DifferenceOut:
        before = await leading(operations).plan(version)
        after = leading(operations).in_force() if to is None else await leading(operations).plan(to)
        return await asyncio.to_thread(difference, before, after, start, most)

    @router.post(
        "/plans/{version}/rollback",
        summary="Bring a plan of the history into force again",
        description="It comes into force under a new number, for the jobs that are present. The next change "
        "of jobs or of the fabric leads to a new plan as usual. If-Match takes the ETag of `/plan`.",
        responses=_ERRORS | problems(_412="Another plan came into force meanwhile."),
        dependencies=[requires(Role.OPERATE)],
    )
    async def roll_back(version: Version, if_match: IfMatch = None) -> RolledBackOut:
        if if_match is not None:
            check_match(if_match, tag_of(leading(operations).in_force().version))
        return RolledBackOut(rolled_back_to=version, version=await leading(operations).roll_back(version))

    @router.post(
        "/plan/dry-run",
        summary="What the plan of another policy, or for other jobs, would change",
        description="Nothing is changed.",
        responses=_ERRORS,
        dependencies=[requires(Role.OPERATE)],
    )
    async def dry_run(asked: Annotated[DryRunIn, Body()]) -> DryRunOut:
        plan, entries, messages = await leading(operations).dry_run(asked.policy, asked.options, asked.jobs)
        return DryRunOut(plan=render.plan(plan), entries=entries, messages=messages)

    return router
