# SPDX-License-Identifier: Apache-2.0
"""What jobs report of their iterations: their statistics, and whether they take as long as is believed."""

from __future__ import annotations

from controller.live.members import Members
from controller.live.messages import Iteration
from controller.live.pace import Paces
from controller.live.telemetry import IterationStats
from controller.model.job import Job
from controller.model.plan import Plan


class Reports:
    """The reports on all jobs that are here. `stats` are by job."""

    def __init__(self) -> None:
        self.stats: dict[str, IterationStats] = {}
        self._paces = Paces()

    def arrived(self, job: Job) -> None:
        """A job is there."""
        self.stats[job.name] = IterationStats(len(job.hosts))

    def left(self, job: str) -> None:
        """A job is gone."""
        self.stats.pop(job, None)
        self._paces.forget(job)

    def measured(self, job: str) -> None:
        """A job was measured: what was noticed of its pace before is of no use."""
        self._paces.forget(job)

    def add(self, item: Iteration) -> bool:
        """A worker reports an iteration; False if it is of no job here."""
        stats = self.stats.get(item.job)
        if stats is not None:
            stats.add(item)
        return stats is not None

    def new_period(self, item: Iteration, members: Members, plan: Plan | None) -> bool:
        """Whether a job that is held to a period turns out to have another one, which it then has."""
        period_ns = self._paces.check(item, members.get(item.job), plan)
        if period_ns is not None:
            members.correct_period(item.job, period_ns)
        return period_ns is not None
