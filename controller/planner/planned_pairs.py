# SPDX-License-Identifier: Apache-2.0
"""The pairs of hosts that a plan lets into the queues of levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.model import TRAFFIC_CLASSES, FlowPlan, Job


def planned_pairs(jobs: Iterable[Job], flows: Mapping[str, FlowPlan]) -> tuple[tuple[str, str], ...]:
    """The pairs (sender, receiver) with a flow in the class of a level, sorted, each once.

    A pair holds for all levels, and not for that of one plan: packets under the DSCP of the plan before are
    still on their way when the switches have the new entries, and packets of one flow in two queues overtake
    one another.
    """
    found = set()
    for job in jobs:
        for flow in job.flows:
            planned = flows.get(flow.name)
            if planned is not None and planned.dscp != TRAFFIC_CLASSES.mice:
                found.add((flow.src, flow.dst))
    return tuple(sorted(found))
