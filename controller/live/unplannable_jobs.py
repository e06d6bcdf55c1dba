# SPDX-License-Identifier: Apache-2.0
"""Finds the job for which no plan can be made, so that it costs the other jobs no plan."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from controller.live.messages import Effect, SendRefusal
from controller.model.job import Job

log = logging.getLogger(__name__)


@dataclass(slots=True)
class UnplannableJobs:
    """Which jobs are left out of plans, and why.

    Only a job that no plan has contained yet can be the reason why a plan fails. If there are several, all
    but the oldest are left out one after another until a plan can be made; then they return one at a time.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    _returning: list[str] = field(default_factory=list)

    def plannable(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs without those that are left out."""
        return tuple(j for j in jobs if j.name not in self.reasons and j.name not in self._returning)

    def failed(self, jobs: Sequence[Job], planned: Container[str], why: str) -> list[Effect] | None:
        """A plan for the plannable ones of `jobs` has failed; `planned` are the jobs of the last plan.

        Returns what to tell the agents of a job that is left out for good. None if every job has been planned
        before: then no job is the reason, and another plan would fail too.
        """
        new = [j for j in self.plannable(jobs) if j.name not in planned]
        if not new:
            return None
        if len(new) > 1:
            self._returning.append(new[-1].name)
            return []
        job = new[0]
        self.reasons[job.name] = why
        log.error("job %s is left out of all plans, and its flows go by ECMP: %s", job.name, why)
        words = f"job {job.name} is left out of all plans, and its flows go by ECMP: {why}"
        return [SendRefusal(host, words) for host in dict.fromkeys(job.hosts)]

    def made(self) -> bool:
        """A plan was made. Whether another one is wanted, because a job returns."""
        if self._returning:
            self._returning.pop()
            return True
        return False

    def forget(self, job: str) -> None:
        """A job has left."""
        self.reasons.pop(job, None)
        if job in self._returning:
            self._returning.remove(job)
