# SPDX-License-Identifier: Apache-2.0
"""The first plan after a change: valid at once, without the search of levels and slots.

The search makes a better plan later. Until then no job may starve, and no job loses what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controller.interleave.circle import SharedLink
from controller.interleave.slot_schedule import JobSlot, SlotSchedule
from controller.model import JobPlan, Plan
from controller.planner.candidate import Candidate
from controller.planner.compose import plan, plan_of
from controller.planner.demand import Demands
from controller.planner.inputs import PlanInput, check
from controller.planner.priority_stage import JobOrder, PriorityStage
from controller.planner.routing_stage import RoutingStage, route_flows
from controller.planner.time_shifts import TimeShifts, distinct
from controller.priority.crux import RankedJob
from controller.priority.protocol import Levels

WHY = "first plan after a change: a search for a better one follows"


def first_plan(inputs: PlanInput) -> Plan:
    """A valid plan for these inputs, made at once; `plan` makes the final one.

    Flows of the previous plan keep their paths where these are alive and as good as new ones. Jobs keep the
    slots, senders and levels in force. But a new job, and all jobs that are connected to it by shared links,
    have one level, so that nobody starves. A policy without the joint search needs no time for one, so this
    is its final plan.

    Raises:
        ValueError: as `plan`.
    """
    if not inputs.policy.joint_search:
        return plan(inputs)
    check(inputs)
    return plan_of(_candidate(Demands(inputs)))


def _candidate(demands: Demands) -> Candidate:
    routing = route_flows(demands, time_sharing=False)
    order = _by_intensity(demands, routing)
    connected = _connected(distinct(routing.shared))
    known = _in_force(demands)
    slots = {
        name: JobSlot(j.period_ns, _shift(j, demands), connected[name][0], j.once, j.realign)
        for name, j in known.items()
        if j.period_ns and name in connected
    }
    shifts = TimeShifts(demands, routing.shared, SlotSchedule(slots, {}, (), ()))
    levels = safe_levels(demands.jobs, {name: j.level for name, j in known.items()}, connected)
    priorities = PriorityStage(order, Levels(levels, "", frozenset(levels)))
    unchanged = demands.inputs.policy.timing.sender
    senders = {name: j.sender for name, j in known.items() if j.sender != unchanged}
    return Candidate(routing, shifts, priorities, senders, WHY)


def _by_intensity(demands: Demands, routing: RoutingStage) -> JobOrder:
    """The jobs by their intensity alone. The policy's order takes longer, and would decide no level."""
    jobs = tuple(routing.link_use.link_jobs(demands.inputs.jobs, demands.profiles))
    found = [(job.name, job.contender(demands.rates).intensity) for job in jobs]
    found.sort(key=lambda x: (x[1] is None, -(x[1] or 0.0), x[0]))
    return JobOrder(tuple(RankedJob(name, i, 1.0, i or 0.0) for name, i in found), jobs)


def safe_levels(
    jobs: Iterable[str], in_force: Mapping[str, int], connected: Mapping[str, tuple[int, Sequence[str]]]
) -> Mapping[str, int]:
    """The level of each job: the one in force, or 0 for all jobs that are connected to one without it.

    `connected` has the jobs of each job's group (see `_connected`). A job alone is in none.
    """
    return {
        name: in_force[name]
        if name in in_force and all(other in in_force for other in connected.get(name, (0, ()))[1])
        else 0
        for name in jobs
    }


def _connected(shared: Iterable[SharedLink]) -> Mapping[str, tuple[int, Sequence[str]]]:
    """For each job that shares links, the number and the jobs of its group: those that shared links connect.

    Strict priority on links can only hold up a job of the same group.
    """
    group: dict[str, list[str]] = {}
    for link in shared:
        first, *others = (group.setdefault(job, [job]) for job in link.demands)
        for other in others:
            if other is first:
                continue
            small, first = sorted((first, other), key=len)
            first += small
            group.update(dict.fromkeys(small, first))
    number: dict[int, int] = {}
    return {job: (number.setdefault(id(jobs), len(number)), jobs) for job, jobs in group.items()}


def _in_force(demands: Demands) -> Mapping[str, JobPlan]:
    """The plan in force of each job that still runs; empty if another policy made it."""
    before = demands.inputs.previous
    if before is None or before.policy != demands.inputs.policy.reference:
        return {}
    return {name: j for name, j in before.jobs.items() if name in demands.jobs}


def _shift(job: JobPlan, demands: Demands) -> int:
    """The shift in ns that keeps the times at which the job starts now."""
    before, x = demands.inputs.previous, demands.inputs
    assert before is not None
    assert job.period_ns is not None
    return (job.shift_ns + before.epoch_ns - x.epoch_ns) % job.period_ns
