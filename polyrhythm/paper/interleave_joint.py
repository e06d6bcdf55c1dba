# SPDX-License-Identifier: Apache-2.0
"""Instances so small that paths x priorities x shifts can be enumerated: how near the loop comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random

from controller.interleave.joint.judge import Effort, Judge
from controller.interleave.joint.values import FREE, Choice, Instance, Rhythm, Step, plain
from controller.interleave.period import quantise
from controller.planner.loop.search import solve
from polyrhythm.paper.interleave_cases import SMALL, Case, JobCase
from polyrhythm.paper.interleave_sim import see

SHIFTS = 10
"""Shifts tried for each job but the first of a rhythm: tenths of its period."""
JOBS = 3
_LOOK = Effort((301,), 20)
_CLOSER = 12
_HOLD = 1.004
"""How much longer than its job's own the period of a rhythm is: enough for the jitter."""


def draw_small(number: int, seed: int) -> Case:
    """Three jobs of two servers each, over two spines."""
    rng = Random(f"{seed}/small/{number}")
    jobs = []
    for j in range(JOBS):
        period = rng.choice((120, 200, 200, 240, 300, rng.randint(120, 300)))
        up = round(rng.uniform(0.3, 0.7) * period * 1e6)
        jobs.append(
            JobCase(
                f"j{j}",
                (f"h{j + 1}", f"h{JOBS + j + 1}"),
                (Step(up, 50_000_000_000, period * 1_000_000 - up),),
            )
        )
    return Case(f"small {number}", SMALL, "small", tuple(jobs), rng.randrange(1 << 30))


def rhythms(instance: Instance) -> Iterator[tuple[Rhythm, ...]]:
    """Nobody, or every set of jobs whose periods can be quantised, held at every shift of the grid."""
    count = len(instance.players)
    yield (FREE,) * count
    for size in range(2, count + 1):
        for held in combinations(range(count), size):
            own = [instance.players[j].alone_ns for j in held]
            fitted = quantise(own, hold=_HOLD)
            if fitted is None:
                continue
            for turns in product(range(1), *[range(SHIFTS)] * (size - 1)):
                rhythm = [FREE] * count
                for j, period, k in zip(held, fitted.periods, turns, strict=True):
                    rhythm[j] = (period, k * period // SHIFTS)
                yield tuple(rhythm)


def orders(count: int) -> list[tuple[int, ...]]:
    """Every way to put jobs on levels, told apart by who goes first alone."""
    return [c for c in product(range(count), repeat=count) if set(c) == set(range(max(c) + 1))]


def measure(number: int, seed: int) -> dict[str, float]:
    """The loop's utilisation and that of the best of all, both on the simulator under unseen seeds."""
    case = draw_small(number, seed)
    instance = case.instance
    judge = Judge(instance)
    # The spines are alike: the first job's flows stay on the first.
    fixed = [range(len(f.ways)) if j else range(1) for j, f in instance.flows]
    scored: list[tuple[float, Choice]] = []
    for ways in product(*fixed):
        base = plain(instance, ways)
        for rhythm in rhythms(instance):
            for level in orders(len(instance.players)):
                choice = replace(base, rhythm=rhythm, level=level)
                scored.append((float(judge.utilisation(choice, _LOOK)[0]), choice))
    scored.sort(key=lambda x: -x[0])
    optimum = max(see(case, choice).utilisation for _, choice in scored[:_CLOSER])
    ours = see(case, solve(instance, case.starts).choice).utilisation
    return {"number": number, "loop": ours, "optimum": optimum, "enumerated": len(scored)}
