# SPDX-License-Identifier: Apache-2.0
"""The reasons a plan gives for each of its choices, in words."""

from __future__ import annotations

from itertools import pairwise

from controller.interleave.circle import random_score
from controller.interleave.link_sharing import SLACK
from controller.model import Flow, Job
from controller.planner.loop.search import SearchResult
from controller.planner.priority_stage import PriorityStage
from controller.planner.routing_stage import RoutingStage
from controller.planner.time_shifts import TimeShifts, only
from controller.priority.crux import RankedJob
from controller.routing.assign import Assignment


def order_why(order: PriorityStage, ranked: RankedJob) -> str:
    """Why a job has its level."""
    if order.demands.inputs.policy.priority == "equal":
        return "same level for all"
    if ranked.intensity is None:
        return "lowest level: it sends nothing"
    level = order.levels[ranked.name]
    meets = sorted({j for p in order.rhythms.contending for j in p if ranked.name in p} - {ranked.name})
    if not meets:
        return f"level {level}: it meets no other job, no order needed"
    if ranked.name in order.decided:
        first = sorted(j for j in meets if order.levels[j] < level)
        last = sorted(j for j in meets if order.levels[j] > level)
        beside = sorted(set(meets) - {*first, *last})
        parts = (("after", first), ("before", last), ("beside", beside))
        said = " and ".join(f"{word} {', '.join(jobs)}" for word, jobs in parts if jobs)
        return f"level {level}: {said}; {order.reason}"
    place = {r.name: i for i, r in enumerate(order.ranked)}
    above = [j for j in meets if place[j] < place[ranked.name]]
    below = [j for j in meets if j not in above]
    words = [f"after {', '.join(above)}"] if above else []
    words += [f"before {', '.join(below)}"] if below else []
    method = order.demands.inputs.policy.priority
    if method == "crux":
        by = f"intensity {ranked.intensity:.3g} flop/s x correction {ranked.correction:.3g}"
    else:
        by = f"{method}'s order"
    return f"level {level}: {' and '.join(words)}, by {by}{f'; {order.reason}' if order.reason else ''}"


def sender_why(order: PriorityStage, name: str) -> tuple[str, ...]:
    """Why a job's senders are others than it chose itself, if the loop wants that."""
    if order.senders.get(name) != "mltcp":
        return ()
    return ("MLTCP senders: by the loop's judge they keep more GPUs busy",)


def loop_why(found: SearchResult) -> str:
    """Why the loop decided so, for every job that takes part."""
    others = ", ".join(f"{name} {value:.1%}" for name, value in found.baselines.items())
    steps = f"; then {', '.join(found.steps)}" if found.steps else ""
    return (
        f"of {found.evaluations} plans judged together, GPUs busy {found.utilisation:.1%} ({others}); "
        f"from {found.start}{steps}"
    )


def profile_why(job: Job) -> str:
    """What is known of a job, and from where."""
    measured = job.measured
    if measured is None:
        return "as it declares" if job.profile.phases else "not measured yet: taken to send all the time"
    by = "" if measured.source == "iterations" else " by byte counts alone"
    return (
        f"measured{by} over {measured.iterations} iterations: {job.profile.period_ns / 1e6:.1f} ms, "
        f"{measured.communication_ns / 1e6:.1f} of them communicating"
    )


def time_why(rhythms: TimeShifts, name: str) -> str:
    """Why a job talks when it does."""
    if rhythms.demands.inputs.policy.interleave == "none":
        return "runs at its own pace"
    held = rhythms.holding.slots.get(name)
    if held is None:
        meets = any(name in p for p in rhythms.contending)
        why = "none it meets can keep its rhythm" if meets else "shares no full link with another job"
        return f"runs at its own pace: {rhythms.holding.reasons.get(name, why)}"
    fits = [f for f in rhythms.holding.fits if name in f.jobs]
    worst = min(fits, key=lambda f: f.score)
    link = next(k for k in rhythms.shared if k.name == worst.link)
    chance = random_score(only(link, worst.jobs), rhythms.periods, slack=SLACK)
    others = sorted({j for f in fits for j in f.jobs} - {name})
    measured = rhythms.demands.profiles[name].period_ns
    return (
        f"takes turns with {', '.join(others)} on {worst.link[0]}->{worst.link[1]}"
        f"{f' and {len(fits) - 1} more' if len(fits) > 1 else ''}: score {worst.score:.2f}, "
        f"{chance:.2f} at random; starts {'once ' if held.once else ''}at {held.shift_ns / 1e6:.1f} of every "
        f"{held.period_ns / 1e6:.1f} ms ({100 * (held.period_ns / measured - 1):.1f} % over its own)"
        f"{', then at its own pace' if held.once else ''}"
    )


def path_why(space: RoutingStage, flow: Flow, a: Assignment) -> str:
    """Why an elephant goes where it goes."""
    if a.why:
        return a.why
    path = a.path or ()
    meets = sorted(
        {j for k in space.shared if k.name in set(pairwise(path[1:-1])) for j in k.demands} - {flow.job}
    )
    way = "inside the leaf" if len(path) == 3 else f"least loaded path, by {path[len(path) // 2]}"
    company = f", with {', '.join(meets)}" if meets else ", shared with no other job"
    return f"{way}{company if len(path) > 3 else ''}{'; as before' if a.kept else ''}"
