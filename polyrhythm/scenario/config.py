# SPDX-License-Identifier: Apache-2.0
"""The scenario file's grammar: every key, its unit, its range and its default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Gbps = Annotated[float, Field(gt=0, le=10_000)]


class Section(BaseModel):
    """A mapping in the file: unknown keys are refused, numbers are numbers, nothing is coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LeafSpineConfig(Section):
    """A generated two-tier Clos; rates are nominal."""

    kind: Literal["leaf_spine"]
    leaves: Annotated[int, Field(ge=1, le=64)]
    spines: Annotated[int, Field(ge=0, le=64)]
    hosts_per_leaf: Annotated[int, Field(ge=1, le=64)]
    host_gbps: Gbps
    fabric_gbps: Gbps


class CableConfig(Section):
    """A cable between two switches of an explicit fabric."""

    a: Name
    b: Name
    gbps: Gbps


class HostConfig(Section):
    """A host of an explicit fabric."""

    name: Name
    leaf: Name
    gbps: Gbps


class SwitchConfig(Section):
    """A switch of an explicit fabric."""

    name: Name
    tier: Literal["leaf", "spine", "core"]


class ExplicitConfig(Section):
    """A fabric written out node by node."""

    kind: Literal["explicit"]
    switches: Annotated[tuple[SwitchConfig, ...], Field(min_length=1, max_length=512)]
    hosts: Annotated[tuple[HostConfig, ...], Field(min_length=1, max_length=4096)]
    links: tuple[CableConfig, ...] = ()


class FileConfig(Section):
    """A topology file, beside the scenario or by its whole path; rates are nominal.

    `gbps` is for the cables that a p4lang tutorial's topology.json gives no bandwidth; the bandwidths that it
    gives are the emulated ones.
    """

    kind: Literal["file"]
    path: Annotated[str, Field(min_length=1)]
    gbps: Gbps = 100.0


class EcnConfig(Section):
    """The marking ramp of each job queue, in packets: none below kmin, pmax at kmax, all above."""

    kmin: Annotated[int, Field(ge=0, le=10_000)] = 20
    kmax: Annotated[int, Field(ge=1, le=10_000)] = 60
    pmax: Annotated[float, Field(gt=0, le=1)] = 0.2


class PhaseConfig(Section):
    """An Up phase inside the period, and the rate at which each flow of the job sends in it."""

    start_ms: Annotated[float, Field(ge=0, le=3_600_000)]
    end_ms: Annotated[float, Field(gt=0, le=3_600_000)]
    gbps: Gbps


class ChangeConfig(Section):
    """From an iteration on (counted from 0) the job runs another pattern: a new batch size, say."""

    iteration: Annotated[int, Field(ge=1, le=10_000_000)]
    period_ms: Annotated[float, Field(ge=1, le=3_600_000)]
    phases: Annotated[tuple[PhaseConfig, ...], Field(min_length=1, max_length=64)]
    teraflops_per_iteration: Annotated[float, Field(gt=0, le=1e12)] | None = None


class PcieConfig(Section):
    """The PCIe link of each of its hosts by which a job's GPUs reach their NIC; jobs that say the same name
    share it there, by their levels."""

    link: Name
    gbps: Gbps


class JobConfig(Section):
    """A training job: one ring all-reduce over `hosts` in each Up phase, compute in between.

    `sender` is its NICs' congestion control; `increase_timer` makes DCQCN greedier (below 1) or tamer, in
    parts of the profile's timer. A job that `announces` nothing tells the controller of no profile; the
    iterations of a `silent` one are reported to nobody.
    """

    name: Name
    model: Annotated[str, Field(min_length=1, max_length=64)]
    gpus: Annotated[int, Field(ge=1, le=100_000)]
    hosts: Annotated[tuple[Name, ...], Field(min_length=2, max_length=1024)]
    period_ms: Annotated[float, Field(ge=1, le=3_600_000)]
    phases: Annotated[tuple[PhaseConfig, ...], Field(min_length=1, max_length=64)]
    sender: Literal["dcqcn", "mltcp"] = "dcqcn"
    increase_timer: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    teraflops_per_iteration: Annotated[float, Field(gt=0, le=1e12)] | None = None
    announces: Literal["profile", "nothing"] = "profile"
    silent: bool = False
    pcie: PcieConfig | None = None
    changes: Annotated[tuple[ChangeConfig, ...], Field(max_length=64)] = ()


class NicConfig(Section):
    """What the emulated NICs of `hosts` (none named: of all) do not let the controller choose."""

    chooses_ports: bool = False
    keeps_dscp: bool = False
    hosts: tuple[Name, ...] = ()


class ScenarioConfig(Section):
    """A whole scenario file."""

    name: Name
    about: Annotated[str, Field(max_length=2000)] = ""
    fabric: Annotated[LeafSpineConfig | ExplicitConfig | FileConfig, Field(discriminator="kind")]
    jobs: Annotated[tuple[JobConfig, ...], Field(min_length=1, max_length=256)]
    scale: Annotated[float, Field(ge=1, le=1_000_000)] = 2000
    packet_bytes: Annotated[int, Field(ge=256, le=8192)] = 1024
    buffer_packets: Annotated[int, Field(ge=16, le=100_000)] = 256
    ecn: EcnConfig = EcnConfig()
    warmup: Annotated[int, Field(ge=1, le=10_000)] = 5
    iterations: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    start_jitter_ms: Annotated[float, Field(ge=0, le=1000)] = 1.0
    hash: Literal["told", "unknown"] = "told"
    draws: Annotated[int, Field(ge=1, le=100)] = 1
    profile: Literal["measured", "declared"] = "measured"
    profile_window_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 30_000
    realign_pct: Annotated[float, Field(gt=0, le=50)] = 5
    clock_offset_ms: Annotated[float, Field(ge=0, le=1e9)] = 0
    clock_drift_ppm: Annotated[float, Field(ge=0, le=200)] = 0
    nics: NicConfig = NicConfig()
    strays: Literal["remark", "stop"] = "remark"
