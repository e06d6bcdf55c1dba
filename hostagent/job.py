# SPDX-License-Identifier: Apache-2.0
"""A training job as its workers see it, and the measurements of its iterations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from controller.wire.protocol import MAX_GPUS
from controller.wire.senders import DCQCN, SENDERS
from controller.wire.traffic import flow_name

MOST_NS = 10**15
"""The longest iteration: eleven days. Chosen, as the other bounds: far beyond any job, and within 63 bits."""
MOST_BYTES = 10**15
MOST_BPS = 10**18


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """An Up phase and the Down phase after it.

    Each flow sends `bytes_per_flow`, or its own one of several figures, at most at `rate_bps` on the wire (0:
    no cap). Without other jobs that takes `up_ns`. Then the worker computes for `down_ns`.
    """

    up_ns: int
    bytes_per_flow: int | tuple[int, ...]
    rate_bps: int
    down_ns: int

    def bytes_of(self, flow: int) -> int:
        """What flow number `flow` of the job sends in this phase."""
        return self.bytes_per_flow if isinstance(self.bytes_per_flow, int) else self.bytes_per_flow[flow]

    @property
    def most_bytes(self) -> int:
        """What the largest flow sends in this phase."""
        return (
            self.bytes_per_flow
            if isinstance(self.bytes_per_flow, int)
            else max(self.bytes_per_flow, default=0)
        )

    @property
    def least_bytes(self) -> int:
        """What the smallest flow sends in this phase."""
        return (
            self.bytes_per_flow
            if isinstance(self.bytes_per_flow, int)
            else min(self.bytes_per_flow, default=0)
        )


def jittered_start(seed: int, job: str, rank: int, most_ns: int) -> int:
    """How much later than its job an emulated worker begins, in ns: a uniform draw of up to `most_ns`."""
    return Random(f"{seed}/{job}/{rank}/start").randint(0, max(0, most_ns))


def one_or_each(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    """The bytes of each flow as `PhaseSpec.bytes_per_flow` has them: one figure if all are alike."""
    return sizes[0] if sizes and min(sizes) == max(sizes) else sizes


@dataclass(frozen=True, slots=True)
class MeasuredPhase:
    """An Up phase of a profile, in ns from the start of the period. `rate_bps` is the rate of each flow,
    headers included.
    """

    start_ns: int
    end_ns: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """One measured iteration: medians over iterations. Time 0 is the start of the first Up phase."""

    period_ns: int
    phases: tuple[MeasuredPhase, ...]


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """From `iteration` on (counted from 0) a job runs other phases, for instance because of another batch
    size. `flops_per_iteration` is of the whole job from then on.
    """

    iteration: int
    phases: tuple[PhaseSpec, ...]
    flops_per_iteration: float


@dataclass(frozen=True, slots=True)
class PcieUse:
    """The PCIe link between a job's GPUs and their NIC on each of its hosts, and its rate. Other jobs may use
    it too.
    """

    link: str
    rate_bps: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A training job. `hosts` in rank order; `ring` lists its flows as (source, destination) hosts. A pair
    that is there several times has several flows.

    `profile` is reported to the controller; None reports the nominal profile, made of the phases. `sender`:
    the congestion control that the job chose (controller.wire.senders.SENDERS). `increase_timer`: DCQCN's
    increase timer as a multiple of the NIC's. `flops_per_iteration` is of the whole job. Each worker
    multiplies the length of each Down phase by an independent uniform draw from 1 - `compute_jitter` to 1 +
    `compute_jitter` (0 to 1). `changes` are in the order of their iterations. The iterations of a `silent`
    job are not reported, but its bytes can be counted. `pcie` None: its transfers within a host are not
    modelled. Raises ValueError for an impossible job.
    """

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    ring: tuple[tuple[str, str], ...]
    phases: tuple[PhaseSpec, ...]
    flops_per_iteration: float
    compute_jitter: float = 0.0
    profile: MeasuredProfile | None = None
    sender: str = DCQCN
    increase_timer: float = 1.0
    changes: tuple[PhaseChange, ...] = ()
    silent: bool = False
    pcie: PcieUse | None = None

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"job name {self.name!r}: needs a name without '/'")
        for phases in (self.phases, *(change.phases for change in self.changes)):
            self._check_phases(phases)
        for before, after in pairwise(change.iteration for change in self.changes):
            if after <= before:
                raise ValueError(f"job {self.name}: its changes must be in the order of their iterations")
        for src, dst in self.ring:
            if src == dst or src not in self.hosts or dst not in self.hosts:
                raise ValueError(
                    f"job {self.name}: flow {src}>{dst} must join two of {', '.join(self.hosts)}"
                )
        if self.sender not in SENDERS:
            raise ValueError(f"job {self.name}: sender {self.sender!r}; legal: {', '.join(SENDERS)}")
        if not 0 <= self.compute_jitter <= 1:
            raise ValueError(f"job {self.name}: compute jitter must be 0 to 1, not {self.compute_jitter}")
        self._check_bounds()

    def _check_bounds(self) -> None:
        phases = [p for ps in (self.phases, *(change.phases for change in self.changes)) for p in ps]
        profile = self.announced()
        pcie_bps = self.pcie.rate_bps if self.pcie is not None else 0
        rates = [p.rate_bps for p in phases] + [p.rate_bps for p in profile.phases]
        for what, value, most in (
            ("GPUs", self.gpus, MAX_GPUS),
            ("ns an iteration", max(profile.period_ns, *(p.up_ns + p.down_ns for p in phases)), MOST_NS),
            ("bytes of a flow in an iteration", sum(p.most_bytes for p in phases), MOST_BYTES),
            ("bit/s", max(pcie_bps, *rates), MOST_BPS),
        ):
            if value > most:
                raise ValueError(f"job {self.name}: {value:,} {what}; at most {most:,} are legal")

    def _check_phases(self, phases: tuple[PhaseSpec, ...]) -> None:
        if not phases:
            raise ValueError(f"job {self.name}: needs at least one phase")
        for phase in phases:
            if min(phase.up_ns, phase.least_bytes, phase.rate_bps, phase.down_ns) < 0:
                raise ValueError(f"job {self.name}: a phase has a negative figure: {phase}")
            if isinstance(phase.bytes_per_flow, tuple) and len(phase.bytes_per_flow) != len(self.ring):
                raise ValueError(
                    f"job {self.name}: a phase gives the bytes of {len(phase.bytes_per_flow)} flows; "
                    f"legal: one figure, or one for each of its {len(self.ring)} flows"
                )
        if sum(phase.up_ns + phase.down_ns for phase in phases) <= 0:
            raise ValueError(f"job {self.name}: an iteration needs time")

    def at(self, iteration: int) -> tuple[tuple[PhaseSpec, ...], float]:
        """The phases that this iteration runs, and its FLOPs (of the whole job)."""
        phases, flops = self.phases, self.flops_per_iteration
        for change in self.changes:
            if change.iteration <= iteration:
                phases, flops = change.phases, change.flops_per_iteration
        return phases, flops

    def flows(self) -> list[tuple[str, str, str]]:
        """The flows of `ring` in its order: (fabric-wide name, source, destination)."""
        seen: Counter[tuple[str, str]] = Counter()
        found = []
        for src, dst in self.ring:
            found.append((flow_name(self.name, src, dst, seen[src, dst]), src, dst))
            seen[src, dst] += 1
        return found

    def flow_bytes(self) -> dict[str, int]:
        """The bytes that each flow carries in one iteration, before any change, by its name."""
        return {
            name: sum(phase.bytes_of(number) for phase in self.phases)
            for number, (name, _, _) in enumerate(self.flows())
        }

    def announced(self) -> MeasuredProfile:
        """The profile that is reported to the controller."""
        if self.profile is not None:
            return self.profile
        at = 0
        phases = []
        for phase in self.phases:
            if phase.most_bytes:
                mean = phase.most_bytes * 8 * 10**9 // max(1, phase.up_ns)
                # Flows of different sizes share a phase's time, and none of them is at the cap all the time.
                alike = isinstance(phase.bytes_per_flow, int)
                rate = phase.rate_bps if alike and phase.rate_bps else mean
                phases.append(MeasuredPhase(at, at + phase.up_ns, rate))
            at += phase.up_ns + phase.down_ns
        return MeasuredProfile(at, tuple(phases))


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """One iteration of one worker: the fields of IterationReport, and its bytes on the wire.

    `phases`: (start, end) of each Up phase in ns since `start_ns`. `wire_bytes`: the bytes of the frames that
    the worker's flows sent in each phase. `flops`: of this worker. `drift_ns`: how late after its slot the
    iteration began. `realigned`: it would have begun later than the schedule allows, and waited for the next
    slot.
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
    compute_ns: int = 0
    flops: float = 0.0
    drift_ns: int = 0
    realigned: bool = False
