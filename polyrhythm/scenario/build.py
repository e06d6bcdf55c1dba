# SPDX-License-Identifier: Apache-2.0
"""From the keys of a scenario file to the emulated fabric and its jobs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from controller.model.job import Flow, Job, Phase, Profile
from controller.wire.senders import canonical_sender
from hostagent.job import PcieUse
from polyrhythm.scenario.config import (
    ELEPHANT_NOMINAL_BYTES,
    ChangeConfig,
    EcnConfig,
    JobConfig,
    PhaseConfig,
    ScenarioConfig,
)
from polyrhythm.scenario.emulated_fabric import emulated_bps, emulated_fabric
from polyrhythm.scenario.failures import Failure, FailureError, failure_of
from polyrhythm_files import InvalidValueError, listed
from topo.graph import Topology

FLOPS_PER_GPU_SECOND = 312e12 * 0.4
"""An A100's peak in bf16 (data sheet), at the 40 % that large training reaches. It stands for a job's flops
where the scenario gives none."""

ALONE_WARMUP = 2
ALONE_ITERATIONS = 8
"""Iterations of a job alone on the fabric, which give its profile (chosen: nothing disturbs the job, so few
suffice)."""

ROCE_OVERHEAD_BYTES = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC around a payload."""

Steps = tuple[tuple[int, int, int], ...]
"""For each Up phase: bytes of each flow, rate cap of a flow in bit/s, compute time after the phase in ns."""


@dataclass(frozen=True, slots=True)
class ChangedPattern:
    """The communication pattern of a job from `iteration` on."""

    iteration: int
    profile: Profile
    steps: Steps
    flops_per_iteration: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A job as the emulated hosts run it: in each Up phase its flows send, then its GPUs compute.

    `steps` are in the order of the period. `increase_timer`, `announces`, `silent` and `iterations`
    are as in the file (`JobConfig`). Times count from the start of the first jobs: the job arrives at
    `arrival_ns`, computes for `lead_ns` before its first Up phase, and leaves at `stop_ns` (None: it does not
    leave at a fixed time). Time 0 of the profiles is the start of the first Up phase. `jitter` is a part of
    each compute time, 0 to 1.
    """

    job: Job
    steps: Steps
    increase_timer: float = 1.0
    announces: str = "profile"
    silent: bool = False
    changes: tuple[ChangedPattern, ...] = ()
    pcie: PcieUse | None = None
    arrival_ns: int = 0
    lead_ns: int = 0
    stop_ns: int | None = None
    iterations: int | None = None
    jitter: float = 0.0

    @property
    def compute_ns(self) -> int:
        """Mean compute time of one iteration, before any change."""
        return sum(step[2] for step in self.steps)

    @property
    def leaves(self) -> bool:
        """Whether the job leaves the fabric during the run."""
        return self.stop_ns is not None or self.iterations is not None

    @property
    def longest_period_ns(self) -> int:
        """The longest period of the job, over all its patterns."""
        return max(p.period_ns for p in (self.job.profile, *(change.profile for change in self.changes)))


@dataclass(frozen=True, slots=True)
class Mice:
    """Background flows of `size` payload bytes, which load each host's link by the part `load`, 0 to 1."""

    load: float
    size: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario in emulated units: bit/s and bytes on the emulated wire, ns of fabric time.

    The NICs of the hosts `port_choosers` draw their UDP source ports themselves. The queue pairs of the hosts
    `dscp_keepers` keep the DSCP that they are opened with. `hash_known`: the controller knows the switches'
    ECMP hash. The other values are as in the file (`ScenarioConfig`).
    """

    name: str
    about: str
    topology: Topology
    workloads: tuple[Workload, ...]
    scale: float
    packet_bytes: int
    buffer_packets: int
    elephant_bytes: int
    ecn: EcnConfig
    warmup: int
    iterations: int
    start_jitter_ns: int
    draws: int
    profile: str
    profile_window_ms: int
    realign_pct: float
    clock_offset_ns: int
    clock_drift_ppm: float
    hash_known: bool = True
    port_choosers: frozenset[str] = frozenset()
    dscp_keepers: frozenset[str] = frozenset()
    strays: str = "remark"
    failures: tuple[Failure, ...] = ()
    mice: Mice | None = None


def build(config: ScenarioConfig, fabric: Topology | None = None) -> Scenario:
    """The scenario with its rates divided by the scale, after the checks that need several keys at once.

    `fabric` is what the topology file that `config.fabric` names holds, in nominal rates.

    Raises:
        InvalidValueError: with the path of the value that makes no sense.
    """
    topology = emulated_fabric(config, fabric)
    names = Counter(job.name for job in config.jobs)
    for i, job in enumerate(config.jobs):
        if names[job.name] > 1:
            raise InvalidValueError(
                ("jobs", i, "name"), f"{job.name!r} names {names[job.name]} jobs; legal: a name of its own"
            )
        _check_job(i, job, topology)
    _check_pcie(config)
    _check_reachable(config, topology)
    limited = _limited(config, topology)
    return Scenario(
        name=config.name,
        about=config.about,
        topology=topology,
        workloads=tuple(_workload(config, job, topology) for job in config.jobs),
        scale=config.scale,
        packet_bytes=config.packet_bytes,
        buffer_packets=config.buffer_packets,
        elephant_bytes=max(1, round(ELEPHANT_NOMINAL_BYTES / config.scale)),
        ecn=config.ecn,
        warmup=config.warmup,
        iterations=config.iterations,
        start_jitter_ns=round(config.start_jitter_ms * 1e6),
        draws=config.draws,
        hash_known=config.hash == "told",
        profile=config.profile,
        profile_window_ms=config.profile_window_ms,
        realign_pct=config.realign_pct,
        clock_offset_ns=round(config.clock_offset_ms * 1e6),
        clock_drift_ppm=config.clock_drift_ppm,
        port_choosers=limited if config.nics.chooses_ports else frozenset(),
        dscp_keepers=limited if config.nics.keeps_dscp else frozenset(),
        strays=config.strays,
        failures=_failures(config, topology),
        mice=_mice(config),
    )


def _failures(config: ScenarioConfig, topology: Topology) -> tuple[Failure, ...]:
    found = []
    for i, failure in enumerate(config.failures):
        try:
            found.append(failure_of(failure.what, failure.at_ms, failure.repair_ms, topology))
        except FailureError as error:
            raise InvalidValueError(("failures", i), str(error)) from None
    return tuple(found)


def _mice(config: ScenarioConfig) -> Mice | None:
    if config.mice is None:
        return None
    return Mice(config.mice.load_pct / 100, max(1, round(config.mice.bytes / config.scale)))


def _limited(config: ScenarioConfig, topology: Topology) -> frozenset[str]:
    """The hosts whose NICs `nics` describes."""
    for k, host in enumerate(config.nics.hosts):
        if host not in topology.host:
            legal = listed(list(topology.host))
            raise InvalidValueError(
                ("nics", "hosts", k), f"{host!r} is no host of the fabric; legal: {legal}"
            )
    return frozenset(config.nics.hosts or topology.host)


def _check_pcie(config: ScenarioConfig) -> None:
    rates: dict[str, float] = {}
    for i, job in enumerate(config.jobs):
        if job.pcie is not None and job.pcie.gbps != rates.setdefault(job.pcie.link, job.pcie.gbps):
            raise InvalidValueError(
                ("jobs", i, "pcie", "gbps"),
                f"{job.pcie.gbps:g} is not the rate of link {job.pcie.link!r} in an earlier job; "
                f"legal: {rates[job.pcie.link]:g}",
            )


def _check_job(i: int, job: JobConfig, topology: Topology) -> None:
    for k, host in enumerate(job.hosts):
        if host not in topology.host:
            legal = listed(list(topology.host))
            raise InvalidValueError(
                ("jobs", i, "hosts", k), f"{host!r} is no host of the fabric; legal: {legal}"
            )
        if host in job.hosts[:k]:
            raise InvalidValueError(
                ("jobs", i, "hosts", k), f"{host!r} is in the list twice; legal: each host once"
            )
    _check_phases(("jobs", i), job.phases, job.period_ms)
    _check_end(i, job)
    last = 0
    for k, change in enumerate(job.changes):
        where = ("jobs", i, "changes", k)
        if change.iteration <= last:
            raise InvalidValueError(
                (*where, "iteration"),
                f"{change.iteration} is not above that of the change before; legal: {last + 1} or more",
            )
        last = change.iteration
        _check_phases(where, change.phases, change.period_ms)


def _check_end(i: int, job: JobConfig) -> None:
    if job.stop_ms is None:
        return
    if job.iterations is not None:
        raise InvalidValueError(
            ("jobs", i, "stop_ms"), "the job has iterations too; legal: one of stop_ms and iterations"
        )
    begin = job.start_ms + job.phases[0].start_ms
    if job.stop_ms <= begin:
        raise InvalidValueError(
            ("jobs", i, "stop_ms"),
            f"{job.stop_ms:g}: the job has not sent anything by then; legal: above {begin:g}",
        )


def _check_phases(at: tuple[str | int, ...], phases: tuple[PhaseConfig, ...], period_ms: float) -> None:
    end = 0.0
    for k, phase in enumerate(phases):
        where = (*at, "phases", k)
        if round(phase.end_ms * 1e6) <= round(phase.start_ms * 1e6):
            raise InvalidValueError(
                (*where, "end_ms"),
                f"{phase.end_ms:g} is not after start_ms; legal: above {phase.start_ms:g}, by 1 ns or more",
            )
        if phase.start_ms < end:
            raise InvalidValueError(
                (*where, "start_ms"), f"{phase.start_ms:g} overlaps the phase before; legal: {end:g} or more"
            )
        if phase.start_ms >= period_ms:
            raise InvalidValueError(
                (*where, "start_ms"), f"{phase.start_ms:g} is past the period; legal: below {period_ms:g}"
            )
        end = phase.end_ms
        # The last phase may reach into the next period, to the start of the first phase there.
        most = period_ms + phases[0].start_ms
        if end > most:
            raise InvalidValueError(
                (*where, "end_ms"),
                f"{end:g} is past the period"
                + (" and the start of the first phase in the next" if phases[0].start_ms else "")
                + f"; legal: up to {most:g}",
            )


def _check_reachable(config: ScenarioConfig, topology: Topology) -> None:
    for i, job in enumerate(config.jobs):
        first = topology.host[job.hosts[0]]
        for k, name in enumerate(job.hosts):
            if topology.part[topology.host[name].leaf] != topology.part[first.leaf]:
                raise InvalidValueError(
                    ("jobs", i, "hosts", k),
                    f"no path from {first.name} to {name}: the fabric does not connect "
                    f"{first.leaf} and {topology.host[name].leaf}; add a spine or a link",
                )


def _workload(config: ScenarioConfig, job: JobConfig, topology: Topology) -> Workload:
    """A job as the emulated hosts run it."""
    nic_bps = min(topology.host[h].rate_bps for h in job.hosts)
    steps, profile = _steps(config, job, nic_bps)
    flops = _flops(job, job.gpus, steps)
    ring = [(job.hosts[k], job.hosts[(k + 1) % len(job.hosts)]) for k in range(len(job.hosts))]
    total = sum(step[0] for step in steps)
    changes = []
    for change in job.changes:
        after, pattern = _steps(config, change, nic_bps)
        changes.append(ChangedPattern(change.iteration, pattern, after, _flops(change, job.gpus, after)))
    return Workload(
        job=Job(
            name=job.name,
            model=job.model,
            gpus=job.gpus,
            hosts=job.hosts,
            profile=profile,
            flops_per_iteration=flops,
            flows=tuple(Flow(f"{job.name}/{a}>{b}", job.name, a, b, total) for a, b in ring),
            sender=canonical_sender(job.sender),
        ),
        steps=steps,
        increase_timer=job.increase_timer,
        announces=job.announces,
        silent=job.silent,
        changes=tuple(changes),
        pcie=PcieUse(job.pcie.link, emulated_bps(job.pcie.gbps, config.scale))
        if job.pcie is not None
        else None,
        arrival_ns=round(job.start_ms * 1e6),
        lead_ns=round(job.phases[0].start_ms * 1e6),
        stop_ns=None if job.stop_ms is None else round(job.stop_ms * 1e6),
        iterations=job.iterations,
        jitter=job.jitter_pct / 100,
    )


def _steps(config: ScenarioConfig, job: JobConfig | ChangeConfig, nic_bps: int) -> tuple[Steps, Profile]:
    """For each Up phase the payload that fills it at the phase's rate, and the profile from the first phase
    on.
    """
    share = config.packet_bytes / (config.packet_bytes + ROCE_OVERHEAD_BYTES)
    steps: list[tuple[int, int, int]] = []
    phases: list[Phase] = []
    first = job.phases[0].start_ms
    starts = [p.start_ms for p in job.phases[1:]] + [job.period_ms + first]
    for phase, next_start in zip(job.phases, starts, strict=True):
        rate = min(emulated_bps(phase.gbps, config.scale), nic_bps)
        up_s = (phase.end_ms - phase.start_ms) / 1e3
        packets = max(1, math.floor(rate * up_s * share / 8 / config.packet_bytes))
        steps.append((packets * config.packet_bytes, rate, round((next_start - phase.end_ms) * 1e6)))
        phases.append(Phase(round((phase.start_ms - first) * 1e6), round((phase.end_ms - first) * 1e6), rate))
    return tuple(steps), Profile(round(job.period_ms * 1e6), tuple(phases))


def _flops(job: JobConfig | ChangeConfig, gpus: int, steps: Steps) -> float:
    """Flops of an iteration: the file's, or what the GPUs do in their compute time."""
    compute_s = sum(step[2] for step in steps) / 1e9
    return (job.teraflops_per_iteration or 0) * 1e12 or gpus * max(compute_s, 1e-9) * FLOPS_PER_GPU_SECOND
