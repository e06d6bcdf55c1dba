# SPDX-License-Identifier: Apache-2.0
"""The state that the controller publishes: frozen snapshots for the API, the page and Ryu handlers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from controller.model.job import Measurement, Profile
from controller.model.plan import Plan
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One direction of one cable over the last poll interval, from port to port; port 0 is a host's NIC.

    `load` is the busy fraction, 0 to 1. `queue_packets` waited at `src_port` when an INT probe last passed.
    What is not measured is None.
    """

    src: str
    src_port: int
    dst: str
    dst_port: int
    rate_bps: int | None
    load: float | None
    marks: int | None
    up: bool
    queue_packets: int | None = None


@dataclass(frozen=True, slots=True)
class LinkColumns:
    """Links as columns, shape (links,) each. NaN in `load` and `marks`, -1 in `queue_packets`: unknown."""

    load: NDArray[np.float64]
    marks: NDArray[np.float64]
    queue_packets: NDArray[np.int32]
    up: NDArray[np.bool_]


@runtime_checkable
class ColumnarLinks(Protocol):
    """Links that are columns too, in the order of `Topology.directions`. That spares an object for each
    link."""

    def columns(self) -> LinkColumns:
        """The links as columns."""

    def at(self, end: tuple[str, int]) -> LinkLoad:
        """The direction from one sending end, (node, port). Raises KeyError for an end that has no cable."""


@dataclass(frozen=True, slots=True)
class QueueCounter:
    """Totals of one egress queue of one switch port since the pipeline was pushed."""

    switch: str
    port: int
    qid: int
    packets: int
    bytes: int
    marks: int


@dataclass(frozen=True, slots=True)
class JobView:
    """A live job. `recent_ms` are its last iteration times, oldest first (at most 120).

    `profile` is the job's profile alone on the fabric, if it is known, and `declared` the profile that the
    job declared. `measured` has the measured values. `measuring` is True while the measurement is not
    finished. `changes` counts how often the profile has changed, `realigned` how often a worker of the job
    had drifted past the threshold. `breaches` counts how often the job has measured below its floor for ten
    iterations in a row, since it or a neighbour last changed; `shares_level_with` are the jobs that are on
    its level at their own pace because of that. `left_out` says why no plan contains the job, whose flows go
    by ECMP; empty: plans contain it. `silence` says that its workers no longer report iterations; empty: they
    do, or never have. `before_plan_ms` is the mean of its last iterations before the present plan.
    `last_end_ns` is when a worker last ended an iteration; None before the first.
    """

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    iterations: int
    recent_ms: tuple[float, ...]
    mean_ms: float | None
    p99_ms: float | None
    level: int | None
    dscp: int | None
    shift_ms: float | None
    period_ms: float | None
    profile: Profile | None = None
    declared: Profile | None = None
    flops_per_iteration: float = 0.0
    sender: str = ""
    measured: Measurement | None = None
    measuring: bool = False
    changes: int = 0
    realigned: int = 0
    breaches: int = 0
    shares_level_with: tuple[str, ...] = ()
    left_out: str = ""
    silence: str = ""
    before_plan_ms: float | None = None
    last_end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class StrayCounter:
    """Packets that a port dropped or remarked because hosts may not send them; `reason` is one of
    STRAY_REASONS of the southbound."""

    port: int
    reason: str
    packets: int


@dataclass(frozen=True, slots=True)
class SwitchView:
    """The state of a switch in the southbound. `state`: connecting, waiting (for another controller to
    leave), ready or down. `tables`: number of entries by table. `strays`: packets that its ports to hosts
    dropped or remarked, by port and reason, and none that are 0."""

    name: str
    address: str
    state: str
    entries: int
    tables: Mapping[str, int] = field(default_factory=dict)
    strays: tuple[StrayCounter, ...] = ()


@dataclass(frozen=True, slots=True)
class FallbackFlow:
    """A pinned flow that the agent of `host` has left to ECMP since `since_ns`, and the reason `why`.

    `source_port` stays its pinned port, which the agent will try again.
    """

    flow: str
    host: str
    source_port: int
    since_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class ProbeHop:
    """What one switch wrote into an INT probe. `latency_ticks` count by the target's clock: microseconds on
    v1model, nanoseconds on TNA. `queue_packets` waited in the queue `qid` of the egress port."""

    switch: str
    ingress_port: int
    egress_port: int
    latency_ticks: int
    qid: int
    queue_packets: int


@dataclass(frozen=True, slots=True)
class ProbeView:
    """The last INT probe of a flow that came back, at `time_ns`. `misrouted`: it took another path than the
    planned one."""

    time_ns: int
    hops: tuple[ProbeHop, ...]
    misrouted: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that an operator should look at, since `since_ns`. `kind` is one of ALARM_KINDS, `subject`
    the switch, cable or job that it is about, empty where it is about the whole controller."""

    kind: str
    subject: str
    since_ns: int
    text: str

    @property
    def name(self) -> str:
        """KIND/SUBJECT, or KIND without a subject: the same as long as the alarm stands."""
        return f"{self.kind}/{self.subject}" if self.subject else self.kind


AlarmKind = Literal[
    "silent_switch",
    "wrong_entries",
    "link_down",
    "silent_agents",
    "starved_job",
    "plan_failed",
    "history_off",
    "failed_probes",
    "fallback_flows",
]
ALARM_KINDS: tuple[AlarmKind, ...] = get_args(AlarmKind)
"""A switch has no session, or other entries than it should have; a cable is down; too few agents have a
session; a job is below its floor, in no plan or silent; the last plan could not be made; nothing of the
history outlasts the process; INT probes of flows did not come back, or came another way; agents have moved
flows to ECMP."""


@dataclass(frozen=True, slots=True)
class View:
    """The controller at one moment of fabric time.

    `measured_ns` is when the counters of switches were last read; None: never. `probes` are by flow.
    `down_links` (`Topology.cables`) and `down_switches` are what plans must not use, `drained_links` and
    `drained_switches` those of them that an operator has taken out of use. `emulated`: the cables can be cut
    by a request.
    """

    time_ns: int
    scenario: str
    topology: Topology
    switches: tuple[SwitchView, ...]
    links: Sequence[LinkLoad]
    jobs: tuple[JobView, ...]
    plan: Plan | None
    counters: Sequence[QueueCounter]
    verified_paths: int
    unverified_paths: int
    fallback_flows: tuple[FallbackFlow, ...] = ()
    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()
    drained_links: frozenset[tuple[str, str]] = frozenset()
    drained_switches: frozenset[str] = frozenset()
    measured_ns: int | None = None
    probes: Mapping[str, ProbeView] = field(default_factory=dict)
    unverified_flows: frozenset[str] = frozenset()
    alarms: tuple[Alarm, ...] = ()
    emulated: bool = False
