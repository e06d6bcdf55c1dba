# SPDX-License-Identifier: Apache-2.0
"""Which DSCPs the switches spread over their ECMP groups, and how."""

from __future__ import annotations

from collections.abc import Iterable

from controller.model import JobPlan
from controller.model.plan import SpreadClass, Spreading
from controller.planner.inputs import PlanInput
from controller.routing.spreading import MOVE_FLOWLETS, SpreadRouting


def spreading_of(inputs: PlanInput) -> Spreading | None:
    """How the policy has switches spread packets; None where it does not."""
    routing = inputs.policy.routing
    if not isinstance(routing, SpreadRouting):
        return None
    return routing.spreading(min((link.rate_bps for link in inputs.topology.links), default=1))


def spread_classes(inputs: PlanInput, jobs: Iterable[JobPlan]) -> tuple[SpreadClass, ...]:
    """The DSCPs of the jobs, each once, with what switches do with their packets."""
    spreading = spreading_of(inputs)
    if spreading is None:
        return ()
    return tuple(SpreadClass(dscp, spreading) for dscp in sorted({job.dscp for job in jobs}))


def spread_reason(spreading: Spreading) -> str:
    """Why a flow has no path."""
    if spreading.action == MOVE_FLOWLETS:
        return (
            f"left to the switches: after a pause of {spreading.gap_us} us it moves to the port that has "
            "sent the least"
        )
    order = "in turn" if spreading.action == "spray_in_turn" else "at random"
    return f"left to the switches: its packets are sprayed over all ports {order}"
