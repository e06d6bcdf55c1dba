# SPDX-License-Identifier: Apache-2.0
"""The search over whole plans: it starts from the best single mechanism and applies moves until none
improves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Choice, Instance
from controller.interleave.joint.sharing_groups import SharingGroup, legal
from controller.interleave.joint.time_sharing import TimeSharing, arrange_paths
from controller.interleave.joint.timings import rotation_cache_of
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.improvement import (
    GAIN,
    Budget,
    PlanLine,
    Shortlist,
    improve,
    try_combinations,
)
from controller.planner.loop.initial_plans import PathChoice, combined_plans, single_mechanism_plans
from controller.planner.loop.levels import LevelsFor
from controller.planner.loop.moves import Move, level_moves, moves
from controller.planner.loop.objective import UTILISATION, Objective, PlanValue, best, replaces
from controller.planner.loop.plan_values import Measured, PlanValues, SearchStoppedError, Stop, never

QUICK = Effort((101, 102), 24)
THOROUGH = Effort((201, 202, 203, 204), 120)
"""Chosen: moves need a quick evaluation. Decisions need one that is long enough for schedules without gaps to
fail, under seeds that the moves have not seen."""
_FINALISTS = 2
"""How many plans of each kind the shortlist gives to the thorough evaluation. Chosen: bounds the work."""
_MORE_FINALISTS = 5
"""How many more plans are evaluated thoroughly if those exceed a limit: plans that are farther from it.
Chosen: bounds the work."""
_DOUBTFUL = 3
"""How many plans that seem to exceed a limit are evaluated thoroughly nevertheless. Chosen: bounds the
work."""
_PROMISING = 3
"""How many of the plans given to `solve_levels` are evaluated thoroughly."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan that the search did not take because of (a) or (b), by name."""

    name: str
    value: PlanValue


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of the search.

    `start` names the plan it began with, `steps` its changes in words. `utilisation`, `baselines` (every
    mechanism alone, by name) and `bound` (no job shares a link) are by the evaluator. `value` is that of the
    choice. `refused` is the plan of the highest utilisation, if it exceeds a limit that the choice does not.
    `stopped` says that the search was stopped before its end.
    """

    choice: Choice
    start: str
    steps: tuple[str, ...]
    utilisation: float
    bound: float
    baselines: Mapping[str, float]
    evaluations: int
    value: PlanValue
    refused: Refused | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much to search.

    At most `evaluations` moves are evaluated, from the best single mechanism and `starts` other plans. The
    search ends early when the evaluator has done `max_work` on them. A search of levels alone evaluates no
    more whole plans than `level_work` is enough for (None: `max_work`). `quick` is the effort for moves,
    `thorough` that for decisions. Besides the given sets of paths, `arranged_sets` are made, each by at most
    `exchanges` exchanges. A given plan stays unless another one gains `min_gain` of its utilisation.
    """

    evaluations: int = 300
    max_work: int = 1_500_000
    level_work: int | None = None
    starts: int = 3
    quick: Effort = QUICK
    thorough: Effort = THOROUGH
    arranged_sets: int = 2
    exchanges: int = 3_000
    min_gain: float = GAIN


def solve(
    instance: Instance,
    paths: Mapping[str, PathChoice],
    *,
    objective: Objective = UTILISATION,
    given: Mapping[str, Choice] | None = None,
    others: Mapping[str, Choice] | None = None,
    measured: Measured | None = None,
    mltcp: bool = True,
    limits: SearchLimits = SearchLimits(),
    plain: bool = False,
    fast: bool = True,
    evaluator: Evaluator | None = None,
    cache: RotationCache | None = None,
    stop: Stop = never,
    seed: int = 0,
) -> SearchResult:
    """The best plan under the objective that the search finds. By its evaluator it is never worse than any
    mechanism alone, unless it is stopped before it has evaluated them all.

    `paths` are sets of paths by name, ECMP's first. `given` and `others` are more plans to start from. The
    first plan of `given` that no other one beats by `limits.min_gain` is kept. `measured`: see `PlanValues`.
    `plain` uses the evaluator's plain reference, `fast` the compiled search of rotations. `evaluator` and
    `cache` replace them by those of an earlier search of the instance, with what they have computed.
    Deterministic for a seed. Once `stop` says so, the result is the best plan evaluated thoroughly so far.
    """
    values = PlanValues(evaluator or Evaluator(instance, plain), objective, measured, stop)
    time_sharing = TimeSharing(instance)
    cache = cache or rotation_cache_of(instance, fast=fast, seed=seed)
    levels = LevelsFor(instance)
    preferred = dict(given or {})

    def offer(choice: Choice, group: SharingGroup, rng: random.Random) -> Iterator[Move]:
        twins = values.levelled_twins(choice)
        return moves(instance, choice, group, time_sharing, cache, levels, mltcp=mltcp, rng=rng, twins=twins)

    alone = dict(single_mechanism_plans(instance, paths, mltcp=mltcp, cache=cache, seed=seed)) | dict(
        others or {}
    )
    alone = preferred | {name: c for name, c in alone.items() if legal(instance, c)}
    thorough = _thorough(values, alone, limits)
    first = best(thorough)
    shortlist, evaluations = Shortlist(), len(thorough)
    with suppress(SearchStoppedError):
        if values.good_enough(thorough[first]):
            return _decided(values, shortlist, alone, thorough, tuple(preferred), limits, evaluations)
        lines = [PlanLine(first, alone[first], values.quick_value(alone[first], limits.quick))]
        lines += _combined_starts(values, shortlist, paths, time_sharing, cache, mltcp, limits, seed)
        for i, line in enumerate(lines):
            moves_of_line = limits.evaluations // len(lines)
            work = limits.max_work * moves_of_line // max(1, limits.evaluations)
            budget = Budget(moves_of_line, work, limits.quick)
            evaluations += improve(values, line, offer, shortlist, budget, seed + i)
            if values.good_enough(line.value):
                break
        for line in lines:
            evaluations += try_combinations(
                values, line, shortlist, cache, limits.quick, mltcp=mltcp, seed=seed
            )
            shortlist.add(line)
    return _decided(values, shortlist, alone, thorough, tuple(preferred), limits, evaluations)


def solve_levels(
    instance: Instance,
    given: Mapping[str, Choice],
    *,
    objective: Objective = UTILISATION,
    limits: SearchLimits,
    plain: bool = False,
    evaluator: Evaluator | None = None,
    stop: Stop = never,
    seed: int = 0,
) -> SearchResult | None:
    """The best of the given plans after moves of levels alone: for instances too large for `solve`.

    The first plan of `given` that no other one beats by `limits.min_gain` is kept. None if `limits.max_work`
    is not enough to evaluate all of them once. `evaluator` replaces that of the instance. Deterministic for a
    seed. Once `stop` says so, the result is the best plan evaluated thoroughly so far.
    """
    evaluator = evaluator or Evaluator(instance, plain)
    values = PlanValues(evaluator, objective, stop=stop)
    cost = max(evaluator.cost(choice, limits.quick) for choice in given.values())
    if cost * len(given) > limits.max_work:
        return None
    quick = {name: values.quick_value(c, limits.quick) for name, c in given.items()}
    promising = sorted(given, key=lambda name: (quick[name].rank, -quick[name].counted))[:_PROMISING]
    # A quick evaluation may not see that a job starves; on one level no job does.
    plans = {
        name: c
        for i, (name, c) in enumerate(given.items())
        if i == 0 or name in promising or len(set(c.level)) == 1
    }
    thorough = _thorough(values, plans, limits)
    first = best(thorough)
    shortlist, evaluations, levels = Shortlist(), len(given), LevelsFor(instance)

    def offer(choice: Choice, group: SharingGroup, rng: random.Random) -> Iterator[Move]:
        return level_moves(instance, levels, choice, group, rng, values.levelled_twins(choice))

    with suppress(SearchStoppedError):
        if values.good_enough(thorough[first]):
            return _decided(values, shortlist, plans, thorough, tuple(plans), limits, evaluations)
        line = PlanLine(first, plans[first], quick[first])
        work = limits.max_work if limits.level_work is None else limits.level_work
        budget = Budget(min(limits.evaluations, work // max(1, cost)), limits.max_work, limits.quick)
        evaluations += improve(values, line, offer, shortlist, budget, seed)
        shortlist.add(line)
    return _decided(values, shortlist, plans, thorough, tuple(plans), limits, evaluations)


def _thorough(
    values: PlanValues, plans: Mapping[str, Choice], limits: SearchLimits
) -> Mapping[str, PlanValue]:
    """The values of plans by thorough evaluations, of fewer of them if the search is stopped, but of one."""
    found: dict[str, PlanValue] = {}
    with suppress(SearchStoppedError):
        for name, choice in plans.items():
            found[name] = values.value(choice, limits.thorough)
            values.best_known = True
    return found


def _decided(
    values: PlanValues,
    shortlist: Shortlist,
    plans: Mapping[str, Choice],
    thorough: Mapping[str, PlanValue],
    preferred: Sequence[str],
    limits: SearchLimits,
    evaluations: int,
) -> SearchResult:
    """The best of all plans by a thorough evaluation; or the first preferred plan, then the best start, that
    is not worse by much."""
    # An improvement by the quick evaluation may be none by the thorough one.
    lines = {name: PlanLine(name, plans[name], value) for name, value in thorough.items()}
    met = False
    with suppress(SearchStoppedError):
        for i, line in enumerate(shortlist.finalists(_FINALISTS, _MORE_FINALISTS)):
            if i >= 2 * _FINALISTS and met:
                break
            line.value = values.value(line.choice, limits.thorough)
            met |= line.value.met
            lines[f"finalist {i}"] = line
        for i, line in enumerate(shortlist.doubtful(_DOUBTFUL)):
            line.value = values.value(line.choice, limits.thorough)
            lines[f"doubtful {i}"] = line
    found = {name: line.value for name, line in lines.items()}
    top = lines[best(found)]
    for name in (*(name for name in preferred if name in thorough), best(thorough)):
        if not replaces(top.value, thorough[name], limits.min_gain):
            top = lines[name]
            break
    high = max(lines.values(), key=lambda line: line.value.mean)
    refused = None
    if high.value.rank > top.value.rank and high.value.mean > top.value.mean:
        refused = Refused(", ".join((high.start, *high.steps)), high.value)
    return SearchResult(
        choice=top.choice,
        start=top.start,
        steps=top.steps,
        utilisation=top.value.mean,
        bound=values.evaluator.bound,
        baselines={name: value.mean for name, value in thorough.items()},
        evaluations=evaluations,
        value=top.value,
        refused=refused,
        stopped=values.stop(),
    )


def _combined_starts(
    values: PlanValues,
    shortlist: Shortlist,
    paths: Mapping[str, PathChoice],
    time_sharing: TimeSharing,
    cache: RotationCache,
    mltcp: bool,
    limits: SearchLimits,
    seed: int,
) -> list[PlanLine]:
    """The most promising combinations of mechanisms, on the given and on arranged paths."""
    instance = values.evaluator.instance
    sets = dict(paths)
    for i, (name, path_choice) in enumerate(list(paths.items())[::-1][: limits.arranged_sets]):
        sets[f"{name} arranged"] = arrange_paths(
            instance, path_choice, time_sharing, seed=seed + i, exchanges=limits.exchanges
        )
    found: dict[Choice, PlanLine] = {}
    for name, path_choice in sets.items():
        for words, choice in combined_plans(instance, name, path_choice, mltcp=mltcp, cache=cache, seed=seed):
            if choice not in found and legal(instance, choice):
                found[choice] = PlanLine(words, choice, values.quick_value(choice, limits.quick))
                shortlist.add(found[choice])
    ordered = sorted(found.values(), key=lambda line: (line.value.rank, -line.value.counted))
    kept: list[PlanLine] = []
    for line in ordered:
        # Searches on the same paths end with similar plans, so begin on different paths.
        if all(line.choice.path_choice != other.choice.path_choice for other in kept):
            kept.append(line)
        if len(kept) == limits.starts:
            break
    return kept
