# SPDX-License-Identifier: Apache-2.0
"""Computes a plan from a fabric, jobs and a policy, as one pure function.

It calls the policy's objects in this order: paths, the order of the jobs, slots for jobs that share links in
time, levels for the jobs that still overlap. Then the joint search follows, if the policy asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from controller.model import TRAFFIC_CLASSES, Flow, FlowPlan, JobPlan, LinkPlan, Plan
from controller.model.flow_plans import FlowPlans, JobFlows
from controller.model.plan import Spreading
from controller.planner.candidate import Candidate, build
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink, PlanInput, check
from controller.planner.joint_search import JointSearch
from controller.planner.loop.plan_values import Stop, never
from controller.planner.pinned_flows import remarks
from controller.planner.planned_pairs import planned_pairs
from controller.planner.rate_caps import rate_caps
from controller.planner.reasons import (
    level_reason,
    path_reason,
    profile_reason,
    sender_reason,
    timing_reason,
)
from controller.planner.spread_classes import needless_paths, spread_classes, spread_reason, spreading_of
from controller.priority.crux import RankedJob
from controller.routing.assigned import AssignedFlows


def plan(inputs: PlanInput, stop: Stop = never) -> Plan:
    """The plan for these inputs. Once `stop` says so, the joint search ends with the best that it has; it is
    asked only once there is something.

    Raises:
        ValueError: a job does not fit the fabric, or the policy cannot be used; the message says why.
    """
    check(inputs)
    return plan_of(JointSearch(build(Demands(inputs)), stop).chosen())


def plan_of(candidate: Candidate) -> Plan:
    """The plan with the decisions of a candidate, and the reason of each decision."""
    inputs = candidate.demands.inputs
    spreading = spreading_of(inputs)
    jobs = {r.name: _job_plan(candidate, r, spreading) for r in candidate.priorities.order.ranked}
    flows = _flow_plans(candidate, jobs, spreading)
    links = tuple(
        LinkPlan(*k.name, tuple(k.demands), candidate.shifts.score(k)) for k in candidate.routing.shared
    )
    pairs, mice_pairs = planned_pairs(inputs.jobs, flows)
    return Plan(
        inputs.number,
        inputs.policy.reference,
        inputs.epoch_ns,
        flows,
        {j.name: jobs[j.name] for j in inputs.jobs},
        links,
        pins=candidate.routing.pinned.pins,
        remarks=remarks(inputs, flows),
        pairs=pairs,
        mice_pairs=mice_pairs,
        spread=spread_classes(spreading, jobs.values()),
    )


def _flow_plans(
    candidate: Candidate, jobs: Mapping[str, JobPlan], spreading: Spreading | None
) -> Mapping[str, FlowPlan]:
    """The flows, as columns where their assignments are columns too."""
    inputs, routing = candidate.demands.inputs, candidate.routing
    caps = rate_caps(candidate)
    if isinstance(routing.assignments, AssignedFlows) and not caps:
        return _columns(candidate, routing.assignments, jobs)
    sharing = routing.jobs_on
    return {
        f.name: _flow_plan(candidate, f, jobs[f.job], caps.get(f.name, 0), sharing, spreading)
        for job in inputs.jobs
        for f in job.flows
    }


def _columns(candidate: Candidate, found: AssignedFlows, jobs: Mapping[str, JobPlan]) -> FlowPlans:
    """The flows as columns. A job whose flows stay as they are keeps its object of the plan before."""
    inputs, flows = candidate.demands.inputs, candidate.demands.columns
    index, count = flows.elephants, len(flows.names)
    hops = np.full((count, found.paths.hops.shape[1]), -1, dtype=np.int32)
    port, kept = np.full(count, -1, dtype=np.int32), np.zeros(count, dtype=np.bool_)
    hops[index], port[index], kept[index] = found.paths.hops, found.port, found.kept
    without = np.zeros(count, dtype=np.bool_)
    without[index[found.port < 0]] = True
    before = inputs.previous.flows if inputs.previous is not None else None
    known: Mapping[str, JobFlows] = {}
    if isinstance(before, FlowPlans) and before.topology is inputs.topology and not before.others:
        known = before.jobs
    made, stays = {}, {}
    for j, job in enumerate(inputs.jobs):
        some = slice(flows.first[j], flows.first[j + 1])
        place = np.flatnonzero(without[some]).tolist()
        notes = {i: found[job.flows[i].name].why for i in place}
        new = JobFlows(job.flows, hops[some], port[some], jobs[job.name].dscp, notes)
        was = known.get(job.name)
        made[job.name] = was if was is not None and was.same(new) else new
        stays[job.name] = kept[some]
    return FlowPlans(inputs.topology, inputs.elephant_bytes, made, stays)


def _job_plan(candidate: Candidate, ranked: RankedJob, spreading: Spreading | None) -> JobPlan:
    level = candidate.priorities.level[ranked.name]
    slot = candidate.shifts.schedule.slots.get(ranked.name)
    demands, expected = candidate.demands, candidate.expected.get(ranked.name)
    return JobPlan(
        job=ranked.name,
        level=level,
        dscp=TRAFFIC_CLASSES.levels[min(level, len(TRAFFIC_CLASSES.levels) - 1)],
        shift_ns=slot.shift_ns if slot else 0,
        period_ns=slot.period_ns if slot else None,
        intensity=ranked.intensity,
        why="; ".join(
            (
                timing_reason(candidate.shifts, ranked.name),
                level_reason(candidate, ranked),
                *needless_paths(candidate.demands.inputs, spreading),
                *sender_reason(candidate, ranked.name),
                profile_reason(demands.jobs[ranked.name], demands.twin_of.get(ranked.name)),
            )
        ),
        sender=candidate.senders.get(ranked.name, demands.inputs.policy.timing.sender),
        once=slot is not None and slot.once,
        realign=slot.realign if slot else None,
        expected_ns=round(expected.expected_ns) if expected else None,
        ecmp_ns=round(expected.ecmp_ns) if expected else None,
        floor_ns=round(expected.floor_ns) if expected and expected.floor_ns is not None else None,
    )


def _flow_plan(
    candidate: Candidate,
    flow: Flow,
    job: JobPlan,
    cap_bps: int,
    sharing: Mapping[DirectedLink, Collection[str]],
    spreading: Spreading | None,
) -> FlowPlan:
    routing = candidate.routing
    if flow.bytes_per_iteration < candidate.demands.inputs.elephant_bytes:
        why = f"{flow.bytes_per_iteration} bytes an iteration: a mouse, left to ECMP"
        return FlowPlan(flow.name, None, None, TRAFFIC_CLASSES.mice, why, cap_bps)
    a = routing.assignments.get(flow.name)
    if a is None:
        why = "left to ECMP" if spreading is None else spread_reason(spreading)
        return FlowPlan(flow.name, None, None, job.dscp, why, cap_bps)
    why = path_reason(flow, a, routing.links_of[flow.name], sharing) + routing.pinned.words(flow.name)
    return FlowPlan(flow.name, a.path, a.source_port, job.dscp, why, cap_bps)
