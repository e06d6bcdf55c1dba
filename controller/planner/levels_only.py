# SPDX-License-Identifier: Apache-2.0
"""The stages where there is too much for the loop: levels alone are judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from controller.interleave.joint.evaluator import Effort
from controller.interleave.joint.instance import Choice
from controller.interleave.slot_schedule import SlotSchedule
from controller.kernel import available
from controller.planner.demand import Demands
from controller.planner.loop.search import SearchLimits, solve_levels
from controller.planner.priority_stage import PriorityStage, method_of
from controller.planner.reasons import loop_why
from controller.planner.routing_stage import RoutingStage
from controller.planner.search_instance import composed, instance_of
from controller.planner.time_shifts import TimeShifts
from controller.priority.methods import Setting

LIMITS = SearchLimits(
    evaluations=150,
    max_work=2_500_000,
    quick=Effort((101,), 8),
    thorough=Effort((201, 202, 203), 12),
    min_gain=0.005,
)
_PLAIN = 200
"""How many times slower the judge is without its kernel."""


def levels_only(demands: Demands) -> tuple[RoutingStage, TimeShifts, PriorityStage]:
    """CRUX's paths; turns only for groups that meet nobody else; and the levels that the loop's judge has for
    the best: those before, CRUX's order on all levels or on fewer, or moves from the best of them.

    Strict priority loses to equal shares where few large jobs of like intensity meet on many links: who waits
    on one of them leaves the others idle. Where even the judge would take too long, levels are CRUX's.
    """
    space, rhythms, order = _calm(demands)
    placed = space.assignments
    ways = {f.name: (path,) for f in demands.elephants if f.name in placed and (path := placed[f.name].path)}
    instance = instance_of(demands, ways)
    names = [p.name for p in instance.jobs]
    base = composed(instance, rhythms, order)
    given: dict[str, Choice] = {}
    for words, level in _levels(order, instance.levels):
        choice = replace(base, level=tuple(level[n] for n in names))
        if choice not in given.values():
            given[words] = choice
    limits = LIMITS if available() else replace(LIMITS, max_work=LIMITS.max_work // _PLAIN)
    found = solve_levels(instance, given, limits=limits, seed=demands.inputs.seed)
    if found is None:
        return space, rhythms, replace(order, why="too much to judge together")
    if found.choice == base:
        return space, rhythms, replace(order, why=loop_why(found))
    levels = dict(zip(names, found.choice.level, strict=True))
    return space, rhythms, replace(order, given=levels, why=loop_why(found))


def _levels(order: PriorityStage, most: int) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Levels by job, and in words what they are: those in force first, then CRUX's."""
    inputs, sharing = order.demands.inputs, order.rhythms.contending
    before = inputs.previous
    if before is not None and before.policy == inputs.policy:
        kept = {n: j.level for n, j in before.jobs.items() if n in order.levels}
        yield "as before", {**order.levels, **kept}
    yield "as composed", order.levels
    for count in range(most, 0, -1):
        setting = Setting(levels=count, seed=inputs.seed)
        level = method_of(inputs.policy).place(order.ranked, sharing, setting).level
        yield f"by intensity on {count} {'level' if count == 1 else 'levels'}", level


def _calm(demands: Demands) -> tuple[RoutingStage, TimeShifts, PriorityStage]:
    """Paths without regard to turns, turns only for groups that meet nobody else, levels for all others.

    A held job that also meets one outside of its group is lengthened past its slot by that one and then
    waits for its next: whether turns are worth that, only the whole loop can tell. What is left is CRUX's
    plan, on paths that are no worse.
    """
    space = RoutingStage(demands, turns=False)
    link_jobs = demands.link_jobs(space.links_of)
    ranked = method_of(demands.inputs.policy).rank(
        link_jobs, demands.rates, Setting(seed=demands.inputs.seed)
    )
    rhythms = TimeShifts(demands, space.shared, tuple(r.name for r in ranked))
    holding = rhythms.holding
    meeting = {job for pair in rhythms.contending for job in pair}
    let_go = {h.group for job, h in holding.slots.items() if job in meeting}
    if let_go:
        held = {job: h for job, h in holding.slots.items() if h.group not in let_go}
        reasons = {
            job: "its turns would be upset by jobs outside of them"
            for job, h in holding.slots.items()
            if h.group in let_go
        }
        fits = tuple(f for f in holding.fits if held.keys() >= set(f.jobs))
        kept = SlotSchedule(held, {**holding.reasons, **reasons}, fits, ())
        rhythms = replace(rhythms, given=kept)
    return space, rhythms, PriorityStage(demands, ranked, rhythms, tuple(link_jobs))
