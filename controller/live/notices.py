# SPDX-License-Identifier: Apache-2.0
"""What the core reports to Ryu applications. `controller/events.py` defines the event of each value.

Times are nanoseconds of the controller's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.live.messages import IterationReport
from controller.model.job import Job
from controller.model.plan import Plan
from controller.model.view import QueueCounter


@dataclass(frozen=True, slots=True)
class SwitchUp:
    """A switch is in service."""

    time_ns: int
    name: str
    device_id: int


@dataclass(frozen=True, slots=True)
class SwitchDown:
    """The P4Runtime session with a switch is lost; `why` is the error."""

    time_ns: int
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class PacketArrived:
    """A packet-in that is not one of the controller's own probes."""

    time_ns: int
    switch: str
    ingress_port: int
    reason: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class PortChanged:
    """A port went up or down. `peer` is the node it is wired to, empty for an unwired port."""

    time_ns: int
    switch: str
    port: int
    peer: str
    up: bool


@dataclass(frozen=True, slots=True)
class CountersRead:
    """The totals of all queues after a poll."""

    time_ns: int
    counters: Sequence[QueueCounter]


@dataclass(frozen=True, slots=True)
class JobArrived:
    """All workers of a job have joined."""

    time_ns: int
    job: Job


@dataclass(frozen=True, slots=True)
class JobLeft:
    """All workers of a job have left."""

    time_ns: int
    job: Job


@dataclass(frozen=True, slots=True)
class PlanApplied:
    """A plan is in force, and INT probes have checked its paths. Both tuples hold names of flows."""

    time_ns: int
    plan: Plan
    verified: tuple[str, ...]
    unverified: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IterationDone:
    """A worker has reported an iteration."""

    time_ns: int
    iteration: IterationReport


Notice = (
    SwitchUp
    | SwitchDown
    | PacketArrived
    | PortChanged
    | CountersRead
    | JobArrived
    | JobLeft
    | PlanApplied
    | IterationDone
)
