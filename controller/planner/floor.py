# SPDX-License-Identifier: Apache-2.0
"""The objective of the search for one planning run, and the plan that is safe without a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.interleave.joint.instance import JointJob
from controller.interleave.slot_schedule import SlotSchedule
from controller.planner.candidate import Candidate, Expected, PathsAndShifts, build
from controller.planner.demand import Demands
from controller.planner.ecmp_reference import EcmpLengths
from controller.planner.loop.objective import TWINS_APART, Objective
from controller.planner.policy import Policy
from controller.priority.priorities import Crux


def loss_cap(policy: Policy) -> float | None:
    """The part of its throughput that no job may lose, if CRUX's priority has such an option (CRUX, 7.2)."""
    return policy.priority.loss_cap if isinstance(policy.priority, Crux) else None


def objective_of(policy: Policy, jobs: Sequence[JointJob], ecmp: EcmpLengths) -> Objective:
    """The objective of a policy for these jobs. `ecmp` has the iteration of each job under plain ECMP.

    The objective keeps a margin below the floor for the errors of the evaluator and of the mean under ECMP.
    """
    most, cap = policy.max_slowdown, loss_cap(policy)
    reference = tuple(ecmp.mean[j.name] for j in jobs)
    return Objective(
        () if most is None else tuple(most * ns for ns in reference),
        reference,
        TWINS_APART,
        errors=tuple(ecmp.error[j.name] for j in jobs),
        caps=() if cap is None or cap >= 1 else tuple(job.alone_ns / (1 - cap) for job in jobs),
    )


def expected_of(
    policy: Policy, jobs: Sequence[JointJob], lengths: Sequence[float], ecmp: EcmpLengths
) -> Mapping[str, Expected]:
    """The expected iterations by job. `lengths` are those under the plan, in ns, in the order of `jobs`."""
    most = policy.max_slowdown
    return {
        job.name: Expected(ns, ecmp.mean[job.name], None if most is None else most * ecmp.mean[job.name])
        for job, ns in zip(jobs, lengths, strict=True)
    }


def longest_periods(objective: Objective) -> tuple[float, ...]:
    """The longest period of each job's slots in ns: what its limit allows. Empty if there is no limit."""
    return objective.slot_limits


def equal_shares(demands: Demands, why: str) -> Candidate:
    """The plan that starves no job, without an evaluation: all jobs on one level, so that they share links
    equally. `why` says why nothing better could be evaluated.

    Only groups of jobs that overlap with no other job keep their slots.
    """
    return on_one_level(undisturbed(build(demands, time_sharing=False)).with_levels(), why)


def on_one_level(start: Candidate, why: str) -> Candidate:
    """The candidate with one level for all jobs. `why`: see `equal_shares`."""
    sending = [r.name for r in start.priorities.order.ranked if r.intensity is not None]
    reason = f"one level for all, so that no job starves: {why}"
    return replace(start, priorities=start.priorities.changed(dict.fromkeys(sending, 0)), reason=reason)


def undisturbed(built: PathsAndShifts) -> PathsAndShifts:
    """The same with slots only for groups that overlap with no other job. The paths of `built` are chosen
    without regard to time.

    A job outside the group that overlaps with a scheduled job sometimes makes it miss its slot, and it then
    waits for the next one. Only the whole search can find out whether slots gain more than that costs.
    Without slots the plan is CRUX's, on paths that are no worse.
    """
    schedule, contending = built.shifts.schedule, built.shifts.contending
    meeting = {job for pair in contending for job in pair}
    released = {s.group for job, s in schedule.slots.items() if job in meeting}
    if not released:
        return built
    slots = {job: s for job, s in schedule.slots.items() if s.group not in released}
    reasons = {
        job: "its slots would be disturbed by jobs outside its group"
        for job, s in schedule.slots.items()
        if s.group in released
    }
    fits = tuple(f for f in schedule.fits if slots.keys() >= set(f.jobs))
    kept = SlotSchedule(slots, {**schedule.reasons, **reasons}, fits, ())
    return replace(built, shifts=replace(built.shifts, schedule=kept))
