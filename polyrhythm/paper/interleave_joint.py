# SPDX-License-Identifier: Apache-2.0
"""Compares the joint search with the enumeration of paths x levels x time-shifts, on very small instances.

The enumeration does not depend on the search. It covers all that the loop may decide: paths, levels, MLTCP
for each job, and time-shifts of any set of jobs, with periods up to the longest that the loop may use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JobTiming, Step, plain
from controller.interleave.joint.sharing_groups import legal
from controller.interleave.period import quantise
from controller.planner.loop.search import solve
from polyrhythm.paper.interleave_cases import SMALL, InterleaveCase, JobCase
from polyrhythm.paper.interleave_sim import simulate_choice

SHIFTS = 10
"""Time-shifts tried for each job but the first: tenths of its period. Chosen."""
JOBS = 3
_LOOK, _CLOSE = Effort((301,), 20), Effort((302, 303), 60)
_CLOSER, _CLOSEST = 24, 12
_MIN_STRETCH = 1.004
"""A period is at least this much longer than the job's own, which leaves room for the jitter."""
_LAPS, _WIDER = 2, 1.04
"""Longer periods: rounds of up to 2 iterations of the longest job, each round longer by the factor."""
_FINER = (1 / 20, 1 / 60, 1 / 180)
"""Fractions of a period by which time-shifts are moved to refine the best plans of the grid."""


def draw_small(number: int, seed: int) -> InterleaveCase:
    """Draw three jobs of two servers each, over two spines."""
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
    return InterleaveCase(f"small {number}", SMALL, "small", tuple(jobs), rng.randrange(1 << 30))


def periods(own: Sequence[int], slowest: float) -> Iterator[tuple[int, ...]]:
    """Common periods of the jobs in ns: first the quantised ones, then longer ones.

    The longer ones divide a common round in which each job has a whole number of iterations. No period is
    longer than `slowest` times the job's own.
    """
    fitted = quantise(own, min_stretch=_MIN_STRETCH)
    seen = set()
    if fitted is not None:
        seen.add(fitted.periods)
        yield fitted.periods
    for laps in range(1, _LAPS + 1):
        around = laps * max(own) * _MIN_STRETCH
        while around <= laps * max(own) * slowest:
            often = [
                range(math.ceil(around / (slowest * t)), int(around / (t * _MIN_STRETCH)) + 1) for t in own
            ]
            for times in product(*often):
                unit = math.lcm(*times)
                whole = -(-round(around) // unit) * unit
                found = tuple(whole // n for n in times)
                if math.gcd(*times) == 1 and found not in seen:
                    seen.add(found)
                    if all(p <= slowest * t for p, t in zip(found, own, strict=True)):
                        yield found
            around *= _WIDER


def grid_timings(
    instance: Instance, scheduled: Sequence[int], fitted: Sequence[int]
) -> Iterator[tuple[JobTiming, ...]]:
    """The timings of the `scheduled` jobs at these periods, for every time-shift of the grid."""
    for steps in product(range(1), *[range(SHIFTS)] * (len(scheduled) - 1)):
        timings = [UNSCHEDULED] * len(instance.jobs)
        for j, period, k in zip(scheduled, fitted, steps, strict=True):
            timings[j] = (period, k * period // SHIFTS)
        yield tuple(timings)


def orders(count: int) -> list[tuple[int, ...]]:
    """All assignments of jobs to levels that differ in the order of the jobs."""
    return [c for c in product(range(count), repeat=count) if set(c) == set(range(max(c) + 1))]


class Enumeration:
    """Evaluates the plans of a small instance. `best` are the best of `count` plans."""

    def __init__(self, instance: Instance, evaluator: Evaluator) -> None:
        self._instance = instance
        self._evaluator = evaluator
        self._levels = orders(len(instance.jobs))
        # The spines are equal, so the flows of the first job stay on the first spine.
        fixed = [range(len(f.candidate_paths)) if j else range(1) for j, f in instance.flows]
        self._bases = [plain(instance, path_choice) for path_choice in product(*fixed)]
        self.count = 0
        self.best: list[tuple[float, Choice]] = []

    def run(self) -> None:
        """Evaluate plans without time-shifts, then every set of jobs at every period that can still be
        better.
        """
        instance = self._instance
        count = len(instance.jobs)
        self._try([(UNSCHEDULED,) * count])
        longer: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
        for size in range(2, count + 1):
            for scheduled in combinations(range(count), size):
                found = list(periods([instance.jobs[j].alone_ns for j in scheduled], instance.slowest))
                for i, fitted in enumerate(found):
                    if i:
                        longer.append((self._most(scheduled, fitted), scheduled, fitted))
                    else:
                        self._try(list(grid_timings(instance, scheduled, fitted)))
        for most, scheduled, fitted in sorted(longer, reverse=True):
            if most <= self.best[0][0]:
                break
            self._try(list(grid_timings(instance, scheduled, fitted)))

    def _most(self, scheduled: Sequence[int], fitted: Sequence[int]) -> float:
        """An upper bound of the utilisation of plans with these periods."""
        period = dict(zip(scheduled, fitted, strict=True))
        used = [
            p.weight * p.compute_ns / period.get(j, p.alone_ns) for j, p in enumerate(self._instance.jobs)
        ]
        return sum(used) / sum(p.weight for p in self._instance.jobs)

    def _try(self, listed: Sequence[tuple[JobTiming, ...]]) -> None:
        """Evaluate these timings with all paths and levels, and with MLTCP for any unscheduled jobs."""
        free = [j for j, r in enumerate(listed[0]) if r == UNSCHEDULED]
        senders = [
            tuple(j in on for j in range(len(listed[0])))
            for size in range(len(free) + 1)
            for on in combinations(free, size)
        ]
        for base, timings, level, mltcp in product(self._bases, listed, self._levels, senders):
            choice = replace(base, timings=timings, level=level, mltcp=mltcp)
            if not legal(self._instance, choice):
                continue
            self.count += 1
            value = float(self._evaluator.utilisation(choice, _LOOK)[0])
            if len(self.best) < _CLOSER or value > self.best[-1][0]:
                self.best = sorted([*self.best, (value, choice)], key=lambda x: -x[0])[:_CLOSER]


def refined(instance: Instance, evaluator: Evaluator, choice: Choice) -> Choice:
    """A plan after its time-shifts have been moved by smaller and smaller steps while that is better."""
    best = float(evaluator.utilisation(choice, _CLOSE).mean())
    scheduled = [j for j, r in enumerate(choice.timings) if r != UNSCHEDULED]
    for part in _FINER:
        for j in scheduled[1:]:
            for sign in (1, -1):
                while True:
                    period, shift = choice.timings[j]
                    moved = (shift + sign * round(part * period)) % period
                    timings = tuple((period, moved) if i == j else r for i, r in enumerate(choice.timings))
                    value = float(evaluator.utilisation(replace(choice, timings=timings), _CLOSE).mean())
                    if value <= best * (1 + 1e-6):
                        break
                    best, choice = value, replace(choice, timings=timings)
    return choice


def measure(number: int, seed: int) -> dict[str, Any]:
    """The loop's utilisation and that of the best plan, both simulated with unused seeds.

    `grid` is the best enumerated plan. `optimum` is the best known plan: enumerated, refined off the grid, or
    found by the loop.
    """
    case = draw_small(number, seed)
    instance = case.instance
    evaluator = Evaluator(instance)
    enumeration = Enumeration(instance, evaluator)
    enumeration.run()
    close = sorted(
        (c for _, c in enumeration.best), key=lambda c: -float(evaluator.utilisation(c, _CLOSE).mean())
    )[:_CLOSEST]
    grid = max(simulate_choice(case, choice).utilisation for choice in close)
    finer = [refined(instance, evaluator, choice) for choice in close]
    ours = simulate_choice(case, solve(instance, case.starts).choice).utilisation
    optimum = max([grid, ours, *(simulate_choice(case, choice).utilisation for choice in finer)])
    return {
        "number": number,
        "loop": ours,
        "grid": grid,
        "optimum": optimum,
        "enumerated": enumeration.count,
    }
