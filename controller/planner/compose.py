# SPDX-License-Identifier: Apache-2.0
"""From fabric, jobs and policy to a plan, as one pure function.

Order of work: paths (most intense job first), then who would meet whom on which link, then rhythms for
those who gain by taking turns, then levels for those who still overlap in time, then the loop over all
three where some do.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model import TRAFFIC_CLASSES, Flow, FlowPlan, JobPlan, LinkPlan, Plan
from controller.planner.demand import Demands
from controller.planner.inputs import PlanInput, check
from controller.planner.joint import Joint
from controller.planner.pinned_flows import remarks
from controller.planner.priority_stage import PriorityStage, method_of
from controller.planner.rate_caps import rate_caps
from controller.planner.reasons import order_why, path_why, profile_why, sender_why, time_why
from controller.planner.routing_stage import RoutingStage
from controller.planner.time_shifts import TimeShifts
from controller.priority.crux import RankedJob
from controller.priority.methods import Setting


def plan(inputs: PlanInput) -> Plan:
    """The plan for these inputs. Raises ValueError, in words, for jobs that the fabric cannot have."""
    check(inputs)
    demands = Demands(inputs)
    space = RoutingStage(demands)
    link_jobs = demands.link_jobs(space.links_of)
    ranked = method_of(inputs.policy).rank(link_jobs, demands.rates, Setting(seed=inputs.seed))
    rhythms = TimeShifts(demands, space.shared, tuple(r.name for r in ranked))
    space, rhythms, order = Joint(
        space, rhythms, PriorityStage(demands, ranked, rhythms, tuple(link_jobs))
    ).stages()
    jobs = {r.name: _job_plan(order, r) for r in order.ranked}
    caps = rate_caps(space, order)
    flows = {
        f.name: replace(_flow_plan(space, f, jobs[f.job]), rate_cap_bps=caps.get(f.name, 0))
        for job in inputs.jobs
        for f in job.flows
    }
    links = tuple(LinkPlan(*k.name, tuple(k.demands), rhythms.score(k)) for k in space.shared)
    version = inputs.previous.version + 1 if inputs.previous else 1
    in_order = {j.name: jobs[j.name] for j in inputs.jobs}
    return Plan(
        version,
        inputs.policy,
        inputs.epoch_ns,
        flows,
        in_order,
        links,
        pins=space.pinned.pins,
        remarks=remarks(inputs, flows),
    )


def _job_plan(order: PriorityStage, ranked: RankedJob) -> JobPlan:
    rhythms, level = order.rhythms, order.levels[ranked.name]
    held = rhythms.holding.slots.get(ranked.name)
    return JobPlan(
        job=ranked.name,
        level=level,
        dscp=TRAFFIC_CLASSES.levels[min(level, len(TRAFFIC_CLASSES.levels) - 1)],
        shift_ns=held.shift_ns if held else 0,
        period_ns=held.period_ns if held else None,
        intensity=ranked.intensity,
        why="; ".join(
            (
                time_why(rhythms, ranked.name),
                order_why(order, ranked),
                *sender_why(order, ranked.name),
                profile_why(order.demands.jobs[ranked.name]),
            )
        ),
        sender=order.senders.get(ranked.name, order.demands.inputs.policy.sender),
        once=held is not None and held.once,
        realign=held.realign if held else None,
    )


def _flow_plan(space: RoutingStage, flow: Flow, job: JobPlan) -> FlowPlan:
    if flow.bytes_per_iteration < space.demands.inputs.elephant_bytes:
        why = f"{flow.bytes_per_iteration} bytes an iteration: a mouse, left to ECMP"
        return FlowPlan(flow.name, None, None, TRAFFIC_CLASSES.mice, why)
    a = space.assignments.get(flow.name)
    if a is None:
        return FlowPlan(flow.name, None, None, job.dscp, "left to ECMP")
    why = path_why(space, flow, a) + space.pinned.words(flow.name)
    return FlowPlan(flow.name, a.path, a.source_port, job.dscp, why)
