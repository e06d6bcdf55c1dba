# SPDX-License-Identifier: Apache-2.0
"""Which jobs a new plan disturbs: those whose level, path or shift it changes, and their neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from controller.model.flow_plans import FlowPlans, with_flows
from controller.model.job import job_of_flow
from controller.model.plan import FlowPlan, Plan


def neighbours(plan: Plan, jobs: Iterable[str]) -> frozenset[str]:
    """The jobs that share a link with one of `jobs` under a plan."""
    some = set(jobs)
    return frozenset(j for link in plan.links if some & set(link.jobs) for j in link.jobs) - some


def disturbed(before: Plan | None, after: Plan) -> frozenset[str]:
    """The jobs whose iterations the change from one plan to another can lengthen or shorten.

    These are the jobs whose level, shift, period, sender, path or rate cap changes, those that come or go,
    and under either plan the jobs that share a link with one of them.
    """
    if before is None:
        return frozenset(after.jobs)
    changed = {
        name
        for name in before.jobs.keys() | after.jobs.keys()
        if _schedule(before, name) != _schedule(after, name)
    }
    changed.update(_sending_otherwise(before.flows, after.flows))
    return frozenset(changed) | neighbours(before, changed) | neighbours(after, changed)


def with_paths_of(plan: Plan, shown: Plan) -> Plan:
    """`plan` with its flows on the paths and source ports of `shown`; everything else stays."""
    names = shown.flows.changed_since(plan.flows) if isinstance(shown.flows, FlowPlans) else shown.flows
    flows = {
        name: replace(flow, path=at.path, source_port=at.source_port, why=at.why)
        for name in names
        if (flow := plan.flows.get(name)) is not None and (at := shown.flows.get(name)) is not None
    }
    return replace(plan, flows=with_flows(plan.flows, flows))


def with_slots_later(plan: Plan, jobs: frozenset[str], later_ns: int) -> Plan:
    """`plan` with the slots of `jobs` later by `later_ns`; jobs without slots stay."""
    moved = {
        name: replace(planned, shift_ns=(planned.shift_ns + later_ns) % planned.period_ns)
        for name, planned in plan.jobs.items()
        if name in jobs and planned.period_ns
    }
    return replace(plan, jobs={**plan.jobs, **moved})


def _sending_otherwise(before: Mapping[str, FlowPlan], after: Mapping[str, FlowPlan]) -> Iterator[str]:
    """The jobs that have flows in only one plan, or other paths, source ports, DSCPs or rate caps."""
    names: Iterable[str]
    if isinstance(before, FlowPlans) and isinstance(after, FlowPlans) and before.topology is after.topology:
        moved = {job_of_flow(name) for name in before.others.keys() | after.others.keys()}
        names = []
        for name in before.jobs.keys() | after.jobs.keys():
            was, now = before.jobs.get(name), after.jobs.get(name)
            if was is None or now is None:
                yield name
            elif name in moved:
                names += [f.name for f in (*was.flows, *now.flows)]
            elif was is not now and not was.sends_as(now):
                yield name
    else:
        names = before.keys() | after.keys()
    for name in names:
        one, other = before.get(name), after.get(name)
        if one is None or other is None or _carried(one) != _carried(other):
            yield job_of_flow(name)


def _carried(flow: FlowPlan) -> tuple[object, ...]:
    return flow.path, flow.source_port, flow.dscp, flow.rate_cap_bps


def _schedule(plan: Plan, job: str) -> tuple[object, ...] | None:
    planned = plan.jobs.get(job)
    if planned is None:
        return None
    period = planned.period_ns
    slot = (plan.epoch_ns + planned.shift_ns) % period if period else None
    return planned.level, planned.dscp, planned.sender, period, slot, planned.once
