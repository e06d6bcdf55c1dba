# SPDX-License-Identifier: Apache-2.0
"""The REST route that simulates the present jobs under other policies. It changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from fastapi import APIRouter, Body
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.problems import leading, problems
from controller.northbound.tokens import Role

MOST_POLICIES = 32
_ERRORS = problems(
    _409="There is no job with a profile, or no such policy.",
    _503="This controller does not lead, or it answers another such question.",
)


class WhatIfIn(schema.In):
    """Which policies to try."""

    policies: Annotated[
        list[Annotated[str, Field(max_length=200)]] | None,
        Field(
            min_length=1,
            max_length=MOST_POLICIES,
            description="Registered policies; null: all that a running fabric can have.",
            examples=[["ecmp", "crux", "polyrhythm"]],
        ),
    ] = None


class SimulatedJobOut(schema.Out):
    """A job under one policy."""

    job: str
    mean_ms: float | None = Field(description="Mean iteration; null: none ended.")
    p99_ms: float | None
    alone_ms: float | None = Field(description="Its iteration without other jobs.")


class WorstOut(schema.Out):
    """The job that loses most against being alone."""

    job: str
    ratio: float | None = Field(
        description="Mean iteration over the one alone; null: no iteration ended in the simulated time."
    )


class PolicyOutcomeOut(schema.Out):
    """The present jobs under one policy."""

    policy: str
    fault: str | None = Field(description="Why it was not simulated; null: it was.")
    note: str | None = Field(description="Which jobs have no figures, and why; null: all have some.")
    gpu_utilisation: float | None = Field(description="Part of their time in which GPUs compute, 0 to 1.")
    mean_iteration_ms: float | None = Field(description="Mean of the jobs' mean iterations.")
    jobs: tuple[SimulatedJobOut, ...]
    worst: WorstOut | None


class WhatIfOut(schema.Out):
    """The present minute under several policies, by the simulator."""

    time_ns: schema.Time
    horizon_ms: float = Field(description="Simulated time.")
    left_out: tuple[str, ...] = Field(description="Jobs without a profile, which were not simulated.")
    results: tuple[PolicyOutcomeOut, ...]


class WhatIfOperations(Protocol):
    """What the route calls."""

    async def compare(self, policies: Sequence[str] | None) -> WhatIfOut:
        """The present jobs under each policy. Raises OperationError."""


def what_if_routes(operations: WhatIfOperations | None) -> APIRouter:
    """The route. `operations` None: a controller that does not lead; it answers 503."""
    router = APIRouter(tags=["plan"])

    @router.post(
        "/what-if",
        summary="The present minute under other policies, by the simulator",
        description="The present jobs run for a minute on the present fabric under each policy, in a process "
        "beside the controller. One question is answered at a time. Nothing is changed.",
        responses=_ERRORS,
        dependencies=[requires(Role.JOB)],
    )
    async def compare(asked: Annotated[WhatIfIn | None, Body()] = None) -> WhatIfOut:
        return await leading(operations).compare(None if asked is None else asked.policies)

    return router
