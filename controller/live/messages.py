# SPDX-License-Identifier: Apache-2.0
"""The values that go into the core and come out of it: inputs and effects. All are frozen.

The core handles inputs one after another, in the order (time, node, sequence). Times are nanoseconds of
the controller's clock, which in the embedded fabric is the fabric's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.live.operator_commands import OperatorCommand
from controller.model.job import Job
from controller.model.plan import Connection
from controller.routing.port_conditions import PortCondition


# Inputs, from agents.
@dataclass(frozen=True, slots=True)
class AgentUp:
    """An agent has opened its session.

    `pinning` is how the agent sets UDP source ports ("none": its NIC chooses them). `dscp` is "qp" where an
    open queue pair takes a new DSCP, "fixed" where it keeps its first one. `mltcp` says whether the NIC can
    send by MLTCP for single jobs. `connects` are the IP protocols of which the agent steers connections.
    `workers` are job and rank of all that have joined; None: the agent's
    process is young, and lists them later (`WorkersListed`).
    """

    host: str
    pinning: str
    dscp: str = "qp"
    mltcp: bool = False
    connects: tuple[int, ...] = ()
    workers: frozenset[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class WorkersListed:
    """Job and rank of all workers that have joined on a host. Others of the host have ended."""

    host: str
    workers: frozenset[tuple[str, int]]


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
    """The queue pair of a flow is open, with this source port (0: not known) and DSCP.

    Only agents whose NIC chooses the port, or keeps the DSCP, send this.
    """

    host: str
    flow: str
    source_port: int
    dscp: int


@dataclass(frozen=True, slots=True)
class ConnectionsSeen:
    """TCP and UDP connections of a host that carry flows have opened (True) or closed (False).

    Each is one direction of a connection; its flow begins or ends on the host.
    """

    host: str
    connections: tuple[tuple[bool, Connection], ...]


@dataclass(frozen=True, slots=True)
class FlowFallback:
    """An agent has moved a pinned flow back to ECMP, because the flow's latency or loss went bad.

    `on_ecmp` False: the flow uses its pinned source port again. `source_port` is the pinned port, `why` the
    agent's reason.
    """

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
    """One iteration of one worker. Times in ns, sizes in bytes, ECN marks and retransmits in packets.

    `held_ns` is how long the worker waited for its slot, `drift_ns` how late the iteration began after its
    slot; `realigned` says that this drift had passed the threshold, so the worker waited for the next slot.
    """

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

    @property
    def own_ns(self) -> int:
        """The length of the iteration without the time that its schedule delayed it."""
        return self.end_ns - self.start_ns - self.held_ns


@dataclass(frozen=True, slots=True)
class BytesCounted:
    """Bytes on the wire for each flow, in bins of `bin_ns` from `start_ns` on.

    `flops` is the work of this worker's GPUs in all these bins. An agent that cannot tell flows apart counts
    its whole NIC under the flow name "".
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
    """An agent asks for the controller's time; `sent_ns` is when it asked, by its own clock."""

    host: str
    sent_ns: int


# Inputs, from switches and from Ryu applications.
@dataclass(frozen=True, slots=True)
class SwitchReady:
    """A switch is in service: its pipeline is loaded and its tables are written.

    `ports` maps each port to whether it is up; None where the target reports no port states.
    """

    switch: str
    ports: Mapping[int, bool] | None


@dataclass(frozen=True, slots=True)
class SwitchLost:
    """The session with a switch is gone."""

    switch: str
    why: str


@dataclass(frozen=True, slots=True)
class PacketSeen:
    """A packet-in from a switch. `reason` is a code of the P4 program."""

    switch: str
    ingress_port: int
    reason: int
    egress_port: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """Port states of a switch have changed. `ports` maps a port to whether it is up."""

    switch: str
    ports: Mapping[int, bool]


@dataclass(frozen=True, slots=True)
class FrameAsked:
    """A Ryu application asks the controller to send a frame."""

    switch: str
    payload: bytes
    egress_port: int
    submit_to_ingress: bool


Input = (
    AgentUp
    | WorkersListed
    | AgentDown
    | WorkerJoined
    | WorkerLeft
    | FlowAsked
    | FlowOpened
    | ConnectionsSeen
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
    | OperatorCommand
)


# Effects: messages to agents, frames to switches.
@dataclass(frozen=True, slots=True)
class SendWelcome:
    """Answer an agent's Hello."""

    host: str


@dataclass(frozen=True, slots=True)
class SendAssignment:
    """Tell an agent a flow's source port (0: leave it to ECMP), DSCP, and rate cap in bit/s (0: none)."""

    host: str
    flow: str
    source_port: int
    dscp: int
    rate_cap_bps: int = 0


@dataclass(frozen=True, slots=True)
class SendConnectionPath:
    """Tell an agent which ports lead the connections of a flow along its path, and their DSCP.

    The flow is number `index` of its job from `src_ip` to `dst_ip`. `conditions` None: no ports are known to,
    and switches pin what agents report. `ended`: the job has left the fabric.
    """

    host: str
    flow: str
    job: str
    src_ip: str
    dst_ip: str
    index: int
    protocol: int
    dscp: int
    conditions: tuple[PortCondition, ...] | None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class SendSchedule:
    """Tell an agent when a job communicates, and which congestion control its senders use.

    A communication phase starts at t with (t - `epoch_ns`) mod `period_ns` = `shift_ns`. `period_ns` 0: the
    job is not held to slots. `once`: the job waits for its slot once, and again only when it has drifted by
    more than `realign`, a fraction of the period (None: the threshold of the fabric's configuration, but at
    least `tolerance`).
    """

    host: str
    job: str
    epoch_ns: int
    shift_ns: int
    period_ns: int
    sender: str = "job"
    once: bool = False
    realign: float | None = None
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class SendMeasure:
    """Tell an agent to count a job's bytes in bins of `bin_ns` and to report them every `report_ns`.

    `bin_ns` 0 ends the counting. `profiling`: meanwhile the job is alone on the highest priority level.
    """

    host: str
    job: str
    bin_ns: int
    report_ns: int
    profiling: bool


@dataclass(frozen=True, slots=True)
class SendClock:
    """Tell an agent the time: its request of `sent_ns` arrived at `received_ns`.

    The reply left at `replied_ns`.
    """

    host: str
    sent_ns: int
    received_ns: int
    replied_ns: int


@dataclass(frozen=True, slots=True)
class SendJobAccepted:
    """Tell an agent that the controller has stored a worker of a job. It waits for the commit."""

    host: str
    job: str
    rank: int


@dataclass(frozen=True, slots=True)
class SendRefusal:
    """Tell an agent that the controller refuses its message; `what` says why."""

    host: str
    what: str


@dataclass(frozen=True, slots=True)
class SendProbeResult:
    """Tell an agent the path (host to host) that the INT probe of a flow took; empty if it is not known."""

    host: str
    flow: str
    path: tuple[str, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a frame as a packet-out: out of `egress_port`, or through the ingress pipeline."""

    switch: str
    payload: bytes
    egress_port: int
    submit_to_ingress: bool


AgentEffect = (
    SendWelcome
    | SendAssignment
    | SendConnectionPath
    | SendSchedule
    | SendRefusal
    | SendProbeResult
    | SendMeasure
    | SendClock
    | SendJobAccepted
)
Effect = AgentEffect | SendFrame
