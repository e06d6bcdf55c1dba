# SPDX-License-Identifier: Apache-2.0
"""Whether a job's iterations are as long as its profile says, judged by what its workers report.

A job held to a period shorter than its own loop drifts a little every iteration, and then loses a
whole slot to re-align (CASSINI thesis, 4.4.2, step 3): a profile that is 0.3 % off costs several
per cent. So an iteration's own length, without the time it was held, corrects the profile.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from statistics import median

from controller.live.messages import Iteration
from controller.model.job import Job
from controller.model.plan import Plan

log = logging.getLogger(__name__)

# So many iterations in a row have to agree: one straggler is no change of pace.
AGREEING = 4

# A loop this much shorter than the profile says would be held back for nothing.
SHORTER = 0.98


@dataclass(slots=True)
class Pace:
    """The own lengths of a job's last iterations, as its first worker measures them."""

    _lengths_ns: list[int] = field(default_factory=list)

    def add(self, report: Iteration, profile_ns: int, period_ns: int) -> int | None:
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
        if len(self._lengths_ns) < AGREEING:
            return None
        agreed = int(median(self._lengths_ns))
        self._lengths_ns.clear()
        return agreed


class Paces:
    """The paces of all jobs that are held to a period."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}

    def forget(self, job: str) -> None:
        """A job is gone, or was measured anew."""
        self._paces.pop(job, None)

    def check(self, report: Iteration, job: Job | None, plan: Plan | None) -> int | None:
        """The period (ns) that the job's profile should have instead of its own; None if it may stay."""
        planned = plan.jobs.get(report.job) if plan is not None else None
        if job is None or planned is None or planned.period_ns is None:
            return None
        told_ns = job.profile.period_ns
        period_ns = self._paces.setdefault(report.job, Pace()).add(report, told_ns, planned.period_ns)
        if period_ns is not None:
            log.info("job %s takes %.1f ms, not %.1f", report.job, period_ns / 1e6, told_ns / 1e6)
        return period_ns
