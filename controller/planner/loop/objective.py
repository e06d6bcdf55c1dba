# SPDX-License-Identifier: Apache-2.0
"""What makes one plan better than another: a floor for each job, equal treatment of twins, then GPU
utilisation.

Plans are compared in this order: (a) whether all jobs keep their limits, (b) how far twins are apart beyond
what is allowed, (c) GPU utilisation, (d) among plans of nearly the best utilisation, the job that is worst
off. Of plans that all break a limit the one with the least harm is taken: the part by which the worst job is
above its limit, or by which twins are too far apart, whichever is larger."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from controller.interleave.joint.evaluator import better
from controller.interleave.joint.fluid_arrays import Floats
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance
from controller.interleave.joint.sharing_groups import Sharing

CERTAIN = 2.5
"""How many standard errors a job is kept below its floor. Three errors are independent, so they are added in
quadrature: the evaluator's (ERROR), the spread of the job's iteration over start times and jitter (jobs of
like periods without slots keep the start times that they happen to have), and the error of its iteration
under ECMP (`ecmp_reference.py`). Chosen: in 47 scenarios of `polyrhythm paper battery` the ratio to ECMP on
packets exceeded the expected one by more than this in 2 of 100 jobs without slots."""
ERROR = 0.045
"""The standard error of the evaluator for a job without slots, as a part of its iteration. Chosen: measured
there, without what the start times explain."""
SLOT_ERROR = 0.02
"""The same for jobs that keep their slots. Their iterations are as long as their period, whatever the start
times are. Chosen."""
TWINS_APART = 0.10
"""By how much the expected iterations of twins may differ, as a part of the shorter one. Chosen."""
NEAR = 0.01
"""Plans within this part of the best utilisation count as equal in it; the one whose worst-off job is best
off is taken. Chosen."""
WORSE_OFF = 0.05
"""The part by which the worst-off job must be better off under a new plan of nearly the same utilisation, if
it is to replace a plan that is to be kept. Chosen: more than the noise of a thorough evaluation."""
CAUTION = 0.03
"""The part by which limits are lowered for a quick evaluation, whose result differs from a thorough one by
about as much. Chosen."""
_MISSED = 0.02
"""A job that takes longer than its slots' period by this part does not keep them: all slots move later again
and again. Chosen: more than jitter costs."""
_LOST = 0.5
"""A job loses most of a period if its iterations are longer than its slots' period by this part. Chosen:
slots that move later, so that all jobs keep them, cost less."""
_COUNTED = 20
"""The mean of this many iterations in a row may not be below the floor. Chosen: with 10, plans whose jobs
took two periods at a time, as expected, were refused; without this error, one was in force whose job took
1.75 times its iteration under ECMP."""
MISSED_COST = 0.05
"""A plan in which jobs do not keep their slots must gain this part of the utilisation. Chosen: where the
battery's plans of this kind were to gain less, packets confirmed no gain, and made twins unequal."""
_STEP = 0.01
"""Breaches and gaps are compared in steps of this size. Chosen: about the noise of a quick evaluation."""


Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PlanValue:
    """What the evaluator and the objective say of a plan.

    `lengths` are the expected iterations by job in ns, `utilisation` the GPU utilisation by seed. `breach` is
    the part by which the worst job exceeds its limit, `twin_gap` the part by which twins are farther apart
    than allowed; both are 0 if there is none. `worst` is the largest ratio of a job's iteration to its
    reference. `unlike` counts the sets of twins that the plan treats in several ways, `missing` the jobs that
    do not keep their slots, `delicate` those that lose most of a period if all bursts are a little longer
    than their profiles say. `limits` are the longest iterations by job in ns that this plan may have: the
    shorter the less sure they are; empty if there are none.
    """

    lengths: tuple[float, ...]
    utilisation: tuple[float, ...]
    breach: float = 0.0
    twin_gap: float = 0.0
    worst: float = 0.0
    unlike: int = 0
    missing: int = 0
    delicate: int = 0
    limits: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """The mean GPU utilisation, rounded so that equal plans have equal values."""
        return round(fmean(self.utilisation), 9)

    @property
    def counted(self) -> float:
        """The mean utilisation by which plans are compared: less where jobs do not keep their slots."""
        return round(self.mean * self._worth, 9)

    @property
    def by_seed(self) -> Floats:
        """The same by seed."""
        return np.array(self.utilisation) * self._worth

    @property
    def _worth(self) -> float:
        return 1 - MISSED_COST if self.missing else 1.0

    @property
    def met(self) -> bool:
        """Whether no job exceeds its limit, and no twins are too far apart."""
        return self.rank == (0, 0)

    @property
    def rank(self) -> tuple[int, int]:
        """The harm of a plan that breaks a limit, then the gap of twins, in whole steps. The smaller pair is
        better whatever the utilisation. Where no plan keeps all limits, none is chosen that lets some of many
        equal jobs starve for a smaller breach."""
        breach, gap = _steps(self.breach), _steps(self.twin_gap)
        return (max(breach, gap) if breach else 0), gap

    @property
    def among_near(self) -> tuple[int, int, int, int]:
        """Which of several plans of nearly the same utilisation is better: the one in which more jobs keep
        their slots, also with longer bursts, then whose worst-off job is better off, then that treats fewer
        twins in several ways. The smaller is better."""
        return self.missing, self.delicate, round(self.worst / _STEP), self.unlike


def _steps(excess: float) -> int:
    return math.ceil(round(excess / _STEP, 6)) if math.isfinite(excess) else 10**9


@dataclass(frozen=True)
class Objective:
    """By job of an instance: `floors`, the longest iteration in ns (empty: any), `reference`, the iteration
    in ns under plain ECMP, that losses are measured against (empty: (d) does not count), `errors`, the
    standard error of the reference as a part of it (empty: none), and `caps`, the longest iteration in ns one
    standard deviation above the mean, whatever the reference is (empty: any). Twins may be `twins_apart`
    apart (None: any). `caution` lowers the floors of jobs without slots by this part.

    Without arguments utilisation alone counts.
    """

    floors: tuple[float, ...] = ()
    reference: tuple[float, ...] = ()
    twins_apart: float | None = None
    caution: float = 0.0
    errors: tuple[float, ...] = ()
    caps: tuple[float, ...] = ()

    def cautious(self) -> Objective:
        """The same objective for quick evaluations: with lower limits for jobs that are not scheduled."""
        return replace(self, caution=CAUTION)

    @property
    def slot_limits(self) -> tuple[float, ...]:
        """The longest iteration of each job in ns if all keep their slots. Empty if there is no limit."""
        count = max(len(self.floors), len(self.caps))
        found = self._limits(np.zeros(count), np.zeros(count, dtype=np.bool_)) if count else np.zeros(0)
        return tuple(found.tolist())

    def _limits(self, spread: Floats, free: Bools) -> Floats:
        """The limits by job. `spread` is the standard deviation of an iteration over start times as a part of
        it; `free` are the jobs without slots, and those that do not keep them.

        No limit that comes from a floor is below the reference.
        """
        found = np.full(len(spread), np.inf)
        if self.floors:
            model = np.where(free, ERROR, SLOT_ERROR)
            errors = np.array(self.errors) if self.errors else 0.0
            # Scheduled jobs need no caution: their iterations hardly vary.
            floors = np.array(self.floors) * (1 - self.caution * free)
            found = floors / (1 + CERTAIN * np.sqrt(model**2 + spread**2 + errors**2))
            if self.reference:
                found = np.maximum(found, self.reference)
        if self.caps:
            found = np.minimum(found, np.array(self.caps) / (1 + spread))
        return found

    def value(
        self,
        lengths: Floats,
        utilisation: Floats,
        twins: Sequence[Sequence[int]] = (),
        choice: Choice | None = None,
    ) -> PlanValue:
        """The value of a plan with iterations of `lengths` in ns, shape (seeds, jobs), and this `utilisation`
        by seed.

        `twins` are sets of jobs that are alike on the paths of `choice`. Twins on one level without slots are
        interchangeable: the mean over them is expected of each.
        """
        expected: Floats = lengths.mean(axis=0)
        for alike in twins:
            for pool in _interchangeable(alike, choice):
                expected[pool] = expected[pool].mean()
        missing = _missing(choice, expected.tolist())
        breach = twin_gap = 0.0
        limits = np.zeros(0)
        if (self.floors or self.caps) and len(expected):
            free = _without_slots(choice, len(expected))
            spread = np.hypot(free * lengths.std(axis=0) / expected, _whole_periods(choice, expected))
            limits = self._limits(spread, free | np.array(missing))
            breach = max(0.0, float((expected / limits).max()) - 1)
        if self.twins_apart is not None:
            for alike in twins:
                own = expected[list(alike)]
                twin_gap = max(twin_gap, float(own.max() / own.min()) - 1 - self.twins_apart)
        worst = float((expected / self.reference).max()) if self.reference and len(expected) else 0.0
        unlike = 0
        if choice is not None and self.twins_apart is not None:
            unlike = sum(_unlike(alike, choice) for alike in twins)
        return PlanValue(
            lengths=tuple(expected.tolist()),
            utilisation=tuple(utilisation.tolist()),
            breach=breach,
            twin_gap=twin_gap,
            worst=worst,
            unlike=unlike,
            missing=sum(missing),
            limits=tuple(limits.tolist()),
        )

    def wronged(self, value: PlanValue, twins: Sequence[Sequence[int]]) -> frozenset[int]:
        """The jobs above their limits, and twins that are too far apart."""
        found = {j for j, limit in enumerate(value.limits) if value.lengths[j] > limit}
        if self.twins_apart is not None:
            for alike in twins:
                own = [value.lengths[j] for j in alike]
                if max(own) > min(own) * (1 + self.twins_apart):
                    found |= set(alike)
        return frozenset(found)


UTILISATION = Objective()


def _missing(choice: Choice | None, expected: Sequence[float]) -> list[bool]:
    """By job: whether it has slots that it does not keep. `expected` are the iterations in ns."""
    return [False] * len(expected) if choice is None else _beyond_period(choice, expected, _MISSED)


def _whole_periods(choice: Choice | None, expected: Floats) -> Floats:
    """By job: the standard error of a mean iteration, as a part of it, because a job that misses its slot
    waits for the next one; 0 for a job that keeps its slots or has none.

    Its iterations last whole periods. Jitter decides which of the two nearest numbers: `expected` says only
    how often each.
    """
    if choice is None:
        return np.zeros(len(expected))
    missing = np.array(_missing(choice, expected.tolist()))
    periods = np.where(missing, [period or 1 for period, _ in choice.timings], expected)
    count = expected / periods
    longer = count - np.floor(count)
    return np.sqrt(longer * (1 - longer) / _COUNTED) / count


def delicate_jobs(choice: Choice, lengths: Sequence[float]) -> int:
    """How many jobs with slots have iterations of `lengths` in ns that lose most of a period."""
    return sum(_beyond_period(choice, lengths, _LOST))


def _beyond_period(choice: Choice, lengths: Sequence[float], part: float) -> list[bool]:
    """By job: whether its iterations are longer than its slots' period by this part."""
    return [
        timing != UNSCHEDULED and ns > timing[0] * (1 + part)
        for timing, ns in zip(choice.timings, lengths, strict=True)
    ]


def _without_slots(choice: Choice | None, count: int) -> Bools:
    """By job: whether it runs at its own pace. Scheduled iterations hardly vary. Without a choice all do."""
    if choice is None:
        return np.ones(count, dtype=np.bool_)
    return np.array([timing == UNSCHEDULED for timing in choice.timings], dtype=np.bool_)


def _interchangeable(alike: Iterable[int], choice: Choice | None) -> list[list[int]]:
    """The twins that the plan treats alike: without slots, on one level, with the same congestion control."""
    if choice is None:
        return []
    pools: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for j in alike:
        if choice.timings[j] == UNSCHEDULED:
            pools[choice.level[j], choice.mltcp[j]].append(j)
    return [pool for pool in pools.values() if len(pool) > 1]


def _unlike(alike: Iterable[int], choice: Choice) -> bool:
    """Whether the plan treats these jobs in several ways: by level, period or congestion control."""
    return len({(choice.level[j], choice.timings[j][0], choice.mltcp[j]) for j in alike}) > 1


def twins_of(instance: Instance, sharing: Sharing) -> tuple[tuple[int, ...], ...]:
    """Sets of jobs that are alike on these paths: the same steps, GPUs and transport, and the same flows over
    the same full links."""
    found = []
    for group in sharing.groups:
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for j in group:
            job = instance.jobs[j]
            # Measured bytes of flows that are equal differ a little.
            streams = sharing.streams.get(j, ())
            flows = tuple(sorted((s.links, round(s.relative_size, 1), s.count) for s in streams))
            if flows:
                uncontended = round(sharing.uncontended_size.get(j, 0.0), 1)
                alike[job.steps, job.weight, job.mltcp_capable, flows, uncontended].append(j)
        found += [tuple(jobs) for jobs in alike.values() if len(jobs) > 1]
    return tuple(found)


def improves(ours: PlanValue, theirs: PlanValue, gain: float) -> bool:
    """Whether a step of the search from `theirs` to `ours` improves: by `PlanValue.rank`, then by more than
    the part `gain` of the utilisation."""
    if ours.rank != theirs.rank:
        return ours.rank < theirs.rank
    return ours.counted > theirs.counted * (1 + gain)


def replaces(ours: PlanValue, theirs: PlanValue, min_gain: float) -> bool:
    """Whether `ours` is so much better that it replaces a plan that is to be kept where possible."""
    if ours.rank != theirs.rank:
        return ours.rank < theirs.rank
    if better(ours.by_seed, theirs.by_seed, min_gain):
        return True
    if ours.counted < theirs.counted * (1 - NEAR):
        return False
    if (ours.missing, ours.delicate) != (theirs.missing, theirs.delicate):
        return (ours.missing, ours.delicate) < (theirs.missing, theirs.delicate)
    return ours.worst < theirs.worst * (1 - WORSE_OFF)


def best(values: Mapping[str, PlanValue]) -> str:
    """The name of the best plan; of equal ones the first."""
    rank = min(v.rank for v in values.values())
    allowed = {name: v for name, v in values.items() if v.rank == rank}
    most = max(v.counted for v in allowed.values())
    near = [name for name, v in allowed.items() if v.counted >= most * (1 - NEAR)]
    return min(near, key=lambda name: (*allowed[name].among_near, -allowed[name].counted))
