# SPDX-License-Identifier: Apache-2.0
"""The reasons a plan gives for each of its choices, in words."""

from __future__ import annotations

from itertools import pairwise

from controller.interleave.circle import random_score
from controller.interleave.link_sharing import SLACK
from controller.model import Flow, Job
from controller.planner.ask import ask_explanation
from controller.planner.candidate import Candidate
from controller.planner.loop.search import SearchResult
from controller.planner.routing_stage import RoutingStage
from controller.planner.time_shifts import TimeShifts, only
from controller.priority.crux import RankedJob
from controller.routing.assign import Assignment


def level_reason(candidate: Candidate, ranked: RankedJob) -> str:
    """Why a job has its level."""
    policy, stage = candidate.demands.inputs.policy, candidate.priorities
    if not policy.priority.orders_jobs:
        return "same level for all"
    if ranked.intensity is None:
        return "lowest level: it sends nothing"
    level = stage.level[ranked.name]
    meets = sorted({j for p in candidate.shifts.contending for j in p if ranked.name in p} - {ranked.name})
    if not meets:
        return f"level {level}: it meets no other job, no order needed"
    reason = stage.levels.reason or candidate.reason
    if ranked.name in stage.levels.exceptions:
        above = sorted(j for j in meets if stage.level[j] < level)
        below = sorted(j for j in meets if stage.level[j] > level)
        beside = sorted(set(meets) - {*above, *below})
        parts = (("after", above), ("before", below), ("beside", beside))
        words = " and ".join(f"{word} {', '.join(jobs)}" for word, jobs in parts if jobs)
        return f"level {level}: {words}; {reason}"
    place = {name: i for i, name in enumerate(stage.order.names)}
    above = [j for j in meets if place[j] < place[ranked.name]]
    below = [j for j in meets if j not in above]
    words = " and ".join(
        f"{word} {', '.join(jobs)}" for word, jobs in (("after", above), ("before", below)) if jobs
    )
    return f"level {level}: {words}, by {ask_explanation(policy, ranked)}{f'; {reason}' if reason else ''}"


def sender_reason(candidate: Candidate, name: str) -> tuple[str, ...]:
    """Why the plan sets the congestion control of a job's senders, if the joint search chose it."""
    if name not in candidate.senders:
        return ()
    return ("MLTCP senders: by the joint search they keep more GPUs busy",)


def search_reason(found: SearchResult) -> str:
    """How the search came to its result, for every job that takes part."""
    others = ", ".join(f"{name} {value:.1%}" for name, value in found.baselines.items())
    steps = f"; then {', '.join(found.steps)}" if found.steps else ""
    return (
        f"of {found.evaluations} plans judged together, GPUs busy {found.utilisation:.1%} ({others}); "
        f"from {found.start}{steps}"
    )


def profile_reason(job: Job) -> str:
    """What is known of a job's profile, and from where."""
    measured = job.measured
    if measured is None:
        return "as it declares" if job.profile.phases else "not measured yet: taken to send all the time"
    by = "" if measured.source == "iterations" else " by byte counts alone"
    return (
        f"measured{by} over {measured.iterations} iterations: {job.profile.period_ns / 1e6:.1f} ms, "
        f"{measured.communication_ns / 1e6:.1f} of them communicating"
    )


def timing_reason(shifts: TimeShifts, name: str) -> str:
    """Why a job communicates when it does."""
    if not shifts.demands.inputs.policy.timing.sets_shifts:
        return "runs at its own pace"
    slot = shifts.schedule.slots.get(name)
    if slot is None:
        meets = any(name in p for p in shifts.contending)
        why = "no job that it meets keeps step with it" if meets else "shares no full link with another job"
        return f"runs at its own pace: {shifts.schedule.reasons.get(name, why)}"
    measured = shifts.demands.profiles[name].period_ns
    start = (
        f"starts {'once ' if slot.once else ''}at {slot.shift_ns / 1e6:.1f} of every "
        f"{slot.period_ns / 1e6:.1f} ms ({100 * (slot.period_ns / measured - 1):.1f} % over its own)"
        f"{', then at its own pace' if slot.once else ''}"
    )
    fits = [f for f in shifts.schedule.fits if name in f.jobs]
    if not fits:
        return start
    worst = min(fits, key=lambda f: f.score)
    link = next(k for k in shifts.shared if k.name == worst.link)
    chance = random_score(only(link, worst.jobs), shifts.periods, slack=SLACK)
    others = sorted({j for f in fits for j in f.jobs} - {name})
    return (
        f"takes turns with {', '.join(others)} on {worst.link[0]}->{worst.link[1]}"
        f"{f' and {len(fits) - 1} more' if len(fits) > 1 else ''}: score {worst.score:.2f}, "
        f"{chance:.2f} at random; {start}"
    )


def path_reason(routing: RoutingStage, flow: Flow, a: Assignment) -> str:
    """Why an elephant has its path."""
    if a.why:
        return a.why
    path = a.path or ()
    meets = sorted(
        {j for k in routing.shared if k.name in set(pairwise(path[1:-1])) for j in k.demands} - {flow.job}
    )
    through = "inside the leaf" if len(path) == 3 else f"least loaded path, by {path[len(path) // 2]}"
    company = f", with {', '.join(meets)}" if meets else ", shared with no other job"
    return f"{through}{company if len(path) > 3 else ''}{'; as before' if a.kept else ''}"
