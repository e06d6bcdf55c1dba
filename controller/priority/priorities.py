# SPDX-License-Identifier: Apache-2.0
"""The built-in priorities of policies, each with its own options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.model import TRAFFIC_CLASSES
from controller.priority.crux import RankedJob
from controller.priority.fairness import FairAssignment, fair_assignment
from controller.priority.methods import METHODS, Method, Setting
from controller.priority.protocol import LevelProblem, Levels, Priority, RankingProblem

MOST_FAIR = 32
"""Jobs that contend, up to which `Crux.loss_cap` is kept: each assignment tried is simulated in time.
Chosen so that a plan takes seconds."""


@dataclass(frozen=True)
class _MethodPriority(Priority):
    """A method of `controller.priority.methods`, cut into at most `levels` levels."""

    levels: int = 6
    method: ClassVar[Method]

    def __post_init__(self) -> None:
        if self.levels < 1:
            raise ValueError(f"levels must be at least 1, not {self.levels}")

    def rank(self, problem: RankingProblem) -> Sequence[RankedJob]:
        """The method's order."""
        return self.method.rank(problem.jobs, problem.rates, Setting(seed=problem.seed))

    def assign_levels(self, problem: LevelProblem) -> Levels:
        """The method's cut."""
        return Levels(self._cut(problem, min(self.levels, problem.most)))

    def _cut(self, problem: LevelProblem, count: int) -> dict[str, int]:
        setting = Setting(levels=count, seed=problem.seed, previous=problem.previous)
        return dict(self.method.place(problem.ranked, problem.contending, setting).level)

    def explain(self, job: RankedJob) -> str:
        """The method's name."""
        return f"{self.method.name}'s order"


@dataclass(frozen=True)
class Equal(Priority):
    """The same level for all jobs. Where an order is needed nevertheless (timing), it is CRUX's."""

    def rank(self, problem: RankingProblem) -> Sequence[RankedJob]:
        """CRUX's order."""
        return METHODS["crux"].rank(problem.jobs, problem.rates, Setting(seed=problem.seed))

    def assign_levels(self, problem: LevelProblem) -> Levels:
        """The level of RoCE's customary DSCP for every job."""
        same = TRAFFIC_CLASSES.levels.index(TRAFFIC_CLASSES.equal)
        return Levels({job.name: same for job in problem.ranked})

    @property
    def orders_jobs(self) -> bool:
        """All jobs are equal."""
        return False


@dataclass(frozen=True)
class Crux(_MethodPriority):
    """CRUX: GPU intensity times a correction, cut into levels so that the jobs that overlap least share one.

    Without `compress` every job has a level of its own (CRUX-PA and CRUX-PS-PA of the paper). With
    `loss_cap` the levels are changed so that no job is expected to lose more than that part of the
    throughput that it has alone (CRUX, section 7.2).
    """

    compress: bool = True
    loss_cap: float | None = None
    method: ClassVar[Method] = METHODS["crux"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_cap is not None and not 0 <= self.loss_cap <= 1:
            raise ValueError(f"a loss cap is from 0 to 1, not {self.loss_cap}")

    def assign_levels(self, problem: LevelProblem) -> Levels:
        """CRUX's levels, or those under the cap on losses."""
        count = min(self.levels, problem.most) if self.compress else max(1, len(problem.ranked))
        placed = self._cut(problem, count)
        if self.loss_cap is None or not problem.contending:
            return Levels(placed)
        fair = self._fair(problem, self.loss_cap)
        if fair is None:
            return Levels(placed, f"no cap on losses: more than {MOST_FAIR} jobs contend")
        reason = (
            f"cap on losses {self.loss_cap:.0%} {'met' if fair.met else 'not met'}: "
            f"the worst is expected to be {fair.outcome.worst:.0%}"
        )
        capped = fair.assignment.level
        return Levels({**placed, **capped}, reason, frozenset(capped))

    def _fair(self, problem: LevelProblem, cap: float) -> FairAssignment | None:
        contending = {name for pair in problem.contending for name in pair}
        if not self.compress or len(contending) > MOST_FAIR:
            return None
        jobs = [j for j in problem.jobs if j.name in contending]
        setting = Setting(levels=min(self.levels, problem.most), seed=problem.seed, previous=problem.previous)
        return fair_assignment(jobs, problem.rates, cap, setting)

    def explain(self, job: RankedJob) -> str:
        """Intensity and correction."""
        return f"intensity {job.intensity or 0.0:.3g} flop/s x correction {job.correction:.3g}"

    @property
    def exceeds_switch_levels(self) -> bool:
        """Without compression there are as many levels as jobs."""
        return not self.compress

    @property
    def searchable(self) -> bool:
        """Whether the joint search may change the levels. Its evaluator does not support more levels than the
        switches have."""
        return self.compress


@dataclass(frozen=True)
class Intensity(_MethodPriority):
    """CRUX without the correction: the job with the highest GPU intensity first."""

    method: ClassVar[Method] = METHODS["intensity"]


@dataclass(frozen=True)
class Sincronia(_MethodPriority):
    """Sincronia's BSSI order; the first jobs get a level each."""

    method: ClassVar[Method] = METHODS["sincronia"]


@dataclass(frozen=True)
class Varys(_MethodPriority):
    """Varys' smallest effective bottleneck first, cut into runs of equal length."""

    method: ClassVar[Method] = METHODS["varys"]


@dataclass(frozen=True)
class Taccl(_MethodPriority):
    """TACCL* as CRUX describes it: the job whose traffic goes farthest first, a level for each distance."""

    method: ClassVar[Method] = METHODS["taccl"]
