# SPDX-License-Identifier: Apache-2.0
"""What has happened on the fabric lately: jobs, plans, switches, ports and what operators did, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.live.notices import (
    JobArrived,
    JobLeft,
    Notice,
    PlanApplied,
    PortChanged,
    SwitchDown,
    SwitchUp,
)

MOST_EVENTS = 10_000
"""Chosen: some days of a busy cluster, in a few megabytes. The store keeps more."""
KINDS = (
    "job_arrived",
    "job_left",
    "plan",
    "switch_up",
    "switch_down",
    "link_up",
    "link_down",
)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event; `number` counts from 1, `kind` is one of KINDS, and `time_ns` is the controller's time."""

    number: int
    time_ns: int
    kind: str
    subject: str
    text: str


class EventLog:
    """The last MOST_EVENTS events."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=MOST_EVENTS)
        self._number = 0

    def noticed(self, notice: Notice) -> None:
        """Log a notice, if it is of a kind that people look for."""
        match notice:
            case JobArrived(now_ns, job):
                self.add(now_ns, "job_arrived", job.name, f"{job.model} on {', '.join(job.hosts)}")
            case JobLeft(now_ns, job):
                self.add(now_ns, "job_left", job.name, "its last worker has ended")
            case PlanApplied(now_ns, plan, verified, unverified):
                text = f"policy {plan.policy.name}: {len(verified)} paths verified, {len(unverified)} not"
                self.add(now_ns, "plan", str(plan.version), text)
            case SwitchUp(now_ns, name):
                self.add(now_ns, "switch_up", name, "its pipeline and tables are written")
            case SwitchDown(now_ns, name, why):
                self.add(now_ns, "switch_down", name, why)
            case PortChanged(now_ns, switch, port, peer, up):
                kind = "link_up" if up else "link_down"
                self.add(now_ns, kind, f"{switch}-{peer}", f"port {port} of {switch} is {kind[5:]}")

    def add(self, now_ns: int, kind: str, subject: str, text: str) -> None:
        """Log an event."""
        self._number += 1
        self._entries.append(LogEntry(self._number, now_ns, kind, subject, text))

    def restore(self, events: Iterable[tuple[int, str, str, str]]) -> None:
        """Take up events of an earlier controller, the oldest first: time, kind, subject, text."""
        for event in events:
            self.add(*event)

    def newest_first(self) -> Iterator[LogEntry]:
        """All entries."""
        return reversed(tuple(self._entries))
