# SPDX-License-Identifier: Apache-2.0
"""The loop of time and space: from the best of all single mechanisms, moves until nothing improves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from controller.interleave.joint.evaluator import Effort, Judge, better
from controller.interleave.joint.fluid import Floats
from controller.interleave.joint.instance import Choice, Instance
from controller.interleave.joint.sharing_groups import Part, legal
from controller.interleave.joint.time_sharing import Turns, arranged
from controller.interleave.joint.timings import rotation_cache_of
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.initial_plans import Ways, rivals, together
from controller.planner.loop.moves import Move, level_moves, moves

Offer = Callable[[Choice, Part, random.Random], Iterator[Move]]
"""The moves to try on a part of a choice."""

QUICK = Effort((101, 102), 24)
SURE = Effort((201, 202, 203, 204), 120)
GAIN = 0.002
_NEGLIGIBLE = 0.0005
_NEARLY = 0.003
"""Who is this close to the bound is done: a rhythm costs as much."""
_PROMISING = 3
"""Of the plans given to `settle`, so many are looked at closely."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the loop decides. `base` names the plan it began with, `steps` what it changed, in words;
    utilisations are by the judge, `rivals` of every mechanism alone; `bound` if no job met another."""

    choice: Choice
    base: str
    steps: tuple[str, ...]
    utilisation: float
    bound: float
    rivals: Mapping[str, float]
    judged: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to search: `judged` moves in all, from the best single mechanism and so many `starts`.

    It ends early when the judge has `spent` so much on them. `quick` looks at
    moves, `sure` where it counts. `arranged` sets of paths are made besides those given, by
    at most `work` exchanges each. A gain below `worth` is not worth leaving a given plan.
    """

    judged: int = 300
    spent: int = 1_500_000
    starts: int = 3
    quick: Effort = QUICK
    sure: Effort = SURE
    arranged: int = 2
    work: int = 3_000
    worth: float = GAIN


@dataclass(slots=True)
class _Line:
    """A plan under improvement."""

    base: str
    choice: Choice
    value: Floats
    steps: tuple[str, ...] = ()


def solve(
    instance: Instance,
    paths: Mapping[str, Ways],
    *,
    given: Mapping[str, Choice] | None = None,
    others: Mapping[str, Choice] | None = None,
    mltcp: bool = True,
    limits: Limits = Limits(),
    plain: bool = False,
    seed: int = 0,
) -> Found:
    """The best plan that the loop finds; by its judge never worse than any mechanism alone.

    `paths` are sets of paths, ECMP's first. `given` and `others` are more plans to start from; where those
    given are as good as any but for `limits.worth`, the first such is kept. Deterministic for a seed.
    """
    judge = Judge(instance, plain)
    turns = Turns(instance)
    known = rotation_cache_of(instance, fast=not plain, seed=seed)
    preferred = dict(given or {})

    def offer(choice: Choice, part: Part, rng: random.Random) -> Iterator[Move]:
        return moves(instance, choice, part, turns, known, mltcp=mltcp, rng=rng)

    alone = dict(rivals(instance, paths, mltcp=mltcp, known=known, seed=seed)) | dict(others or {})
    alone = preferred | {name: c for name, c in alone.items() if legal(instance, c)}
    sure = {name: judge.utilisation(c, limits.sure) for name, c in alone.items()}
    best = _best(sure)
    lines = [_Line(best, alone[best], sure[best])]
    judged = len(alone)
    if float(sure[best].mean()) < judge.bound * (1 - _NEARLY):
        lines += _starts(judge, paths, turns, known, mltcp, limits, seed)
        for i, line in enumerate(lines):
            share = limits.judged // len(lines)
            judged += _climb(judge, line, offer, limits, share, seed + i)
            if float(judge.utilisation(line.choice, limits.quick).mean()) >= judge.bound * (1 - _NEARLY):
                break
        for line in lines:
            judged += _polish(judge, line, known, mltcp, limits, seed)
            line.value = judge.utilisation(line.choice, limits.sure)
    return _decided(judge, lines, alone, sure, tuple(preferred), limits, judged)


def settle(
    instance: Instance,
    given: Mapping[str, Choice],
    *,
    limits: Limits,
    plain: bool = False,
    seed: int = 0,
) -> Found | None:
    """The best of the plans given, with moves of levels alone: what there is time for in a crowd.

    Where the first of those given are as good as any but for `limits.worth`, the first such is kept. None
    where `limits.spent` is not enough to look at all of them. Deterministic for a seed.
    """
    judge = Judge(instance, plain)
    cost = max(judge.cost(choice, limits.quick) for choice in given.values())
    if cost * len(given) > limits.spent:
        return None
    quick = {name: float(judge.utilisation(c, limits.quick).mean()) for name, c in given.items()}
    promising = sorted(given, key=lambda name: -round(quick[name], 9))[:_PROMISING]
    plans = {name: c for i, (name, c) in enumerate(given.items()) if i == 0 or name in promising}
    sure = {name: judge.utilisation(c, limits.sure) for name, c in plans.items()}
    best = _best(sure)
    line, judged = _Line(best, plans[best], sure[best]), len(given)
    if float(sure[best].mean()) < judge.bound * (1 - _NEARLY):
        budget = min(limits.judged, limits.spent // max(1, cost))
        offer = partial(level_moves, instance)
        judged += _climb(judge, line, offer, replace(limits, judged=budget), budget, seed)
        line.value = judge.utilisation(line.choice, limits.sure)
    return _decided(judge, [line], plans, sure, tuple(plans), limits, judged)


def _best(sure: Mapping[str, Floats]) -> str:
    """The plan with the highest utilisation; of equal ones the first."""
    return max(sure, key=lambda name: round(float(sure[name].mean()), 9))


def _decided(
    judge: Judge,
    lines: Sequence[_Line],
    plans: Mapping[str, Choice],
    sure: Mapping[str, Floats],
    preferred: Sequence[str],
    limits: Limits,
    judged: int,
) -> Found:
    """The best of the lines, or the first of the preferred plans, at last the best plan, that is as good."""
    # What a short look takes for an improvement may be none.
    best = _best(sure)
    lines = [*lines, _Line(best, plans[best], sure[best])]
    top = max(lines, key=lambda line: round(float(line.value.mean()), 9))
    for name in (*preferred, best):
        if not better(top.value, sure[name], limits.worth):
            top = _Line(name, plans[name], sure[name])
            break
    return Found(
        choice=top.choice,
        base=top.base,
        steps=top.steps,
        utilisation=float(top.value.mean()),
        bound=judge.bound,
        rivals={name: float(value.mean()) for name, value in sure.items()},
        judged=judged,
    )


def _starts(
    judge: Judge,
    paths: Mapping[str, Ways],
    turns: Turns,
    known: RotationCache,
    mltcp: bool,
    limits: Limits,
    seed: int,
) -> list[_Line]:
    """The most promising plans of several mechanisms together, on paths given and arranged."""
    instance = judge.instance
    sets = dict(paths)
    for i, (name, ways) in enumerate(list(paths.items())[::-1][: limits.arranged]):
        sets[f"{name} arranged"] = arranged(instance, ways, turns, seed=seed + i, work=limits.work)
    found: dict[Choice, _Line] = {}
    for name, ways in sets.items():
        for words, choice in together(instance, name, ways, mltcp=mltcp, known=known, seed=seed):
            if choice not in found and legal(instance, choice):
                found[choice] = _Line(words, choice, judge.utilisation(choice, limits.quick))
    ordered = sorted(found.values(), key=lambda line: -round(float(line.value.mean()), 9))
    kept: list[_Line] = []
    for line in ordered:
        # Lines on the same paths end alike: begin on different ones.
        if all(line.choice.ways != other.choice.ways for other in kept):
            kept.append(line)
        if len(kept) == limits.starts:
            break
    return kept


def _climb(judge: Judge, line: _Line, offer: Offer, limits: Limits, budget: int, seed: int) -> int:
    """Improve a line by moves until `budget` are judged; returns how many were.

    Where no move helps, two at random are made and the climb goes on from there; the best is kept.
    """
    quick, rng = limits.quick, random.Random(seed)
    at, spent = line, 0
    value = best = float(np.mean(judge.utilisation(line.choice, quick)))
    until = judge.spent + limits.spent * budget // max(1, limits.judged)
    while spent < budget and judge.spent < until and best < judge.bound * (1 - _NEARLY):
        found = None
        parts = [(judge.lost(p, quick), i, p) for i, p in enumerate(judge.parts(at.choice))]
        parts = [p for p in parts if p[0] > _NEGLIGIBLE * judge.bound]
        for _, _, part in sorted(parts, key=lambda x: (-round(x[0], 9), x[1])):
            for move in offer(at.choice, part, rng):
                spent += 1
                got = float(np.mean(judge.utilisation(move.choice, quick)))
                if got > value * (1 + GAIN):
                    found, value = move, got
                if found is not None or spent >= budget:
                    break
            if found is not None or spent >= budget:
                break
        if found is not None:
            at = replace(at, choice=found.choice, steps=(*at.steps, found.words))
            if value > best:
                best, line.choice, line.steps = value, at.choice, at.steps
        elif spent < budget:
            if not parts:
                break
            at = _kicked(replace(line), [p for _, _, p in parts], offer, rng)
            value = float(np.mean(judge.utilisation(at.choice, quick)))
            spent += 1
    return spent


def _polish(judge: Judge, line: _Line, known: RotationCache, mltcp: bool, limits: Limits, seed: int) -> int:
    """Take what fits a line's paths as a whole, if that is better; returns how many plans were judged."""
    value, judged = float(judge.utilisation(line.choice, limits.quick).mean()), 0
    for words, choice in together(
        judge.instance, "these paths", line.choice.ways, mltcp=mltcp, known=known, seed=seed
    ):
        if legal(judge.instance, choice):
            judged += 1
            got = float(judge.utilisation(choice, limits.quick).mean())
            if got > value * (1 + GAIN):
                value, line.choice, line.steps = got, choice, (*line.steps, words)
    return judged


def _kicked(line: _Line, parts: Sequence[Part], offer: Offer, rng: random.Random) -> _Line:
    """Two moves at random from a line, whatever they do to it."""
    for _ in range(2):
        part = rng.choice(parts)
        tried = list(islice(offer(line.choice, part, rng), 24))
        if tried:
            move = rng.choice(tried)
            line = replace(line, choice=move.choice, steps=(*line.steps, move.words))
    return line
