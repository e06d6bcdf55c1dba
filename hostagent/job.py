# SPDX-License-Identifier: Apache-2.0
"""A training job as its workers know it, and what they measure of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """An Up phase and the Down phase after it.

    Each flow sends `bytes_per_flow` at most at `rate_bps` on the wire (0: no cap); alone on the fabric
    that takes `up_ns`. Then the worker computes for `down_ns`.
    """

    up_ns: int
    bytes_per_flow: int
    rate_bps: int
    down_ns: int


@dataclass(frozen=True, slots=True)
class MeasuredPhase:
    """An Up phase of a profile, in ns of the period; `rate_bps` per flow, headers included."""

    start_ns: int
    end_ns: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """One iteration as measured: medians over iterations. Time 0 is the first Up phase's start."""

    period_ns: int
    phases: tuple[MeasuredPhase, ...]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A training job. `hosts` in rank order; `ring` lists its flows as (source, destination) hosts.

    `profile` is what the controller is told; None tells the nominal one, made of the phases.
    `sender` is the congestion control it chose, dcqcn or mltcp, and `increase_timer` DCQCN's timer in parts
    of the NIC's profile. `flops_per_iteration` is of the whole job. Each worker adds a uniform jitter of up
    to `compute_jitter_ns` either way to each Down phase. Raises ValueError for what cannot run.
    """

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    ring: tuple[tuple[str, str], ...]
    phases: tuple[PhaseSpec, ...]
    flops_per_iteration: float
    compute_jitter_ns: int = 0
    profile: MeasuredProfile | None = None
    sender: str = "dcqcn"
    increase_timer: float = 1.0

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"job name {self.name!r}: needs a name without '/'")
        if not self.phases:
            raise ValueError(f"job {self.name}: needs at least one phase")
        for phase in self.phases:
            if min(phase.up_ns, phase.bytes_per_flow, phase.rate_bps, phase.down_ns) < 0:
                raise ValueError(f"job {self.name}: a phase has a negative figure: {phase}")
        if sum(phase.up_ns + phase.down_ns for phase in self.phases) <= 0:
            raise ValueError(f"job {self.name}: an iteration needs time")
        for src, dst in self.ring:
            if src == dst or src not in self.hosts or dst not in self.hosts:
                raise ValueError(
                    f"job {self.name}: flow {src}>{dst} must join two of {', '.join(self.hosts)}"
                )
        if len(set(self.ring)) != len(self.ring):
            raise ValueError(f"job {self.name}: a flow is listed twice")
        if self.compute_jitter_ns < 0:
            raise ValueError(f"job {self.name}: compute jitter must be >= 0, not {self.compute_jitter_ns}")

    @property
    def bytes_per_iteration(self) -> int:
        """Bytes each flow carries in one iteration."""
        return sum(phase.bytes_per_flow for phase in self.phases)

    def flow_name(self, src: str, dst: str) -> str:
        """The fabric-wide name of a flow of this job."""
        return f"{self.name}/{src}>{dst}"

    def announced(self) -> MeasuredProfile:
        """The profile the controller is told."""
        if self.profile is not None:
            return self.profile
        at = 0
        phases = []
        for phase in self.phases:
            if phase.bytes_per_flow:
                rate = phase.rate_bps or (phase.bytes_per_flow * 8 * 10**9 // max(1, phase.up_ns))
                phases.append(MeasuredPhase(at, at + phase.up_ns, rate))
            at += phase.up_ns + phase.down_ns
        return MeasuredProfile(at, tuple(phases))


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """One iteration of one worker; the fields of IterationReport, and the wire's side of it.

    `phases` holds (start, end) of each Up phase in ns since `start_ns`, `wire_bytes` the bytes of the
    frames the worker's flows sent in each.
    """

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
    phases: tuple[tuple[int, int], ...]
    wire_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the job talks: at t with (t - epoch) mod period == shift, not before epoch + shift.

    `period_ns` 0: run free.
    """

    epoch_ns: int
    shift_ns: int
    period_ns: int


FREE = Schedule(0, 0, 0)
LATE_TOLERANCE = 0.05
"""Part of a period a communication phase may start late before it waits for its next slot. The thesis
(4.4.2, step 3) measures the drift on each server and adjusts; the figure is the authors' later one."""


def slot_delay(now: int, schedule: Schedule) -> int:
    """How long (ns) a communication phase that is ready at `now` has to wait for its slot.

    At its slot or late by at most 5 % of the period it goes at once; otherwise, early or later than
    that, it waits for the next slot (CASSINI thesis 4.4.2, step 3).
    """
    if schedule.period_ns <= 0:
        return 0
    offset = now - schedule.epoch_ns - schedule.shift_ns
    if offset < 0:
        return -offset
    offset %= schedule.period_ns
    if offset <= LATE_TOLERANCE * schedule.period_ns:
        return 0
    return schedule.period_ns - offset
