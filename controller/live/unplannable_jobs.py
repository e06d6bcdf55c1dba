# SPDX-License-Identifier: Apache-2.0
"""Finds the jobs for which no plan can be made in time, so that they cost the other jobs no plan."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field

from controller.live.messages import Effect, SendRefusal
from controller.model.job import Job

log = logging.getLogger(__name__)

# When a job that is left out is tried again, and the longest pause: each failure doubles the pause. Chosen:
# a job that makes planning exceed its limit then delays the others for less than a fifth of the time.
RETRY_NS = 60_000_000_000
LONGEST_RETRY_NS = 3_600_000_000_000
# When a plan is tried again that failed though all its jobs have been planned before. Chosen: long enough for
# a new worker process to start.
PLAN_AGAIN_NS = 2_000_000_000


@dataclass(slots=True)
class _LeftOut:
    """When a job that is left out is tried again, and the pause before that."""

    at_ns: int
    pause_ns: int


@dataclass(slots=True)
class UnplannableJobs:
    """Which jobs are left out of plans, and why.

    When a plan fails, the jobs that no plan has contained yet are suspected. Half of them is left out at a
    time, those with the most flows first, until a plan can be made; then the others return. A single
    suspected job whose plan fails is left out, and tried again later.

    A plan may also fail that contains only jobs of earlier plans: a link may have failed, or a profile may
    have been measured. It is made once more, because the worker process may have been killed. If it fails
    again, all its jobs are suspected.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    _waiting: list[tuple[str, ...]] = field(default_factory=list)
    _trusted: frozenset[str] | None = None
    _blamed: list[str] = field(default_factory=list)
    _retries: dict[str, _LeftOut] = field(default_factory=dict)
    _again_ns: int | None = None
    _failed_before: bool = False

    @property
    def next_timer_ns(self) -> int | None:
        """When `due` must be called next."""
        times = [self._retries[job].at_ns for job in self.reasons if job in self._retries]
        if self._again_ns is not None:
            times.append(self._again_ns)
        return min(times, default=None)

    def plannable(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs without those that are left out."""
        out = {name for group in self._waiting for name in group}
        return tuple(j for j in jobs if j.name not in self.reasons and j.name not in out)

    def failed(
        self, now_ns: int, jobs: Sequence[Job], planned: Container[str], why: str
    ) -> list[Effect] | None:
        """A plan for the plannable ones of `jobs` has failed; `planned` are the jobs of the last plan.

        Returns what to tell the agents of a job that is left out, and another plan is wanted at once. None:
        another plan is wanted when `due` says so, if there are jobs at all.
        """
        tried = self.plannable(jobs)
        trusted = planned if self._trusted is None else self._trusted
        suspects = [j for j in tried if j.name not in trusted]
        if not suspects:
            if not tried:
                return None
            if self._trusted is None and not self._failed_before:
                self._failed_before, self._again_ns = True, now_ns + PLAN_AGAIN_NS
                return None
            # The jobs that were blamed since the last plan may be innocent.
            for name in self._blamed:
                self.reasons.pop(name, None)
                self._retries.pop(name, None)
            self._blamed.clear()
            suspects = [j for j in jobs if j.name not in self.reasons and not self._waits(j.name)]
            self._trusted = frozenset()
        else:
            self._trusted = frozenset(j.name for j in tried if j.name in trusted)
        if len(suspects) > 1:
            suspects.sort(key=lambda j: (len(j.flows), j.name))
            self._waiting.append(tuple(j.name for j in suspects[len(suspects) // 2 :]))
            return []
        return self._leave_out(now_ns, suspects[0], why)

    def made(self, jobs: Collection[str]) -> bool:
        """A plan with these jobs was made. Whether another one is wanted, because jobs return."""
        self._failed_before, self._again_ns = False, None
        self._blamed.clear()
        for name in jobs:
            self._retries.pop(name, None)
        if self._waiting:
            self._trusted = frozenset(jobs)
            self._waiting.pop()
            return True
        self._trusted = None
        return False

    def due(self, now_ns: int) -> tuple[bool, tuple[str, ...]]:
        """Whether a plan is wanted now, and the jobs that were left out and are tried again in it."""
        back = tuple(
            name for name in self.reasons if name in self._retries and self._retries[name].at_ns <= now_ns
        )
        for name in back:
            del self.reasons[name]
            log.info("job %s was left out of plans; it is tried again", name)
        again = self._again_ns is not None and self._again_ns <= now_ns
        if again:
            self._again_ns = None
        return again or bool(back), back

    def forget(self, job: str) -> None:
        """A job has left."""
        self.reasons.pop(job, None)
        self._retries.pop(job, None)
        self._waiting = [tuple(n for n in group if n != job) for group in self._waiting]

    def _waits(self, job: str) -> bool:
        return any(job in group for group in self._waiting)

    def _leave_out(self, now_ns: int, job: Job, why: str) -> list[Effect]:
        self.reasons[job.name] = why
        self._blamed.append(job.name)
        known = self._retries.get(job.name)
        pause_ns = RETRY_NS if known is None else min(2 * known.pause_ns, LONGEST_RETRY_NS)
        self._retries[job.name] = _LeftOut(now_ns + pause_ns, pause_ns)
        log.error(
            "job %s is left out of all plans, and its flows go by ECMP: %s; it is tried again in %d s",
            job.name,
            why,
            pause_ns // 1_000_000_000,
        )
        words = f"job {job.name} is left out of all plans, and its flows go by ECMP: {why}"
        return [SendRefusal(host, words) for host in dict.fromkeys(job.hosts)]
