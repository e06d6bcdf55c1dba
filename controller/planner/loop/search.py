# SPDX-License-Identifier: Apache-2.0
"""The search over whole plans: it starts from the best single mechanism and applies moves until none
improves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from controller.interleave.joint.evaluator import Effort, Evaluator, better
from controller.interleave.joint.fluid import Floats
from controller.interleave.joint.instance import Choice, Instance
from controller.interleave.joint.sharing_groups import SharingGroup, legal
from controller.interleave.joint.time_sharing import TimeSharing, arrange_paths
from controller.interleave.joint.timings import rotation_cache_of
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.initial_plans import PathChoice, combined_plans, single_mechanism_plans
from controller.planner.loop.moves import Move, level_moves, moves

Offer = Callable[[Choice, SharingGroup, random.Random], Iterator[Move]]
"""The moves to try on a sharing group of a choice."""

QUICK = Effort((101, 102), 24)
THOROUGH = Effort((201, 202, 203, 204), 120)
"""Chosen: moves need a quick evaluation. Decisions need one that is long enough for schedules without gaps to
fail, under seeds that the moves have not seen."""
GAIN = 0.002
"""The part of the utilisation by which a move must improve it. Chosen: about the noise of a quick
evaluation."""
_NEGLIGIBLE = 0.0005
"""Groups that lose less than this part of the bound are not improved. Chosen: a quarter of GAIN."""
_NEARLY = 0.003
"""A plan within this part of the bound is good enough. Chosen: a schedule costs each job about as much, since
its period is at least 0.2 % longer than its own."""
_PROMISING = 3
"""How many of the plans given to `solve_levels` are evaluated thoroughly."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of the search.

    `start` names the plan it began with, `steps` its changes in words. `utilisation`, `baselines` (every
    mechanism alone, by name) and `bound` (no job shares a link) are by the evaluator.
    """

    choice: Choice
    start: str
    steps: tuple[str, ...]
    utilisation: float
    bound: float
    baselines: Mapping[str, float]
    evaluations: int


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much to search.

    At most `evaluations` moves are evaluated, from the best single mechanism and `starts` other plans. The
    search ends early when the evaluator has done `max_work` on them. `quick` is the effort for moves,
    `thorough` that for decisions. Besides the given sets of paths, `arranged_sets` are made, each by at most
    `exchanges` exchanges. A given plan stays unless another one gains `min_gain` of its utilisation.
    """

    evaluations: int = 300
    max_work: int = 1_500_000
    starts: int = 3
    quick: Effort = QUICK
    thorough: Effort = THOROUGH
    arranged_sets: int = 2
    exchanges: int = 3_000
    min_gain: float = GAIN


@dataclass(slots=True)
class _PlanLine:
    """A plan under improvement."""

    start: str
    choice: Choice
    value: Floats
    steps: tuple[str, ...] = ()


def solve(
    instance: Instance,
    paths: Mapping[str, PathChoice],
    *,
    given: Mapping[str, Choice] | None = None,
    others: Mapping[str, Choice] | None = None,
    mltcp: bool = True,
    limits: SearchLimits = SearchLimits(),
    plain: bool = False,
    seed: int = 0,
) -> SearchResult:
    """The best plan that the search finds. By its evaluator it is never worse than any mechanism alone.

    `paths` are sets of paths by name, ECMP's first. `given` and `others` are more plans to start from. The
    first plan of `given` that no other one beats by `limits.min_gain` is kept. Deterministic for a seed.
    """
    evaluator = Evaluator(instance, plain)
    time_sharing = TimeSharing(instance)
    cache = rotation_cache_of(instance, fast=not plain, seed=seed)
    preferred = dict(given or {})

    def offer(choice: Choice, group: SharingGroup, rng: random.Random) -> Iterator[Move]:
        return moves(instance, choice, group, time_sharing, cache, mltcp=mltcp, rng=rng)

    alone = dict(single_mechanism_plans(instance, paths, mltcp=mltcp, cache=cache, seed=seed)) | dict(
        others or {}
    )
    alone = preferred | {name: c for name, c in alone.items() if legal(instance, c)}
    thorough = {name: evaluator.utilisation(c, limits.thorough) for name, c in alone.items()}
    best = _best(thorough)
    lines = [_PlanLine(best, alone[best], thorough[best])]
    evaluations = len(alone)
    if float(thorough[best].mean()) < evaluator.bound * (1 - _NEARLY):
        lines += _combined_starts(evaluator, paths, time_sharing, cache, mltcp, limits, seed)
        for i, line in enumerate(lines):
            share = limits.evaluations // len(lines)
            evaluations += _improve(evaluator, line, offer, limits, share, seed + i)
            if float(evaluator.utilisation(line.choice, limits.quick).mean()) >= evaluator.bound * (
                1 - _NEARLY
            ):
                break
        for line in lines:
            evaluations += _try_combinations(evaluator, line, cache, mltcp, limits, seed)
            line.value = evaluator.utilisation(line.choice, limits.thorough)
    return _decided(evaluator, lines, alone, thorough, tuple(preferred), limits, evaluations)


def solve_levels(
    instance: Instance,
    given: Mapping[str, Choice],
    *,
    limits: SearchLimits,
    plain: bool = False,
    seed: int = 0,
) -> SearchResult | None:
    """The best of the given plans after moves of levels alone: for instances too large for `solve`.

    The first plan of `given` that no other one beats by `limits.min_gain` is kept. None if `limits.max_work`
    is not enough to evaluate all of them once. Deterministic for a seed.
    """
    evaluator = Evaluator(instance, plain)
    cost = max(evaluator.cost(choice, limits.quick) for choice in given.values())
    if cost * len(given) > limits.max_work:
        return None
    quick = {name: float(evaluator.utilisation(c, limits.quick).mean()) for name, c in given.items()}
    promising = sorted(given, key=lambda name: -round(quick[name], 9))[:_PROMISING]
    plans = {name: c for i, (name, c) in enumerate(given.items()) if i == 0 or name in promising}
    thorough = {name: evaluator.utilisation(c, limits.thorough) for name, c in plans.items()}
    best = _best(thorough)
    line, evaluations = _PlanLine(best, plans[best], thorough[best]), len(given)
    if float(thorough[best].mean()) < evaluator.bound * (1 - _NEARLY):
        budget = min(limits.evaluations, limits.max_work // max(1, cost))
        offer = partial(level_moves, instance)
        evaluations += _improve(evaluator, line, offer, replace(limits, evaluations=budget), budget, seed)
        line.value = evaluator.utilisation(line.choice, limits.thorough)
    return _decided(evaluator, [line], plans, thorough, tuple(plans), limits, evaluations)


def _best(thorough: Mapping[str, Floats]) -> str:
    """The plan with the highest utilisation; of equal ones the first."""
    return max(thorough, key=lambda name: round(float(thorough[name].mean()), 9))


def _decided(
    evaluator: Evaluator,
    lines: Sequence[_PlanLine],
    plans: Mapping[str, Choice],
    thorough: Mapping[str, Floats],
    preferred: Sequence[str],
    limits: SearchLimits,
    evaluations: int,
) -> SearchResult:
    """The best of the lines; or the first preferred plan, then the best start, that is not worse by much."""
    # An improvement by the quick evaluation may be none by the thorough one.
    best = _best(thorough)
    lines = [*lines, _PlanLine(best, plans[best], thorough[best])]
    top = max(lines, key=lambda line: round(float(line.value.mean()), 9))
    for name in (*preferred, best):
        if not better(top.value, thorough[name], limits.min_gain):
            top = _PlanLine(name, plans[name], thorough[name])
            break
    return SearchResult(
        choice=top.choice,
        start=top.start,
        steps=top.steps,
        utilisation=float(top.value.mean()),
        bound=evaluator.bound,
        baselines={name: float(value.mean()) for name, value in thorough.items()},
        evaluations=evaluations,
    )


def _combined_starts(
    evaluator: Evaluator,
    paths: Mapping[str, PathChoice],
    time_sharing: TimeSharing,
    cache: RotationCache,
    mltcp: bool,
    limits: SearchLimits,
    seed: int,
) -> list[_PlanLine]:
    """The most promising combinations of mechanisms, on the given and on arranged paths."""
    instance = evaluator.instance
    sets = dict(paths)
    for i, (name, path_choice) in enumerate(list(paths.items())[::-1][: limits.arranged_sets]):
        sets[f"{name} arranged"] = arrange_paths(
            instance, path_choice, time_sharing, seed=seed + i, exchanges=limits.exchanges
        )
    found: dict[Choice, _PlanLine] = {}
    for name, path_choice in sets.items():
        for words, choice in combined_plans(instance, name, path_choice, mltcp=mltcp, cache=cache, seed=seed):
            if choice not in found and legal(instance, choice):
                found[choice] = _PlanLine(words, choice, evaluator.utilisation(choice, limits.quick))
    ordered = sorted(found.values(), key=lambda line: -round(float(line.value.mean()), 9))
    kept: list[_PlanLine] = []
    for line in ordered:
        # Searches on the same paths end with similar plans, so begin on different paths.
        if all(line.choice.path_choice != other.choice.path_choice for other in kept):
            kept.append(line)
        if len(kept) == limits.starts:
            break
    return kept


def _improve(
    evaluator: Evaluator, line: _PlanLine, offer: Offer, limits: SearchLimits, budget: int, seed: int
) -> int:
    """Improve a line by moves until `budget` are evaluated; returns the number evaluated.

    Where no move helps, two random moves are made and the search goes on from there. The best plan is kept.
    """
    quick, rng = limits.quick, random.Random(seed)
    at, tried = line, 0
    value = best = float(np.mean(evaluator.utilisation(line.choice, quick)))
    until = evaluator.work_done + limits.max_work * budget // max(1, limits.evaluations)
    while tried < budget and evaluator.work_done < until and best < evaluator.bound * (1 - _NEARLY):
        found = None
        groups = [(evaluator.lost(p, quick), i, p) for i, p in enumerate(evaluator.groups(at.choice))]
        groups = [p for p in groups if p[0] > _NEGLIGIBLE * evaluator.bound]
        for _, _, group in sorted(groups, key=lambda x: (-round(x[0], 9), x[1])):
            for move in offer(at.choice, group, rng):
                tried += 1
                got = float(np.mean(evaluator.utilisation(move.choice, quick)))
                if got > value * (1 + GAIN):
                    found, value = move, got
                if found is not None or tried >= budget:
                    break
            if found is not None or tried >= budget:
                break
        if found is not None:
            at = replace(at, choice=found.choice, steps=(*at.steps, found.words))
            if value > best:
                best, line.choice, line.steps = value, at.choice, at.steps
        elif tried < budget:
            if not groups:
                break
            at = _perturbed(replace(line), [p for _, _, p in groups], offer, rng)
            value = float(np.mean(evaluator.utilisation(at.choice, quick)))
            tried += 1
    return tried


def _try_combinations(
    evaluator: Evaluator, line: _PlanLine, cache: RotationCache, mltcp: bool, limits: SearchLimits, seed: int
) -> int:
    """Try combinations of mechanisms on a line's paths as a whole; returns the number of plans evaluated."""
    value, evaluations = float(evaluator.utilisation(line.choice, limits.quick).mean()), 0
    for words, choice in combined_plans(
        evaluator.instance, "these paths", line.choice.path_choice, mltcp=mltcp, cache=cache, seed=seed
    ):
        if legal(evaluator.instance, choice):
            evaluations += 1
            got = float(evaluator.utilisation(choice, limits.quick).mean())
            if got > value * (1 + GAIN):
                value, line.choice, line.steps = got, choice, (*line.steps, words)
    return evaluations


def _perturbed(
    line: _PlanLine, groups: Sequence[SharingGroup], offer: Offer, rng: random.Random
) -> _PlanLine:
    """Apply two random moves to a line, whatever their effect."""
    for _ in range(2):
        group = rng.choice(groups)
        tried = list(islice(offer(line.choice, group, rng), 24))
        if tried:
            move = rng.choice(tried)
            line = replace(line, choice=move.choice, steps=(*line.steps, move.words))
    return line
