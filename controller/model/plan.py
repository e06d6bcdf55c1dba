# SPDX-License-Identifier: Apache-2.0
"""A plan as a value: where each flow goes, who goes first, when each job talks, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.pickled import pickled_by_fields


@dataclass(frozen=True, slots=True)
class Policy:
    """Which mechanisms a plan uses. `routing`: ecmp | greedy | auto; `priority`: equal, or a method of
    `controller.priority.methods`; `interleave`: none | circles (who gains by turns is held to them) | cassini
    (as published: every job is shifted once); `sender`: job | dcqcn | mltcp, the congestion
    control of the jobs' senders (job: each job's own choice). `levels` is CRUX's K: the job levels of the
    switches. Without `compress` every job may have a level of its own: no switch has that many, so only the
    simulator keeps more apart than the switches' levels. `max_moves` bounds how many flows that
    could stay a plan takes off their paths (None: no bound). With `cap_epsilon` agents hold each flow to
    (1 + cap_epsilon) times its max-min fair share. `lookahead` assigns paths anew, for the jobs
    that are going to send then, before each change that is foreseen. With `loss_cap` CRUX's order is bent
    so that no job is expected to lose more than that part of the throughput that it has alone (CRUX, 7.2)."""

    name: str
    routing: str
    priority: str
    interleave: str
    levels: int = 6
    sender: str = "job"
    compress: bool = True
    max_moves: int | None = None
    cap_epsilon: float | None = None
    lookahead: bool = False
    loss_cap: float | None = None


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class FlowPlan:
    """`path` names nodes host to host, `source_port` is the UDP port under which the fabric takes it: by its
    hash, or by entries of its own (Plan.pins); both are None where the flow is left to ECMP.
    `rate_cap_bps` is on the wire; 0: none."""

    flow: str
    path: tuple[str, ...] | None
    source_port: int | None
    dscp: int
    why: str
    rate_cap_bps: int = 0


@dataclass(frozen=True, slots=True)
class FlowPin:
    """An entry for one flow in one switch of its path, where its source port alone would not lead it to
    `toward`, the next node. `src` and `dst` are hosts."""

    flow: str
    switch: str
    toward: str
    src: str
    dst: str
    source_port: int


@dataclass(frozen=True, slots=True)
class FlowRemark:
    """`switch`, the leaf of `src`, gives a flow's packets another DSCP than they leave the host with."""

    flow: str
    switch: str
    src: str
    dst: str
    source_port: int
    sent_dscp: int
    dscp: int


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class QueuePair:
    """What the controller knows of an open QP that its NIC does not let it choose.

    `source_port`: the port it has, 0 where nobody has told it. `port_fixed`: it keeps it. `dscp`: the one
    it keeps; None: it takes any.
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
    """`level` 0 is the highest. The job starts communicating at times t with
    (t - plan.epoch_ns) mod period_ns == shift_ns; period_ns None: the job runs free.
    `once`: only its next iteration waits for that; then it runs at its own pace, until it has drifted from
    its slots by more than `realign` of the period (None: the agents' usual threshold; 1: it may drift).
    `intensity` is CRUX's, in flop/s of the job per second of communication time; None without traffic.
    `sender` is its senders' congestion control: dcqcn, mltcp, or job for what the job chose itself.
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


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A directed link that several jobs share: its compatibility score (CASSINI, Table 4.1)."""

    src: str
    dst: str
    jobs: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the controller has decided at one moment; compared, applied, rolled back.

    `pins` and `remarks` are the entries for single flows that switches hold, in the order of the flows.
    """

    version: int
    policy: Policy
    epoch_ns: int
    flows: Mapping[str, FlowPlan]
    jobs: Mapping[str, JobPlan]
    links: tuple[LinkPlan, ...]
    pins: tuple[FlowPin, ...] = ()
    remarks: tuple[FlowRemark, ...] = ()
