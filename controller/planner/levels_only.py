# SPDX-License-Identifier: Apache-2.0
"""The search of levels alone, for problems that are too large for the joint search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Choice
from controller.kernel import available
from controller.planner.ask import ask_levels
from controller.planner.candidate import Candidate, PathsAndShifts, build
from controller.planner.ecmp_reference import FEWEST_ITERATIONS, REFERENCE_WORK, EcmpLengths, EcmpReference
from controller.planner.floor import expected_of, objective_of, on_one_level, undisturbed
from controller.planner.loop.known_searches import KNOWN_SEARCHES
from controller.planner.loop.plan_values import Stop, never
from controller.planner.loop.search import SearchLimits, solve_levels
from controller.planner.priority_stage import level_problem
from controller.planner.reasons import search_reason
from controller.planner.routing_stage import may_share_in_time
from controller.planner.search_instance import choice_of, instance_of

LIMITS = SearchLimits(
    evaluations=150,
    max_work=2_500_000,
    quick=Effort((101,), 8),
    thorough=Effort((201, 202, 203), 12),
    min_gain=0.005,
)
_MOST_FLOWS = 10_000
"""With more elephants nothing is evaluated. Chosen: the preparation of the search then takes seconds."""
_MOST_STREAMS = 5_000
"""The same for the streams of jobs that share links. Chosen: their rates take a time that grows by the
square; for 8,000 streams a plan took 12 s."""
_MANY_JOBS = 32
_WORK_FOR_MANY = 100_000
_MOVES_FOR_MANY = 48
"""The most work on changes of levels, and the most of them, where more than _MANY_JOBS have elephants.
Chosen: of 50 plans for 46 jobs, 20 of them in one group, 43 stayed as they were with ten times the work, and
jobs took 0.2 % less time; without any change they took as long as with that.
"""
_THOROUGH_WORK, _QUICK_WORK = 100_000, 25_000
"""The most work of one evaluation there. Chosen: a tenth of a second, and a fortieth."""
_PLAIN = 200
"""How many times slower the evaluator is without its compiled loops, measured."""


def levels_only(built: PathsAndShifts, stop: Stop = never) -> Candidate:
    """The best candidate for problems that are too large for the joint search: only levels are searched.

    `built` is what the policy's three objects decided. Paths are chosen as if no jobs shared links in time.
    Only groups of jobs that overlap with no other job keep their slots.
    The search's evaluator compares the levels in force, those of the policy's priority, those of the priority
    with fewer levels, and changes of the best of these.

    Strict priority is worse than equal shares where few large jobs of similar intensity share many links: a
    job that waits on one link leaves its other links idle. If even this search would take too long, all jobs
    have one level where the policy has a floor, and otherwise the levels of its priority. Once `stop` says
    so, the search ends with the best that it has.
    """
    demands = built.routing.demands
    if may_share_in_time(demands):
        built = build(demands, time_sharing=False)
    start = undisturbed(built).with_levels()
    if len(demands.elephants) > _MOST_FLOWS:
        return _unevaluated(start)
    ways = start.routing.ways
    only = {f.name: (ways[f.name],) for f in demands.elephants if f.name in ways}
    instance = instance_of(demands, only)
    names = [p.name for p in instance.jobs]
    base = choice_of(instance, start)
    evaluator = Evaluator(instance)
    if max((len(g.streams) for g in evaluator.groups(base)), default=0) > _MOST_STREAMS:
        return _unevaluated(start)
    given: dict[str, Choice] = {}
    for words, level in _levels(start, _counts(instance.levels, len(names))):
        choice = replace(base, level=tuple(level[n] for n in names))
        if choice not in given.values():
            given[words] = choice
    limits = _limits(len(names), evaluator, base)
    policy, found = demands.inputs.policy, None
    ecmp = EcmpLengths({}, {})
    work = REFERENCE_WORK if len(names) > _MANY_JOBS else None
    reference = EcmpReference(demands, tuple(only), LIMITS.thorough.iterations, work)
    if reference.cost <= limits.max_work:
        ecmp = reference.lengths()
        objective = objective_of(policy, instance.jobs, ecmp)
        seed = demands.inputs.seed
        search = partial(
            solve_levels,
            instance,
            given,
            objective=objective,
            limits=limits,
            evaluator=evaluator,
            stop=stop,
            seed=seed,
        )
        found = KNOWN_SEARCHES.result(instance, given, objective, limits, seed, search)
    if found is None:
        return _unevaluated(start)
    reason = search_reason(found, policy, ecmp.mean, names)
    expected = expected_of(policy, instance.jobs, found.value.lengths, ecmp)
    if found.choice == base:
        return replace(start, reason=reason, expected=expected)
    levels = dict(zip(names, found.choice.level, strict=True))
    return replace(start, priorities=start.priorities.changed(levels), reason=reason, expected=expected)


def _limits(jobs: int, evaluator: Evaluator, base: Choice) -> SearchLimits:
    """LIMITS, with less work where many jobs send, and where the evaluator is not compiled."""
    limits = LIMITS if available() else replace(LIMITS, max_work=LIMITS.max_work // _PLAIN)
    if jobs <= _MANY_JOBS:
        return limits
    return replace(
        limits,
        evaluations=_MOVES_FOR_MANY,
        level_work=min(limits.max_work, _WORK_FOR_MANY),
        thorough=_cheaper(limits.thorough, evaluator, base, _THOROUGH_WORK),
        quick=_cheaper(limits.quick, evaluator, base, _QUICK_WORK),
    )


def _cheaper(effort: Effort, evaluator: Evaluator, choice: Choice, work: int) -> Effort:
    return effort.within(work, evaluator.cost(choice, effort), FEWEST_ITERATIONS)


def _unevaluated(start: Candidate) -> Candidate:
    """The plan where the search would take too long."""
    too_many = "too many jobs and flows to evaluate plans"
    if start.demands.inputs.policy.max_slowdown is not None:
        return on_one_level(start, too_many)
    return replace(start, reason=too_many)


def _levels(start: Candidate, counts: Iterable[int]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Levels by job to begin with, and in words what they are: those in force first, then those of the
    priority on so many levels."""
    demands, level = start.demands, start.priorities.level
    before = demands.inputs.previous
    if before is not None and before.policy == demands.inputs.policy.reference:
        kept = {n: j.level for n, j in before.jobs.items() if n in level}
        yield "as before", {**level, **kept}
    yield "as composed", level
    problem = level_problem(demands, start.priorities.order, start.shifts)
    for count in counts:
        fewer = ask_levels(demands.inputs.policy, replace(problem, most=count, previous=None))
        yield f"by priority on {count} {'level' if count == 1 else 'levels'}", fewer.level


def _counts(most: int, jobs: int) -> Iterator[int]:
    """The numbers of levels to begin with, the largest first. For many jobs each is half of the one
    before. Chosen: in 50 plans for 46 jobs the others changed nothing."""
    while most > 0:
        yield most
        most = most // 2 if jobs > _MANY_JOBS else most - 1
