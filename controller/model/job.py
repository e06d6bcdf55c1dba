# SPDX-License-Identifier: Apache-2.0
"""Training jobs: their periodic profile and their flows."""

from __future__ import annotations

from dataclasses import dataclass

from controller.model.pickled import pickled_by_fields
from controller.wire.senders import DCQCN


@dataclass(frozen=True, slots=True)
class Phase:
    """An Up phase: the job sends at `rate_bps` per flow in [start_ns, end_ns) of its period."""

    start_ns: int
    end_ns: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class Profile:
    """One iteration of a job that is alone on the fabric (CASSINI thesis, 4.3).

    Time 0 of the period is the start of the first communication phase. The time outside the Up phases is a
    Down phase (compute). Phases are sorted and disjoint.
    """

    period_ns: int
    phases: tuple[Phase, ...]

    @property
    def up_ns(self) -> int:
        """Time spent communicating in one period."""
        return sum(p.end_ns - p.start_ns for p in self.phases)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Flow:
    """One QP. `name` is unique on the fabric ("job/src>dst"). `bytes_per_iteration` counts one iteration of
    the job."""

    name: str
    job: str
    src: str
    dst: str
    bytes_per_iteration: int


@dataclass(frozen=True, slots=True)
class Confidence:
    """How exactly a measured profile is known: half-widths of 95 % intervals, in ns.

    `period_ns` is that of the period. `edges_ns` has one pair for each Up phase of the profile, in their
    order: that of the phase's start and that of its end. The true period lies within +- `period_ns` of the
    measured one in 95 of 100 measurements.
    """

    period_ns: int
    edges_ns: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What agents measured of a job over `iterations` iterations, while it was alone on the highest level.

    Per iteration: `communication_ns` is CRUX's t_j, `compute_ns` the time in which the GPUs compute, `flops`
    their floating-point operations (None: not reported). `source` is "iterations" if the job reported its
    iterations, "bytes" if only its byte counts were measured. `confidence` says how exactly the profile is
    known (None: too few iterations to tell).
    """

    iterations: int
    communication_ns: int
    compute_ns: int | None
    flops: float | None
    source: str
    confidence: Confidence | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    `flops_per_iteration` is for all GPUs of the job (CRUX's W_j). A `silent` job reports no iterations.
    Profile, flops and bytes are measured if `measured` is not None; otherwise the job declares them. If
    `pcie_link` has a name, the job's GPUs reach the NIC of each host over that PCIe link of the host, with
    `pcie_bps` bit/s, and other jobs may use the same link. `sender` is the congestion control that the job
    chose for its senders (controller.wire.senders.SENDERS); a NIC with a single one ignores it. If iterations
    corrected the period of a declared profile, it is known to +- `corrected_half_width_ns` (0: as declared).
    """

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    profile: Profile
    flops_per_iteration: float
    flows: tuple[Flow, ...]
    silent: bool = False
    pcie_link: str = ""
    pcie_bps: int = 0
    measured: Measurement | None = None
    sender: str = DCQCN
    corrected_half_width_ns: int = 0


def job_of_flow(name: str) -> str:
    """The job of a flow by their names: that of a flow begins with the job's, which has no "/", and "/"."""
    return name.partition("/")[0]
