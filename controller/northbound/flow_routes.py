# SPDX-License-Identifier: Apache-2.0
"""The REST route of the flows of the plan in force, in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from controller.model.job import job_of_flow
from controller.model.plan import Plan
from controller.model.view import View
from controller.northbound import render, schema
from controller.northbound.paging import USUAL, Cursor, Most, page
from controller.northbound.problems import problems
from controller.northbound.source import ViewSource, current_view


class FlowsOut(schema.Out):
    """A page of the flows of the plan in force, sorted by name."""

    version: int | None = Field(description="Number of the plan; null: no plan yet.")
    flows: tuple[schema.FlowOut, ...]
    next: str | None = Field(description="Cursor of the next page; null: this is the last.")


def flow_routes(source: ViewSource) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["flows"])

    @router.get(
        "/flows",
        summary="The flows of the plan in force, with their paths",
        responses=problems(
            _404="No such cursor.", _503="The controller has not connected to its fabric yet."
        ),
    )
    async def get_flows(
        job: Annotated[str | None, Query(max_length=1_000, description="Only the flows of this job.")] = None,
        through: Annotated[
            str | None,
            Query(
                max_length=1_000,
                description='Only flows whose path has this node ("spine2"), or crosses this link in either '
                'direction ("leaf1-spine2").',
            ),
        ] = None,
        cursor: Cursor = None,
        most: Most = USUAL,
    ) -> FlowsOut:
        # A plan of many flows takes a while to look through.
        return await asyncio.to_thread(_flows, current_view(source), job, through, cursor, most)

    return router


def _flows(view: View, job: str | None, through: str | None, cursor: str | None, most: int) -> FlowsOut:
    plan = view.plan
    if plan is None:
        page((), cursor, most)
        return FlowsOut(version=None, flows=(), next=None)
    names, after = page(_named(plan, job, through), cursor, most)
    return FlowsOut(
        version=plan.version, flows=render.flows_named(plan, names, view.fallback_flows), next=after
    )


def _named(plan: Plan, job: str | None, through: str | None) -> Iterator[str]:
    for name in sorted(plan.flows):
        if job is not None and job_of_flow(name) != job:
            continue
        if through is None or _crosses(plan.flows[name].path, through):
            yield name


def _crosses(path: tuple[str, ...] | None, through: str) -> bool:
    if path is None:
        return False
    return through in path or any(through in (f"{a}-{b}", f"{b}-{a}") for a, b in pairwise(path))
