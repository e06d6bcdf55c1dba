# SPDX-License-Identifier: Apache-2.0
"""Moves the slots of jobs that share links when one of them runs late, so that none waits a whole period.

If a job begins later than the gap before the next burst of another job, their bursts overlap, and both stay
late. Then all slots of the jobs that depend on one another move later by the same time. The late job is near
its slot again, and the others wait once, for no longer than they would have lost in the overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controller.interleave.slot_tolerance import REST, SETTLE_NS, TOUCH, SlotTolerance, later_by
from controller.live.messages import IterationReport
from controller.model.plan import Plan

_SILENT_REPORTS = 8
"""A worker that in so many reports in a row neither waited for its slot nor was late keeps no slots: its
clock may be too wrong, or its job is only observed. Chosen: with slots, most iterations wait."""


class SlotDrift:
    """How late the jobs are that are held to slots, as far as their slots must move for it."""

    def __init__(self) -> None:
        self._told_ns: dict[str, int] = {}
        self._silent: dict[tuple[str, int], int] = {}

    def plan_adopted(self, now_ns: int, plan: Plan) -> None:
        """A plan is in force: iterations that began before say nothing about its slots."""
        self._told_ns = dict.fromkeys(plan.jobs, now_ns)
        self._silent = {k: count for k, count in self._silent.items() if k[0] in plan.jobs}

    def later_ns(
        self,
        now_ns: int,
        item: IterationReport,
        plan: Plan | None,
        tolerances: Mapping[str, SlotTolerance[str]],
    ) -> int:
        """By how much the slots of the job of this report, and of those in its group, must move later now.

        The iteration that is reported ends where the next one begins. If that is later than the gap, but
        not so late that the worker would have waited, the slots move so that it is late by half of the gap.
        """
        tolerance, planned = tolerances.get(item.job), plan.jobs.get(item.job) if plan is not None else None
        if plan is None or tolerance is None or planned is None or not planned.period_ns:
            return 0
        keeps = self._keeps_slots(item)
        if not keeps or item.end_ns < self._told_ns.get(item.job, now_ns) + SETTLE_NS:
            return 0
        period = planned.period_ns
        late = (item.end_ns - plan.epoch_ns - planned.shift_ns) % period
        if not tolerance.gap_ns + TOUCH * period < late <= tolerance.latest * period:
            return 0
        later = math.ceil(later_by(late, tolerance.gap_ns))
        self._told_ns.update(dict.fromkeys(tolerance.group, now_ns + REST * later))
        return later

    def _keeps_slots(self, item: IterationReport) -> bool:
        """Whether the worker of a report keeps slots, by this report and those before it."""
        worker = item.job, item.rank
        kept = item.held_ns > 0 or item.drift_ns > 0 or item.realigned
        self._silent[worker] = 0 if kept else self._silent.get(worker, _SILENT_REPORTS) + 1
        return self._silent[worker] < _SILENT_REPORTS
