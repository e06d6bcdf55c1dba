# SPDX-License-Identifier: Apache-2.0
"""The REST route of the flows of the plan in force, in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from controller.model.job import job_of_flow
from controller.model.plan import Plan
from controller.model.view import View
from controller.northbound import render, schema
from controller.northbound.paging import USUAL, Most, PageStart, Start, page
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
        start: Start,
        job: Annotated[str | None, Query(max_length=1_000, description="Only the flows of this job.")] = None,
        through: Annotated[
            str | None,
            Query(
                max_length=1_000,
                description='Only flows whose path has this node ("spine2"), or crosses this link in either '
                'direction ("leaf1-spine2").',
            ),
        ] = None,
        fallback: Annotated[
            bool | None,
            Query(
                description="true: only flows that their agents have moved back to ECMP; false: the others."
            ),
        ] = None,
        most: Most = USUAL,
    ) -> FlowsOut:
        view = current_view(source)
        fallen = {flow.flow for flow in view.fallback_flows}

        def wanted(plan: Plan, name: str) -> bool:
            return (
                (job is None or job_of_flow(name) == job)
                and (fallback is None or (name in fallen) == fallback)
                and (through is None or _crosses(plan.flows[name].path, through))
            )

        # A plan of many flows takes a while to look through.
        return await asyncio.to_thread(_flows, view, wanted, start, most)

    return router


def _flows(view: View, wanted: Callable[[Plan, str], bool], start: PageStart, most: int) -> FlowsOut:
    plan = view.plan
    if plan is None:
        page((), start, most)
        return FlowsOut(version=None, flows=(), next=None)
    names, after = page(render.FLOWS.of(plan)[0], start, most, partial(wanted, plan))
    return FlowsOut(
        version=plan.version, flows=render.flows_named(plan, names, view.fallback_flows), next=after
    )


def _crosses(path: tuple[str, ...] | None, through: str) -> bool:
    if path is None:
        return False
    return through in path or any(through in (f"{a}-{b}", f"{b}-{a}") for a, b in pairwise(path))
