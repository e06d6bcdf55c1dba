# SPDX-License-Identifier: Apache-2.0
"""A plan as a value: the path of each flow, the level and time-shift of each job, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.pickled import pickled_by_fields


@dataclass(frozen=True, slots=True)
class PolicyReference:
    """Which policy made a plan. `controller.planner.registry.resolve` imports the policy from it.

    `name` is the registered name, or "package.module:NAME". `distribution` and `version` name the installed
    package that the policy comes from. `options` are all options of its three objects, sorted by name:
    ("priority.levels", 6); "priority" itself names the class of that object.
    """

    name: str
    distribution: str = ""
    version: str = ""
    options: tuple[tuple[str, bool | int | float | str | None], ...] = ()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class FlowPlan:
    """The decision for one flow.

    `path` names the nodes from host to host. `source_port` is the UDP source port that leads along it, by
    the switches' hash or by entries for this flow (Plan.pins). Both are None where the flow is left to ECMP.
    `rate_cap_bps` is a rate on the wire in bit/s; 0: no cap.
    """

    flow: str
    path: tuple[str, ...] | None
    source_port: int | None
    dscp: int
    why: str
    rate_cap_bps: int = 0


@dataclass(frozen=True, slots=True)
class FlowPin:
    """A table entry for one flow in one switch of its path, which sends it to the node `toward`. It is needed
    where the source port alone would not. `src` and `dst` are hosts."""

    flow: str
    switch: str
    toward: str
    src: str
    dst: str
    source_port: int


@dataclass(frozen=True, slots=True)
class FlowRemark:
    """`switch`, the leaf of `src`, rewrites the DSCP of a flow's packets from `sent_dscp` to `dscp`."""

    flow: str
    switch: str
    src: str
    dst: str
    source_port: int
    sent_dscp: int
    dscp: int


@dataclass(frozen=True, slots=True)
class Connection:
    """One direction of an open TCP or UDP connection, which carries a flow of a job.

    `protocol` is the number in the IP header. `sent_dscp` is the DSCP that its packets leave the host with.
    """

    flow: str
    protocol: int
    source_port: int
    dest_port: int
    sent_dscp: int


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """What switches do for one direction of a connection between two hosts.

    They let it into the queues of levels. Each switch in `pins` sends it to the node beside it; `pins` is
    empty where its ports lead along the path of its flow, or where the flow has none. The leaf of `src`
    rewrites its DSCP to `dscp` if that is another than `connection.sent_dscp`.
    """

    connection: Connection
    src: str
    dst: str
    dscp: int
    pins: tuple[tuple[str, str], ...] = ()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class QueuePair:
    """What the NIC does not let the plan choose for an open QP.

    `source_port` is its UDP source port, 0 while the agent has not reported it. With `port_fixed` the QP
    keeps that port. `dscp` is the DSCP that it keeps; None: it takes any.
    """

    source_port: int = 0
    port_fixed: bool = False
    dscp: int | None = None


REALIGN_PCT = 5
REALIGN = REALIGN_PCT / 100
"""The part of its period by which an iteration may begin late before it waits for its next slot, unless a
scenario says otherwise (CASSINI thesis, 4.4.2, step 3)."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The decision for one job. `level` 0 is the highest.

    The job starts to communicate at times t with (t - plan.epoch_ns) mod period_ns == shift_ns. With
    period_ns None it runs at its own pace. With `once` only its next iteration waits for such a time; then
    the job runs at its own pace until it has drifted from its slots by more than the part `realign` of the
    period (None: the agents' usual threshold; 1: it may drift).
    `intensity` is CRUX's GPU intensity, in flop per second of communication; None without traffic.
    `sender` is the congestion control of its senders: one of controller.wire.senders.SENDERS, or job for what
    the job chose itself.
    `expected_ns` is the mean iteration that the planner's evaluator expects under this plan, and `ecmp_ns`
    the one that it expects under plain ECMP with the same jobs. `floor_ns` is the longest mean iteration that
    the policy's `max_slowdown` allows. Each is None where the plan was not evaluated or there is no floor.
    """

    job: str
    level: int
    dscp: int
    shift_ns: int
    period_ns: int | None
    intensity: float | None
    why: str
    sender: str = "job"
    once: bool = False
    realign: float | None = None
    expected_ns: int | None = None
    ecmp_ns: int | None = None
    floor_ns: int | None = None

    @property
    def ecmp_ratio(self) -> float | None:
        """The expected iteration divided by the one expected under plain ECMP; None where either is
        unknown."""
        return self.expected_ns / self.ecmp_ns if self.expected_ns and self.ecmp_ns else None


@dataclass(frozen=True, slots=True)
class Spreading:
    """What switches do with the RoCEv2 packets of a class instead of hashing: the `action` of the table
    `spread`. With move_flowlets a flow that paused for `gap_us` moves to the port that has sent the least, by
    bytes that are halved every 2^`half_life` us.
    """

    action: str
    gap_us: int = 0
    half_life: int = 0


@dataclass(frozen=True, slots=True)
class SpreadClass:
    """Switches spread the packets under this DSCP over their ECMP groups."""

    dscp: int
    spreading: Spreading


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A directed link that several jobs share: its compatibility score (CASSINI, Table 4.1)."""

    src: str
    dst: str
    jobs: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the controller has decided at one moment. Plans are compared, applied and rolled back.

    `pins` and `remarks` are the table entries for single flows, in the order of the flows. `pairs` are the
    pairs of hosts (sender, receiver) whose RoCE packets switches let into the queues of levels, and
    `mice_pairs` those that have flows below the levels only. The receivers of both may answer. Switches
    spread the packets of the classes in `spread`. `connections` are the open TCP and UDP connections that
    carry flows.
    """

    version: int
    policy: PolicyReference
    epoch_ns: int
    flows: Mapping[str, FlowPlan]
    jobs: Mapping[str, JobPlan]
    links: tuple[LinkPlan, ...]
    pins: tuple[FlowPin, ...] = ()
    remarks: tuple[FlowRemark, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    mice_pairs: tuple[tuple[str, str], ...] = ()
    spread: tuple[SpreadClass, ...] = ()
    connections: tuple[ConnectionPlan, ...] = ()
