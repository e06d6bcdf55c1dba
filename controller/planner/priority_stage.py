# SPDX-License-Identifier: Apache-2.0
"""The priority stage: the order of the jobs, and the level of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from controller.model import TRAFFIC_CLASSES
from controller.planner.ask import ask_levels, ask_ranking
from controller.planner.demand import Demands
from controller.planner.routing_stage import RoutingStage
from controller.planner.time_shifts import TimeShifts
from controller.priority.crux import RankedJob
from controller.priority.jobs import LinkJob
from controller.priority.protocol import LevelProblem, Levels, RankingProblem


@dataclass(frozen=True)
class JobOrder:
    """The jobs in order, highest priority first, and the input from which the order was computed."""

    ranked: tuple[RankedJob, ...]
    link_jobs: tuple[LinkJob, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The jobs' names in this order."""
        return tuple(r.name for r in self.ranked)


@dataclass(frozen=True)
class PriorityStage:
    """The order and the levels of one candidate."""

    order: JobOrder
    levels: Levels

    @property
    def level(self) -> Mapping[str, int]:
        """The level of every job, 0 the highest."""
        return self.levels.level

    def changed(self, level: Mapping[str, int]) -> PriorityStage:
        """The same order with other levels for some jobs. `levels.exceptions` then has these jobs, because
        their levels do not follow from the order, and the reason of the levels before no longer holds."""
        exceptions = self.levels.exceptions | level.keys()
        return replace(self, levels=Levels({**self.levels.level, **level}, "", exceptions))

    def on_one_level(self, sets: Iterable[Iterable[str]]) -> PriorityStage:
        """The same, with the jobs of each set on the highest of their levels."""
        level = dict(self.levels.level)
        for jobs in sets:
            names = tuple(jobs)
            level |= dict.fromkeys(names, min(level[name] for name in names))
        return replace(self, levels=replace(self.levels, level=level))


def rank_jobs(demands: Demands, routing: RoutingStage) -> JobOrder:
    """Ask the policy's priority for the order of the jobs on these paths.

    Raises:
        PolicyError: the priority failed, or its answer is not legal.
    """
    jobs = tuple(routing.link_use.link_jobs(demands.inputs.jobs, demands.profiles))
    problem = RankingProblem(jobs, demands.rates, demands.inputs.seed)
    return JobOrder(ask_ranking(demands.inputs.policy, problem), jobs)


def level_problem(demands: Demands, order: JobOrder, shifts: TimeShifts) -> LevelProblem:
    """The input from which the policy's priority assigns levels.

    It contains the levels in force only if the same policy chose them. The priority keeps them where a change
    gains little.
    """
    x = demands.inputs
    previous = None
    if x.previous is not None and x.previous.policy == x.policy.reference:
        previous = {j.job: j.level for j in x.previous.jobs.values() if j.intensity is not None}
    return LevelProblem(
        ranked=order.ranked,
        contending=tuple(shifts.contending),
        most=len(TRAFFIC_CLASSES.levels),
        previous=previous,
        jobs=order.link_jobs,
        rates=demands.rates,
        seed=x.seed,
    )


def assign_levels(demands: Demands, order: JobOrder, shifts: TimeShifts) -> PriorityStage:
    """Ask the policy's priority for the level of every job.

    Raises:
        PolicyError: the priority failed, or its answer is not legal.
    """
    levels = ask_levels(demands.inputs.policy, level_problem(demands, order, shifts))
    return PriorityStage(order, levels)
