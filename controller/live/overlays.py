# SPDX-License-Identifier: Apache-2.0
"""A plan as it comes into force: changed for the job that is measured and for jobs below their floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.live.floor_watch import FloorWatch
from controller.live.measuring import JobMeasurement
from controller.live.plan_changes import disturbed
from controller.model.plan import FlowRemark, Plan
from controller.model.traffic import TRAFFIC_CLASSES


class PlanOverlays:
    """What a made plan becomes when it comes into force.

    Jobs that measured below their floor share a level. The job that is measured now is alone on the highest.
    """

    def __init__(self, measuring: JobMeasurement, floors: FloorWatch) -> None:
        self._measuring = measuring
        self._floors = floors
        self._last: tuple[Plan, tuple[str | None, int], Plan] | None = None

    def in_force(self, plan: Plan, remarks: Callable[[Plan], tuple[FlowRemark, ...]]) -> Plan:
        """The plan with the overlays. Returns the same object for the same plan while nothing changes.

        It is asked for before the plan's tables are written and when agents receive it. `remarks` computes
        the table entries that the changed DSCPs need.
        """
        self._floors.end_sharing(plan)
        state = self._measuring.profiled, self._floors.version
        if self._last is None or self._last[0] is not plan or self._last[1] != state:
            shown = self._measuring.overlay(self._floors.overlay(plan, TRAFFIC_CLASSES.levels))
            if shown is not plan:
                shown = replace(shown, remarks=remarks(shown))
            self._last = plan, state, shown
        return self._last[2]

    def plan_changed(self, now_ns: int, before: Plan | None, plan: Plan) -> None:
        """Another plan is in force: the iterations that it disturbs do not count."""
        jobs = disturbed(before, plan)
        self._measuring.plan_changed(now_ns, jobs)
        self._floors.plan_changed(jobs)
