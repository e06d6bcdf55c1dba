# SPDX-License-Identifier: Apache-2.0
"""Which part of the state of a live fabric outlasts the controller, and what of it has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.live.messages import JobArrived, JobLeft, Notice, PlanApplied, SwitchDown, SwitchUp
from controller.model.plan import Plan
from controller.store.interface import Kind


@dataclass(frozen=True, slots=True)
class StateChange:
    """What one step has changed, for one commit. The values are not encoded yet.

    `records` are values by kind and key; None removes one. An event is (what, subject, details).
    """

    records: Mapping[tuple[Kind, str], object | None] = field(default_factory=dict)
    plans: tuple[Plan, ...] = ()
    events: tuple[tuple[str, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.records or self.plans or self.events)


def event_of(notice: Notice) -> tuple[str, str, str] | None:
    """The entry of the log for a notice; None for a notice that is not logged there."""
    match notice:
        case JobArrived(_, job):
            return "job arrived", job.name, f"{job.model} on {', '.join(job.hosts)}"
        case JobLeft(_, job):
            return "job left", job.name, ""
        case PlanApplied(_, plan):
            return "plan in force", str(plan.version), plan.policy.name
        case SwitchUp(_, name):
            return "switch in service", name, ""
        case SwitchDown(_, name, why):
            return "switch lost", name, why
    return None


def change_of(notices: Iterable[Notice]) -> StateChange:
    """What notices add to the stored state."""
    notices = tuple(notices)
    return StateChange(
        plans=tuple(n.plan for n in notices if isinstance(n, PlanApplied)),
        events=tuple(e for e in map(event_of, notices) if e is not None),
    )
