# SPDX-License-Identifier: Apache-2.0
"""What jobs report of their iterations: their statistics, and whether they take as long as is believed.

A job held to a period shorter than its own loop drifts a little every iteration, and then loses a
whole slot to re-align (CASSINI thesis, 4.4.2, step 3): a profile that is 0.3 % off costs several
per cent. So an iteration's own length, without the time it was held, corrects the profile.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from controller.live.job_registry import JobRegistry
from controller.live.messages import IterationReport
from controller.model.job import Job
from controller.model.plan import Plan

log = logging.getLogger(__name__)

RECENT = 120
# Iteration times kept for the p99: the last so many.
KEPT = 10_000

# So many iterations in a row have to agree: one straggler is no change of pace.
AGREEING_REPORTS = 4

# A loop this much shorter than the profile says would be held back for nothing.
SHORTER = 0.98


@dataclass(slots=True)
class IterationStats:
    """The iteration times of one job. An iteration is over when its slowest worker is. `realigned` counts
    how often a worker had drifted past the threshold and waited for its next slot."""

    ranks: int
    count: int = 0
    realigned: int = 0
    _open: dict[int, dict[int, float]] = field(default_factory=dict)
    _times_ms: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, report: IterationReport) -> None:
        """Take in one worker's report; a second one of the same worker and index changes nothing."""
        self.realigned += report.realigned
        times = self._open.setdefault(report.index, {})
        times.setdefault(report.rank, (report.end_ns - report.start_ns) / 1e6)
        if len(times) < self.ranks:
            return
        # What an earlier iteration still misses will not come any more: reports of a worker are in order.
        for index in [i for i in self._open if i <= report.index]:
            done = self._open.pop(index)
            self._times_ms.append(max(done.values()))
            self.count += 1

    @property
    def recent_ms(self) -> tuple[float, ...]:
        """The last iteration times, oldest first."""
        return tuple(self._times_ms)[-RECENT:]

    @property
    def mean_ms(self) -> float | None:
        """The mean; None before the first iteration."""
        return sum(self._times_ms) / len(self._times_ms) if self._times_ms else None

    @property
    def p99_ms(self) -> float | None:
        """The 99th percentile (nearest rank); None before the first iteration."""
        if not self._times_ms:
            return None
        ordered = sorted(self._times_ms)
        return ordered[math.ceil(0.99 * len(ordered)) - 1]


@dataclass(slots=True)
class PeriodCheck:
    """The own lengths of a job's last iterations, as its first worker measures them."""

    _lengths_ns: list[int] = field(default_factory=list)

    def add(self, report: IterationReport, profile_ns: int, period_ns: int) -> int | None:
        """Take in a report of a job that is held to `period_ns`; its profile says `profile_ns`.

        Returns the period that the profile should have, once enough iterations in a row were longer
        than the job's slot or clearly shorter than its profile. Iterations that met congestion say
        nothing: the network lengthened them.
        """
        if report.rank != 0:
            return None
        own_ns = report.end_ns - report.start_ns - report.held_ns
        wrong = own_ns > period_ns or own_ns < SHORTER * profile_ns
        if not wrong or report.ecn_marks or report.retransmits:
            self._lengths_ns.clear()
            return None
        self._lengths_ns.append(own_ns)
        if len(self._lengths_ns) < AGREEING_REPORTS:
            return None
        agreed = int(median(self._lengths_ns))
        self._lengths_ns.clear()
        return agreed


class PeriodChecks:
    """The paces of all jobs that are held to a period."""

    def __init__(self) -> None:
        self._paces: dict[str, PeriodCheck] = {}

    def forget(self, job: str) -> None:
        """A job is gone, or was measured anew."""
        self._paces.pop(job, None)

    def check(self, report: IterationReport, job: Job | None, plan: Plan | None) -> int | None:
        """The period (ns) that the job's profile should have instead of its own; None if it may stay."""
        planned = plan.jobs.get(report.job) if plan is not None else None
        if job is None or planned is None or planned.period_ns is None:
            return None
        told_ns = job.profile.period_ns
        period_ns = self._paces.setdefault(report.job, PeriodCheck()).add(report, told_ns, planned.period_ns)
        if period_ns is not None:
            log.info("job %s takes %.1f ms, not %.1f", report.job, period_ns / 1e6, told_ns / 1e6)
        return period_ns


class IterationReports:
    """The reports on all jobs that are here. `stats` are by job."""

    def __init__(self) -> None:
        self.stats: dict[str, IterationStats] = {}
        self._paces = PeriodChecks()

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

    def add(self, item: IterationReport) -> bool:
        """A worker reports an iteration; False if it is of no job here."""
        stats = self.stats.get(item.job)
        if stats is not None:
            stats.add(item)
        return stats is not None

    def new_period(self, item: IterationReport, registry: JobRegistry, plan: Plan | None) -> bool:
        """Whether a job that is held to a period turns out to have another one, which it then has."""
        period_ns = self._paces.check(item, registry.get(item.job), plan)
        if period_ns is not None:
            registry.correct_period(item.job, period_ns)
        return period_ns is not None
