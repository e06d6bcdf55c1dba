# SPDX-License-Identifier: Apache-2.0
"""What differs between two plans, job by job and flow by flow."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from controller.model.plan import FlowPlan, JobPlan, Plan
from controller.northbound import schema
from controller.northbound.paging import PageStart, page

_NS_PER_MS = 1e6


class JobDecisionOut(schema.Out):
    """What a plan decides for a job."""

    level: int
    dscp: int
    shift_ms: float
    period_ms: float | None = Field(description="null: it is not held to slots.")
    once: bool
    sender: str


class FlowDecisionOut(schema.Out):
    """What a plan decides for a flow."""

    path: tuple[str, ...] | None = Field(description="null: left to ECMP.")
    source_port: int | None
    dscp: int


class JobDifferenceOut(schema.Out):
    """A job that two plans treat differently; null: the plan does not have it."""

    job: str
    before: JobDecisionOut | None
    after: JobDecisionOut | None


class FlowDifferenceOut(schema.Out):
    """A flow that two plans treat differently; null: the plan does not have it."""

    flow: str
    before: FlowDecisionOut | None
    after: FlowDecisionOut | None


class DifferenceOut(schema.Out):
    """What changes from one plan to another. Shifts are compared as numbers: each counts from its plan's
    own epoch."""

    before: int = Field(description="Number of the one plan.")
    after: int = Field(description="Number of the other plan.")
    policies: tuple[str, str] = Field(description="The policies that made them.")
    jobs: tuple[JobDifferenceOut, ...]
    flows: tuple[FlowDifferenceOut, ...] = Field(description="A page of the flows, sorted by name.")
    next: str | None = Field(description="Cursor of the next page of flows; null: this is the last.")


def difference(before: Plan, after: Plan, start: PageStart, most: int) -> DifferenceOut:
    """The difference of two plans, with one page of flows. Raises OperationError for a wrong cursor."""
    was, now = before.flows, after.flows

    def changed(name: str) -> bool:
        return _decided(was.get(name)) != _decided(now.get(name))

    names, more = page(sorted(was.keys() | now.keys()), start, most, changed)
    return DifferenceOut(
        before=before.version,
        after=after.version,
        policies=(before.policy.name, after.policy.name),
        jobs=tuple(_jobs(before, after)),
        flows=tuple(
            FlowDifferenceOut(flow=name, before=_flow(was.get(name)), after=_flow(now.get(name)))
            for name in names
        ),
        next=more,
    )


def _jobs(before: Plan, after: Plan) -> Iterable[JobDifferenceOut]:
    for name in sorted(before.jobs.keys() | after.jobs.keys()):
        was, now = _job(before.jobs.get(name)), _job(after.jobs.get(name))
        if was != now:
            yield JobDifferenceOut(job=name, before=was, after=now)


def _job(plan: JobPlan | None) -> JobDecisionOut | None:
    if plan is None:
        return None
    return JobDecisionOut(
        level=plan.level,
        dscp=plan.dscp,
        shift_ms=plan.shift_ns / _NS_PER_MS,
        period_ms=None if plan.period_ns is None else plan.period_ns / _NS_PER_MS,
        once=plan.once,
        sender=plan.sender,
    )


def _decided(plan: FlowPlan | None) -> tuple[object, ...] | None:
    return None if plan is None else (plan.path, plan.source_port, plan.dscp)


def _flow(plan: FlowPlan | None) -> FlowDecisionOut | None:
    if plan is None:
        return None
    return FlowDecisionOut(path=plan.path, source_port=plan.source_port, dscp=plan.dscp)
