# SPDX-License-Identifier: Apache-2.0
"""What goes into the core, what it wants done, and what it tells the world: frozen values.

Inputs are handled serially in the order (time, node, sequence). Times are nanoseconds of the
controller's clock, which in the embedded fabric is the fabric's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.job import Job
from controller.model.plan import Plan
from controller.model.view import QueueCounter


# Inputs, from agents.
@dataclass(frozen=True, slots=True)
class AgentUp:
    """An agent has said Hello. `pinning` is how it sets source ports; `dscp` qp or fixed: whether an open
    QP takes another one; `mltcp`: whether its NIC can send by MLTCP, job by job."""

    host: str
    pinning: str
    dscp: str = "qp"
    mltcp: bool = False


@dataclass(frozen=True, slots=True)
class AgentDown:
    """An agent's session has ended."""

    host: str


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """The worker of `rank` of a job has started on `host`."""

    host: str
    rank: int
    job: Job


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """The worker of `rank` of a job has ended."""

    host: str
    rank: int
    job: str


@dataclass(frozen=True, slots=True)
class FlowAsked:
    """An agent asks for a flow's source port and DSCP."""

    host: str
    flow: str


@dataclass(frozen=True, slots=True)
class FlowOpened:
    """A flow's QP is open with this source port (0: not known) and DSCP; its NIC keeps one or both."""

    host: str
    flow: str
    source_port: int
    dscp: int


@dataclass(frozen=True, slots=True)
class FlowFallback:
    """A pinned flow that went bad goes by ECMP by its agent's own decision, or (`on_ecmp` False) by its pin
    again, which is `source_port`."""

    host: str
    flow: str
    on_ecmp: bool
    source_port: int
    why: str


@dataclass(frozen=True, slots=True)
class ProbeAsked:
    """An agent asks for a flow's path to be verified."""

    host: str
    flow: str


@dataclass(frozen=True, slots=True)
class IterationReport:
    """One iteration of one worker. Times in ns, sizes in bytes, marks and retransmits in packets."""

    host: str
    job: str
    rank: int
    index: int
    start_ns: int
    end_ns: int
    communication_ns: int
    bytes_sent: int
    ecn_marks: int
    retransmits: int
    held_ns: int
    compute_ns: int = 0
    flops: float = 0.0
    drift_ns: int = 0
    realigned: bool = False
    clock_error_ns: int = 0


@dataclass(frozen=True, slots=True)
class BytesCounted:
    """Bytes on the wire by flow, in bins of `bin_ns` from `start_ns` on; the worker's flops in all of them.

    A source that cannot tell flows apart names the flow "".
    """

    host: str
    job: str
    rank: int
    start_ns: int
    bin_ns: int
    flows: tuple[tuple[str, tuple[int, ...]], ...]
    flops: float


@dataclass(frozen=True, slots=True)
class ClockAsked:
    """An agent asks what time it is; `sent_ns` is its own clock's."""

    host: str
    sent_ns: int


# Inputs, from switches and from Ryu applications.
@dataclass(frozen=True, slots=True)
class SwitchReady:
    """A switch is in service. `ports`: port -> up; None where the target tells no port states."""

    switch: str
    ports: Mapping[int, bool] | None


@dataclass(frozen=True, slots=True)
class SwitchLost:
    """The session with a switch is gone."""

    switch: str
    why: str


@dataclass(frozen=True, slots=True)
class PacketSeen:
    """A frame from a switch; `reason` as in the P4 program."""

    switch: str
    ingress_port: int
    reason: int
    egress_port: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """Port states of a switch have changed: port -> up."""

    switch: str
    ports: Mapping[int, bool]


@dataclass(frozen=True, slots=True)
class FrameAsked:
    """A Ryu application wants a frame sent."""

    switch: str
    payload: bytes
    egress_port: int
    submit_to_ingress: bool


Input = (
    AgentUp
    | AgentDown
    | WorkerJoined
    | WorkerLeft
    | FlowAsked
    | FlowOpened
    | FlowFallback
    | ProbeAsked
    | IterationReport
    | BytesCounted
    | ClockAsked
    | SwitchReady
    | SwitchLost
    | PacketSeen
    | PortsSeen
    | FrameAsked
)


# Effects: messages to agents, frames to switches.
@dataclass(frozen=True, slots=True)
class SendWelcome:
    """Answer an agent's Hello."""

    host: str


@dataclass(frozen=True, slots=True)
class SendAssignment:
    """A flow's source port (0: by ECMP), DSCP, and rate cap on the wire in bit/s (0: none)."""

    host: str
    flow: str
    source_port: int
    dscp: int
    rate_cap_bps: int = 0


@dataclass(frozen=True, slots=True)
class SendSchedule:
    """When a job talks, and its senders' congestion control. `period_ns` 0: it runs free. `once`: it waits
    for its slot once, and again when it has drifted past `realign` (part of the period; None: the agents'
    usual threshold)."""

    host: str
    job: str
    epoch_ns: int
    shift_ns: int
    period_ns: int
    sender: str = "job"
    once: bool = False
    realign: float | None = None


@dataclass(frozen=True, slots=True)
class SendMeasure:
    """Count a job's bytes in bins of `bin_ns`, reported every `report_ns`; 0: no more. `profiling`: the
    job is alone on the highest level meanwhile."""

    host: str
    job: str
    bin_ns: int
    report_ns: int
    profiling: bool


@dataclass(frozen=True, slots=True)
class SendClock:
    """What time it is: the agent's `sent_ns` came at `received_ns`, and this left at `replied_ns`."""

    host: str
    sent_ns: int
    received_ns: int
    replied_ns: int


@dataclass(frozen=True, slots=True)
class SendRefusal:
    """Something an agent said was not accepted."""

    host: str
    what: str


@dataclass(frozen=True, slots=True)
class SendProbeResult:
    """The path that a flow's probe took; empty if it is not known."""

    host: str
    flow: str
    path: tuple[str, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class SendFrame:
    """A packet-out."""

    switch: str
    payload: bytes
    egress_port: int
    submit_to_ingress: bool


AgentEffect = (
    SendWelcome | SendAssignment | SendSchedule | SendRefusal | SendProbeResult | SendMeasure | SendClock
)
Effect = AgentEffect | SendFrame


# Notices, for Ryu applications; `controller/events.py` has the event of each.
@dataclass(frozen=True, slots=True)
class SwitchUp:
    """A switch is in service."""

    time_ns: int
    name: str
    device_id: int


@dataclass(frozen=True, slots=True)
class SwitchDown:
    """A switch's session is gone."""

    time_ns: int
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class PacketArrived:
    """A packet-in that was not one of the controller's own probes."""

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
    counters: tuple[QueueCounter, ...]


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
    """A plan is in force, and its pinned paths have been verified as far as they could be."""

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
