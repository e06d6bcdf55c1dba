# SPDX-License-Identifier: Apache-2.0
"""A plan as it comes into force: changed for the job that is measured, for jobs below their floor, and for
open connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.live.connections import Connections
from controller.live.floor_watch import FloorWatch
from controller.live.measuring import JobMeasurement
from controller.live.plan_changes import disturbed
from controller.model.plan import Plan
from controller.model.traffic import TRAFFIC_CLASSES
from controller.planner import PlanInput
from controller.planner.connections import connection_plans
from controller.planner.pinned_flows import remarks


class PlanOverlays:
    """What a made plan becomes when it comes into force.

    Jobs that measured below their floor share a level. The job that is measured now is alone on the highest.
    Switches get entries for the open connections.
    """

    def __init__(self, measuring: JobMeasurement, floors: FloorWatch, connections: Connections) -> None:
        self._connections = connections
        self._measuring = measuring
        self._floors = floors
        self._last: tuple[Plan, tuple[str | None, int, int], Plan] | None = None

    def in_force(
        self,
        plan: Plan,
        inputs: Callable[[], PlanInput],
    ) -> Plan:
        """The plan with the overlays. Returns the same object for the same plan while nothing changes.

        It is asked for before the plan's tables are written and when agents receive it. From `inputs` follow
        the table entries that changed DSCPs and open connections need.
        """
        self._floors.end_sharing(plan)
        state = self._measuring.profiled, self._floors.version, self._connections.version
        if self._last is None or self._last[0] is not plan or self._last[1] != state:
            shown = self._measuring.overlay(self._floors.overlay(plan, TRAFFIC_CLASSES.levels))
            if shown is not plan:
                shown = replace(shown, remarks=remarks(inputs(), shown.flows))
            connected = shown.connections
            if self._connections.any or connected:
                connected = connection_plans(inputs(), shown.flows, shown.pins, self._connections)
            if connected != shown.connections:
                shown = replace(shown, connections=connected)
            self._last = plan, state, shown
        return self._last[2]

    def plan_changed(self, now_ns: int, before: Plan | None, plan: Plan) -> None:
        """Another plan is in force: the iterations that it disturbs do not count."""
        jobs = disturbed(before, plan)
        self._measuring.plan_changed(now_ns, jobs)
        self._floors.plan_changed(jobs)
