# SPDX-License-Identifier: Apache-2.0
"""The evaluator together with an objective: the value of every plan that the search looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid_arrays import Floats
from controller.interleave.joint.instance import UNSCHEDULED, Choice
from controller.interleave.joint.sharing_groups import SharingGroup
from controller.planner.loop.objective import Objective, PlanValue, delicate_jobs, twins_of

NEARLY = 0.003
"""A plan within this part of the bound is good enough. Chosen: a schedule costs each job about as much, since
its period is at least 0.2 % longer than its own."""
_LONGER_BURSTS = 0.1
"""A plan is also looked at with Up phases that are longer by this part. Chosen: bursts of kernel TCP differ
from their profile by about as much."""
_NEGLIGIBLE = 0.0005
"""Groups that lose less than this part of the bound are not improved. Chosen: a quarter of the gain that a
move must have."""

Measured = tuple[Choice, Mapping[int, float]]
"""A plan, and measured iterations in ns by number of the job."""


def _apart_from_shifts(choice: Choice) -> tuple[object, ...]:
    return choice.path_choice, choice.level, tuple(period for period, _ in choice.timings), choice.mltcp


Stop = Callable[[], bool]
"""Whether a search shall end with the best that it has. A search asks only once it has something."""


class SearchStoppedError(Exception):
    """The search shall end, so no further plan is evaluated."""


def never() -> bool:
    """For searches that nobody stops."""
    return False


@dataclass
class PlanValues:
    """Values of plans of the evaluator's instance under an objective.

    `measured` is a plan that was in force, and the iterations in ns that some jobs were measured to take
    under it, by number. They count where the evaluator expects less, also for the same plan with other
    shifts. Once `stop` says so, the methods raise SearchStoppedError instead of evaluating; `best_known`
    holds it back until there is a plan to end with.
    """

    evaluator: Evaluator
    objective: Objective
    measured: Measured | None = None
    stop: Stop = never
    best_known: bool = False
    _twins: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def value(self, choice: Choice, effort: Effort) -> PlanValue:
        """The value of a plan by a thorough evaluation: the mean of two, as it is and with Up phases that are
        longer by `effort.longer`. The expected iterations are those as it is. A third one, of one seed, tells
        how many jobs depend on bursts that are no longer than their profile says.
        """
        twins = self.twins(choice)
        own = self._lengths(choice, replace(effort, longer=0.0))
        longer = self._lengths(choice, effort)
        used = (self.evaluator.used(own) + self.evaluator.used(longer)) / 2
        found = self.objective.value((own + longer) / 2, used, twins, choice)
        lengths = self.objective.value(own, used, twins, choice).lengths
        return replace(found, lengths=lengths, delicate=self._delicate(choice, effort))

    def _delicate(self, choice: Choice, effort: Effort) -> int:
        """How many jobs lose most of a period where all bursts are longer than their profiles say."""
        if all(timing == UNSCHEDULED for timing in choice.timings):
            return 0
        rough = replace(effort, seeds=effort.seeds[:1], longer=_LONGER_BURSTS)
        return delicate_jobs(choice, self._lengths(choice, rough)[0].tolist())

    def quick_value(self, choice: Choice, effort: Effort) -> PlanValue:
        """The value of a plan by a quick evaluation, under the lower limits of `Objective.cautious`."""
        lengths = self._lengths(choice, effort)
        return self._cautious.value(lengths, self.evaluator.used(lengths), self.twins(choice), choice)

    @cached_property
    def _cautious(self) -> Objective:
        return self.objective.cautious()

    def _lengths(self, choice: Choice, effort: Effort) -> Floats:
        self._may_stop()
        lengths = self.evaluator.lengths(choice, effort, self._may_stop)
        if self.measured is not None and _apart_from_shifts(choice) == _apart_from_shifts(self.measured[0]):
            for job, ns in self.measured[1].items():
                lengths[:, job] = np.maximum(lengths[:, job], ns)
        return lengths

    def _may_stop(self) -> None:
        if self.best_known and self.stop():
            raise SearchStoppedError

    def twins(self, choice: Choice) -> tuple[tuple[int, ...], ...]:
        """The sets of twins on the plan's paths."""
        if choice.path_choice not in self._twins:
            self._twins[choice.path_choice] = twins_of(
                self.evaluator.instance, self.evaluator.sharing(choice.path_choice)
            )
        return self._twins[choice.path_choice]

    def levelled_twins(self, choice: Choice) -> tuple[tuple[int, ...], ...]:
        """The sets of twins on the plan's paths that the objective does not let be far apart, so that they
        need one level."""
        return () if self.objective.twins_apart is None else self.twins(choice)

    def good_enough(self, value: PlanValue) -> bool:
        """Whether no search can gain much: no limit is exceeded, and the utilisation is near the bound."""
        return value.met and value.mean >= self.evaluator.bound * (1 - NEARLY)

    def losing_groups(self, choice: Choice, effort: Effort) -> list[SharingGroup]:
        """The sharing groups of a plan that lose utilisation, the largest loss first, after those with a job
        above its limit."""
        wronged = self._cautious.wronged(self.quick_value(choice, effort), self.twins(choice))
        found = []
        for i, group in enumerate(self.evaluator.groups(choice)):
            lost = self.evaluator.lost(group, effort)
            wrong = not wronged.isdisjoint(group.jobs)
            if wrong or lost > _NEGLIGIBLE * self.evaluator.bound:
                found.append((not wrong, -round(lost, 9), i, group))
        return [group for *_, group in sorted(found, key=lambda x: x[:3])]
