# SPDX-License-Identifier: Apache-2.0
"""The text of the reasons that a plan gives for its decisions (`why`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from controller.interleave.circle import random_score
from controller.interleave.link_sharing import SLACK
from controller.model import Flow, Job
from controller.model.flow_plans import path_words
from controller.planner.ask import ask_explanation
from controller.planner.candidate import Candidate
from controller.planner.floor import loss_cap
from controller.planner.inputs import DirectedLink
from controller.planner.loop.objective import TWINS_APART, PlanValue
from controller.planner.loop.search import SearchResult
from controller.planner.policy import Policy
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
    overlapping = candidate.shifts.overlapping_jobs.get(ranked.name, [])
    if not overlapping:
        shared = "after time sharing " if ranked.name in candidate.shifts.schedule.slots else ""
        searched = f"; {candidate.reason}" if candidate.reason else ""
        return f"level {level}: {shared}no other job overlaps with it in time, so it needs no order{searched}"
    reason = "; ".join(filter(None, (stage.levels.reason, candidate.reason)))
    if ranked.name in stage.levels.exceptions:
        above = sorted(j for j in overlapping if stage.level[j] < level)
        below = sorted(j for j in overlapping if stage.level[j] > level)
        beside = sorted(set(overlapping) - {*above, *below})
        parts = (("below", above), ("above", below), ("equal to", beside))
        words = " and ".join(f"{word} {', '.join(jobs)}" for word, jobs in parts if jobs)
        return f"level {level}: {words}; {reason}"
    place = {name: i for i, name in enumerate(stage.order.names)}
    earlier = [j for j in overlapping if place[j] < place[ranked.name]]
    later = [j for j in overlapping if j not in earlier]
    words = " and ".join(
        f"{word} {', '.join(jobs)}"
        for word, jobs in (("ranked after", earlier), ("ranked before", later))
        if jobs
    )
    return f"level {level}: {words}, by {ask_explanation(policy, ranked)}{f'; {reason}' if reason else ''}"


def sender_reason(candidate: Candidate, name: str) -> tuple[str, ...]:
    """Why the plan sets the congestion control of a job's senders, if the joint search chose it."""
    if name not in candidate.senders:
        return ()
    return ("MLTCP senders: in the joint search they gave a higher GPU utilisation",)


def search_reason(
    found: SearchResult, policy: Policy, ecmp: Mapping[str, float], names: Sequence[str]
) -> str:
    """How the search found its result, and which floor bound it. The reason is the same for all jobs of the
    search.

    `names` are the jobs of the search, and `ecmp` their iterations under plain ECMP, in ns.
    """
    others = ", ".join(f"{name} {value:.1%}" for name, value in found.baselines.items())
    steps = f"; then {', '.join(found.steps)}" if found.steps else ""
    words = [
        f"the best of {found.evaluations} evaluated plans, GPUs busy {found.utilisation:.1%} ({others}); "
        f"the search started from plan '{found.start}'{steps}"
    ]
    if found.stopped:
        words.append("the search was stopped before its end, for a change of the jobs")
    if names:
        ratio, name = _worst(found.value, ecmp, names)
        words.append(f"worst off is {name}, {ratio:.2f} times its iteration under plain ECMP")
    if not found.value.met:
        words.append(f"no evaluated plan is without harm: {_harm(found.value, policy, ecmp, names)}")
    if found.refused is not None:
        value = found.refused.value
        words.append(
            f"refused plan '{found.refused.name}', GPUs busy {value.mean:.1%}: "
            f"{_harm(value, policy, ecmp, names)}"
        )
    return "; ".join(words)


def _worst(value: PlanValue, ecmp: Mapping[str, float], names: Sequence[str]) -> tuple[float, str]:
    """The largest ratio of an expected iteration to the one under plain ECMP, and its job."""
    return max((ns / ecmp[name], name) for ns, name in zip(value.lengths, names, strict=True))


def _harm(value: PlanValue, policy: Policy, ecmp: Mapping[str, float], names: Sequence[str]) -> str:
    """Which limit a plan exceeds, and by whom."""
    words = []
    if value.breach > 0:
        over = [ns / limit for ns, limit in zip(value.lengths, value.limits, strict=True)]
        j = over.index(max(over))
        by_ecmp = ecmp[names[j]]
        limits = []
        if policy.max_slowdown is not None:
            limits.append(
                f"at most {policy.max_slowdown:g} is allowed, and {value.limits[j] / by_ecmp:.2f} by what is "
                "expected, which may be wrong by the evaluator, start times and draws of ECMP"
            )
        if (cap := loss_cap(policy)) is not None:
            limits.append(f"no job may lose more than {cap:.0%} of its throughput alone")
        words.append(
            f"{names[j]} would take {value.lengths[j] / by_ecmp:.2f} times its iteration under ECMP "
            f"({', and '.join(limits)})"
        )
    if value.twin_gap > 0:
        apart, most = value.twin_gap + TWINS_APART, TWINS_APART
        words.append(f"equal jobs would be {apart:.0%} apart (at most {most:.0%} is allowed)")
    return ", and ".join(words)


def profile_reason(job: Job, twin: str | None) -> str:
    """Where the plan has a job's profile from: declared, measured or assumed, or that of its twin."""
    planned = f"; planned with the profile of its twin {twin}, within the confidence" if twin else ""
    return f"{_own_profile(job)}{planned}"


def _own_profile(job: Job) -> str:
    measured = job.measured
    if measured is None:
        if job.profile.phases:
            return "profile as the job declares it"
        return "not measured yet: the plan assumes that it sends all the time"
    by = "" if measured.source == "iterations" else " by byte counts alone"
    return (
        f"measured{by} over {measured.iterations} iterations: {job.profile.period_ns / 1e6:.1f} ms, "
        f"of which it communicates {measured.communication_ns / 1e6:.1f} ms"
    )


def timing_reason(shifts: TimeShifts, name: str) -> str:
    """Why a job has its time-shift and period, or none."""
    if not shifts.demands.inputs.policy.timing.sets_shifts:
        return "runs at its own pace"
    slot = shifts.schedule.slots.get(name)
    if slot is None:
        if name in shifts.overlapping_jobs:
            why = "it can share no link in time with the jobs that overlap with it"
        else:
            why = "it shares no full link with another job"
        return f"runs at its own pace: {shifts.schedule.reasons.get(name, why)}"
    measured = shifts.demands.profiles[name].period_ns
    start = (
        f"starts {'once ' if slot.once else ''}at {slot.shift_ns / 1e6:.1f} of every "
        f"{slot.period_ns / 1e6:.1f} ms ({100 * (slot.period_ns / measured - 1):.1f} % over its own period)"
        f"{', then at its own pace' if slot.once else ''}"
    )
    fits = [f for f in shifts.schedule.fits if name in f.jobs]
    if not fits:
        return start
    worst = min(fits, key=lambda f: f.score)
    link = next(k for k in shifts.shared if k.name == worst.link)
    chance = random_score(only(link, worst.jobs), shifts.periods, slack=SLACK)
    others = sorted({j for f in fits for j in f.jobs} - {name})
    more = f" and {len(fits) - 1} more {'link' if len(fits) == 2 else 'links'}" if len(fits) > 1 else ""
    return (
        f"shares {worst.link[0]}->{worst.link[1]}{more} in time with {', '.join(others)}: "
        f"score {worst.score:.2f}, {chance:.2f} at random shifts; {start}"
    )


def path_reason(
    flow: Flow, a: Assignment, links: Iterable[DirectedLink], jobs_on: Mapping[DirectedLink, Collection[str]]
) -> str:
    """Why an elephant has its path, over these links. `jobs_on` has the jobs of each link that several jobs
    share."""
    if a.why:
        return a.why
    path = a.path or ()
    others: set[str] = set()
    ends = {path[0], path[-1]} if path else set()
    for link in links:
        if ends.isdisjoint(link):
            others.update(jobs_on.get(link, ()))
    others.discard(flow.job)
    return path_words(path, others, kept=a.kept)
