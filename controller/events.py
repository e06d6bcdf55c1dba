# SPDX-License-Identifier: Apache-2.0
"""The events of the controller, for Ryu applications: P4 switches seen as OpenFlow datapaths are.

Every event carries frozen values. Observe them with `set_ev_cls`, as any event of Ryu's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from os_ken.controller.event import EventBase

from controller.live.messages import (
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
    """A P4 switch in an application's hands, as a datapath is; `id` is its P4Runtime device id."""

    name: str
    id: int
    _send: FrameSender

    def send_packet_out(
        self, payload: bytes, egress_port: int = 0, *, submit_to_ingress: bool = False
    ) -> None:
        """Send a frame out of `egress_port`, or through the ingress pipeline.

        May be called from any thread; returns at once. The frame goes with the controller's next step,
        which in the embedded fabric is the next stop of its clock.
        """
        if not submit_to_ingress and egress_port < 1:
            raise ValueError("a packet-out needs an egress port from 1, or submit_to_ingress=True")
        self._send(self.name, payload, egress_port, submit_to_ingress)


class _NoticeEvent(EventBase):  # type: ignore[misc]
    """An event around one frozen notice; `time_ns` is the controller's time."""

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
    """A switch's session is gone; `name`, and `why`."""

    def __init__(self, notice: SwitchDown) -> None:
        super().__init__(notice)
        self.name, self.why = notice.name, notice.why


class EventPacketIn(_NoticeEvent):
    """A frame that is none of the controller's own probes; `reason` is the P4 program's."""

    def __init__(self, notice: PacketArrived) -> None:
        super().__init__(notice)
        self.switch, self.ingress_port = notice.switch, notice.ingress_port
        self.reason, self.payload = notice.reason, notice.payload


class EventPortStatus(_NoticeEvent):
    """A port went up or down; `peer` is what it is wired to."""

    def __init__(self, notice: PortChanged) -> None:
        super().__init__(notice)
        self.switch, self.port, self.peer, self.up = notice.switch, notice.port, notice.peer, notice.up


class EventCounters(_NoticeEvent):
    """The totals of every queue, after a poll."""

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
    """`plan` is in force; the names of its flows whose paths were `verified`, and those that were not."""

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
    """The event that tells of a notice."""
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
