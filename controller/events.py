# SPDX-License-Identifier: Apache-2.0
"""The controller's events for Ryu applications, which see P4 switches as they see OpenFlow datapaths.

Every event carries frozen values. Observe an event with `set_ev_cls`, like every event of Ryu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from os_ken.controller.event import EventBase

from controller.live.notices import (
    CountersRead,
    IterationDone,
    JobArrived,
    JobLeft,
    Notice,
    PacketArrived,
    PlanApplied,
    PortChanged,
    SwitchDown,
    SwitchUp,
)

FrameSender = Callable[[str, bytes, int, bool], None]


@dataclass(frozen=True)
class SwitchHandle:
    """A P4 switch for an application, like a datapath in Ryu. `id` is its P4Runtime device id."""

    name: str
    id: int
    _send: FrameSender

    def send_packet_out(
        self, payload: bytes, egress_port: int = 0, *, submit_to_ingress: bool = False
    ) -> None:
        """Send a frame out of `egress_port`, or through the ingress pipeline.

        Any thread may call this; it returns at once. The frame leaves with the controller's next step, in the
        embedded fabric at the next stop of the fabric's clock.

        Raises:
            ValueError: neither an egress port from 1 nor `submit_to_ingress` is given.
        """
        if not submit_to_ingress and egress_port < 1:
            raise ValueError(
                f"egress_port {egress_port}: a packet-out needs a port from 1, or submit_to_ingress=True"
            )
        self._send(self.name, payload, egress_port, submit_to_ingress)


class _NoticeEvent(EventBase):  # type: ignore[misc]
    """An event with one frozen notice. `time_ns` is the controller's time."""

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self.notice = notice
        self.time_ns = notice.time_ns


class EventSwitchUp(_NoticeEvent):
    """A switch is in service; `switch` is its handle."""

    def __init__(self, notice: SwitchUp, send: FrameSender) -> None:
        super().__init__(notice)
        self.switch = SwitchHandle(notice.name, notice.device_id, send)


class EventSwitchDown(_NoticeEvent):
    """The session with a switch is lost: its `name`, and `why`."""

    def __init__(self, notice: SwitchDown) -> None:
        super().__init__(notice)
        self.name, self.why = notice.name, notice.why


class EventPacketIn(_NoticeEvent):
    """A packet-in that is not one of the controller's probes. `reason` is a code of the P4 program."""

    def __init__(self, notice: PacketArrived) -> None:
        super().__init__(notice)
        self.switch, self.ingress_port = notice.switch, notice.ingress_port
        self.reason, self.payload = notice.reason, notice.payload


class EventPortStatus(_NoticeEvent):
    """A port went up or down. `peer` is the node that it is wired to."""

    def __init__(self, notice: PortChanged) -> None:
        super().__init__(notice)
        self.switch, self.port, self.peer, self.up = notice.switch, notice.port, notice.peer, notice.up


class EventCounters(_NoticeEvent):
    """The totals of every queue, after a poll of the switches' counters."""

    def __init__(self, notice: CountersRead) -> None:
        super().__init__(notice)
        self.counters = notice.counters


class EventJobArrived(_NoticeEvent):
    """All workers of `job` have joined."""

    def __init__(self, notice: JobArrived) -> None:
        super().__init__(notice)
        self.job = notice.job


class EventJobLeft(_NoticeEvent):
    """All workers of `job` have left."""

    def __init__(self, notice: JobLeft) -> None:
        super().__init__(notice)
        self.job = notice.job


class EventPlanApplied(_NoticeEvent):
    """`plan` is in force and probed. `verified` and `unverified` hold the names of its flows with paths."""

    def __init__(self, notice: PlanApplied) -> None:
        super().__init__(notice)
        self.plan, self.verified, self.unverified = notice.plan, notice.verified, notice.unverified


class EventIteration(_NoticeEvent):
    """A worker has reported an `iteration`."""

    def __init__(self, notice: IterationDone) -> None:
        super().__init__(notice)
        self.iteration = notice.iteration


EVENTS = (
    EventSwitchUp,
    EventSwitchDown,
    EventPacketIn,
    EventPortStatus,
    EventCounters,
    EventJobArrived,
    EventJobLeft,
    EventPlanApplied,
    EventIteration,
)


def event_of(notice: Notice, send: FrameSender) -> EventBase:
    """The event for a notice."""
    match notice:
        case SwitchUp():
            return EventSwitchUp(notice, send)
        case SwitchDown():
            return EventSwitchDown(notice)
        case PacketArrived():
            return EventPacketIn(notice)
        case PortChanged():
            return EventPortStatus(notice)
        case CountersRead():
            return EventCounters(notice)
        case JobArrived():
            return EventJobArrived(notice)
        case JobLeft():
            return EventJobLeft(notice)
        case PlanApplied():
            return EventPlanApplied(notice)
        case IterationDone():
            return EventIteration(notice)
