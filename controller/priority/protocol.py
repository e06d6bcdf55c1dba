# SPDX-License-Identifier: Apache-2.0
"""The protocol of a policy's priority: jobs on links in, an order of the jobs and a level for each out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from controller.model import TRAFFIC_CLASSES
from controller.priority.crux import RankedJob
from controller.priority.jobs import LinkJob, Rates


@dataclass(frozen=True, slots=True)
class RankingProblem:
    """The jobs with their bytes on each link, the links' rates in bit/s, and a seed for random choices."""

    jobs: tuple[LinkJob, ...]
    rates: Rates
    seed: int


@dataclass(frozen=True, slots=True)
class LevelProblem:
    """The jobs in order, highest priority first, and the pairs of jobs that still overlap on a full link.

    `most` is how many levels the switches keep for jobs. `previous` holds the levels in force by job; None:
    there are none, or another policy chose them. `jobs`, `rates` and `seed` are those of the ranking.
    """

    ranked: tuple[RankedJob, ...]
    contending: tuple[tuple[str, str], ...]
    most: int
    previous: Mapping[str, int] | None
    jobs: tuple[LinkJob, ...]
    rates: Rates
    seed: int


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each job by name, 0 the highest. `reason` is one sentence for every job's explanation.

    The jobs in `exceptions` have a level that does not follow from the order alone.
    """

    level: Mapping[str, int]
    reason: str = ""
    exceptions: frozenset[str] = field(default_factory=frozenset)


@runtime_checkable
class Priority(Protocol):
    """Who goes first. Subclass it as a frozen dataclass whose fields are the priority's options.

    The properties have defaults, which a subclass overrides by a field or a property of the same name.
    """

    def rank(self, problem: RankingProblem) -> Sequence[RankedJob]:
        """All jobs, the most urgent first. A job that sends nothing has the intensity None and comes last."""

    def assign_levels(self, problem: LevelProblem) -> Levels:
        """A level for every ranked job, from 0 to `problem.most` - 1."""

    def explain(self, job: RankedJob) -> str:
        """What gives a job its place in the order, for its explanation."""
        return f"priority {job.priority:.3g}"

    @property
    def orders_jobs(self) -> bool:
        """False for a priority that gives all jobs the same level."""
        return True

    @property
    def levels(self) -> int:
        """How many of the switches' levels the priority uses at most."""
        return len(TRAFFIC_CLASSES.levels)

    @property
    def exceeds_switch_levels(self) -> bool:
        """Whether levels may go beyond those of the switches. The simulator keeps such levels apart; on
        switches the jobs share the lowest level's queue."""
        return False

    @property
    def searchable(self) -> bool:
        """Whether the joint search may give jobs other levels than `assign_levels` does."""
        return True
