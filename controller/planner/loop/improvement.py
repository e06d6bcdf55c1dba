# SPDX-License-Identifier: Apache-2.0
"""Improves one plan by moves, and by whole combinations of mechanisms on its paths."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from controller.interleave.joint.evaluator import Effort
from controller.interleave.joint.instance import Choice
from controller.interleave.joint.sharing_groups import SharingGroup, legal
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.initial_plans import combined_plans
from controller.planner.loop.moves import Move
from controller.planner.loop.objective import NEAR, PlanValue, improves
from controller.planner.loop.plan_values import PlanValues

Offer = Callable[[Choice, SharingGroup, random.Random], Iterator[Move]]
"""The moves to try on a sharing group of a choice."""
GAIN = 0.002
"""The part of the utilisation by which a move must improve it. Chosen: about the noise of a quick
evaluation."""


DOUBT = 0.1
"""A plan that exceeds a limit by no more than this part in a quick evaluation may keep it in a thorough one.
Chosen: over one start time and few iterations the slowest of ten jobs is about as much slower."""


@dataclass(slots=True)
class PlanLine:
    """A plan under improvement, with its quick value. `start` names the plan that it was, `steps` its changes
    in words."""

    start: str
    choice: Choice
    value: PlanValue
    steps: tuple[str, ...] = ()


@dataclass
class Shortlist:
    """All plans with their quick values, from which the finalists for a thorough evaluation are taken."""

    lines: dict[Choice, PlanLine] = field(default_factory=dict)

    def add(self, line: PlanLine) -> None:
        """Remember a plan."""
        self.lines.setdefault(line.choice, replace(line))

    def finalists(self, count: int, more: int) -> list[PlanLine]:
        """The `count` plans of nearly the best utilisation whose worst-off job is best off, then as many of
        the highest utilisation, then `more` of which each has a better worst-off job than the one before.

        No plan that exceeds a limit more than another is among them.
        """
        if not self.lines:
            return []
        rank = min(line.value.rank for line in self.lines.values())
        allowed = [line for line in self.lines.values() if line.value.rank == rank]
        high = sorted(allowed, key=lambda line: -line.value.counted)
        near = [line for line in high if line.value.counted >= high[0].value.counted * (1 - NEAR)]
        near.sort(key=lambda line: line.value.among_near)
        safer = [high[0]]
        for line in high:
            if line.value.worst < safer[-1].value.worst * (1 - NEAR):
                safer.append(line)
        return list({x.choice: x for x in (*near[:count], *high[:count], *safer[:more])}.values())

    def doubtful(self, count: int) -> list[PlanLine]:
        """The `count` plans of the highest utilisation that exceed a limit by no more than a quick evaluation
        may be wrong, if they use the GPUs more than every plan that does not."""
        met = [line.value.counted for line in self.lines.values() if line.value.met]
        least = max(met, default=0.0) * (1 + NEAR)
        found = [
            line
            for line in self.lines.values()
            if not line.value.met and line.value.breach <= DOUBT and line.value.rank[1] == 0
        ]
        return sorted((x for x in found if x.value.counted > least), key=lambda x: -x.value.counted)[:count]


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `moves` are evaluated by `quick`, and at most `work` of the evaluator is done on them."""

    moves: int
    work: int
    quick: Effort


def improve(
    values: PlanValues, line: PlanLine, offer: Offer, shortlist: Shortlist, budget: Budget, seed: int
) -> int:
    """Improve a line by moves until the budget is spent; returns the number of moves evaluated.

    Where no move helps, two random moves are made and the search goes on from there. The best plan is kept.
    All plans that were evaluated are added to the shortlist."""
    evaluator, quick, rng = values.evaluator, budget.quick, random.Random(seed)
    at, tried = line, 0
    value = line.value
    until = evaluator.work_done + budget.work
    while tried < budget.moves and evaluator.work_done < until and not values.good_enough(line.value):
        found = None
        groups = values.losing_groups(at.choice, quick)
        for group in groups:
            for move in offer(at.choice, group, rng):
                tried += 1
                got = values.quick_value(move.choice, quick)
                shortlist.add(PlanLine(at.start, move.choice, got, (*at.steps, move.words)))
                if improves(got, value, GAIN):
                    found, value = move, got
                if found is not None or tried >= budget.moves or evaluator.work_done >= until:
                    break
            if found is not None or tried >= budget.moves or evaluator.work_done >= until:
                break
        if found is not None:
            at = replace(at, choice=found.choice, steps=(*at.steps, found.words))
            if improves(value, line.value, 0.0):
                line.value, line.choice, line.steps = value, at.choice, at.steps
        elif tried < budget.moves:
            if not groups:
                break
            at = _perturbed(replace(line), groups, offer, rng)
            value = values.quick_value(at.choice, quick)
            shortlist.add(replace(at, value=value))
            tried += 1
    return tried


def try_combinations(
    values: PlanValues,
    line: PlanLine,
    shortlist: Shortlist,
    cache: RotationCache,
    quick: Effort,
    *,
    mltcp: bool,
    seed: int,
) -> int:
    """Try combinations of mechanisms on a line's paths as a whole; returns the number of plans evaluated."""
    instance, evaluations = values.evaluator.instance, 0
    for words, choice in combined_plans(
        instance, "these paths", line.choice.path_choice, mltcp=mltcp, cache=cache, seed=seed
    ):
        if legal(instance, choice):
            evaluations += 1
            got = values.quick_value(choice, quick)
            shortlist.add(PlanLine(line.start, choice, got, (*line.steps, words)))
            if improves(got, line.value, GAIN):
                line.value, line.choice, line.steps = got, choice, (*line.steps, words)
    return evaluations


def _perturbed(line: PlanLine, groups: Sequence[SharingGroup], offer: Offer, rng: random.Random) -> PlanLine:
    """Apply two random moves to a line, whatever their effect."""
    for _ in range(2):
        group = rng.choice(groups)
        tried = list(islice(offer(line.choice, group, rng), 24))
        if tried:
            move = rng.choice(tried)
            line = replace(line, choice=move.choice, steps=(*line.steps, move.words))
    return line
