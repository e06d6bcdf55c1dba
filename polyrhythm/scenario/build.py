# SPDX-License-Identifier: Apache-2.0
"""From the keys of a scenario file to the emulated fabric and its jobs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from controller.model.job import Flow, Job, Phase, Profile
from hostagent.job import PcieUse
from polyrhythm.scenario.config import (
    ChangeConfig,
    EcnConfig,
    ExplicitConfig,
    FileConfig,
    JobConfig,
    PhaseConfig,
    ScenarioConfig,
)
from polyrhythm_files import InvalidValueError, listed
from topo.generate import explicit, leaf_spine
from topo.graph import Tier, Topology

FLOPS_PER_GPU_SECOND = 312e12 * 0.4
"""An A100's peak in bf16 (data sheet), at the 40 % that large training reaches. It stands for a job's flops
where the scenario gives none."""

ALONE_WARMUP = 2
ALONE_ITERATIONS = 8
"""Iterations of a job alone on the fabric, which give its profile (chosen: nothing disturbs the job, so few
suffice)."""

ELEPHANT_NOMINAL_BYTES = 10_000_000
"""A flow that sends less in an iteration, before scaling, is a mouse: it is left to ECMP and to the lowest
queue (chosen)."""

CPU_PORT = 255
"""Of the emulated switches, as of BMv2. Cables have lower ports."""

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

    `steps` are in the order of the period. `sender`, `increase_timer`, `announces` and `silent` are as in the
    file (`JobConfig`).
    """

    job: Job
    steps: Steps
    sender: str = "dcqcn"
    increase_timer: float = 1.0
    announces: str = "profile"
    silent: bool = False
    changes: tuple[ChangedPattern, ...] = ()
    pcie: PcieUse | None = None

    @property
    def compute_ns(self) -> int:
        """Compute time of one iteration."""
        return sum(step[2] for step in self.steps)


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


def build(config: ScenarioConfig, fabric: Topology | None = None) -> Scenario:
    """The scenario with its rates divided by the scale, after the checks that need several keys at once.

    `fabric` is what the topology file that `config.fabric` names holds, in nominal rates.

    Raises:
        InvalidValueError: with the path of the value that makes no sense.
    """
    topology = _scaled(fabric, config.scale) if fabric is not None else _topology(config)
    names = Counter(job.name for job in config.jobs)
    for i, job in enumerate(config.jobs):
        if names[job.name] > 1:
            raise InvalidValueError(
                ("jobs", i, "name"), f"{job.name!r} names {names[job.name]} jobs; legal: a name of its own"
            )
        _check_job(i, job, topology)
    _check_pcie(config)
    _check_ports(topology)
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
    )


def _limited(config: ScenarioConfig, topology: Topology) -> frozenset[str]:
    """The hosts whose NICs `nics` describes."""
    for k, host in enumerate(config.nics.hosts):
        if host not in topology.host:
            legal = listed(list(topology.host))
            raise InvalidValueError(
                ("nics", "hosts", k), f"{host!r} is no host of the fabric; legal: {legal}"
            )
    return frozenset(config.nics.hosts or topology.host)


def _bps(gbps: float, scale: float) -> int:
    return max(1, round(gbps * 1e9 / scale))


def _topology(config: ScenarioConfig) -> Topology:
    fabric, scale = config.fabric, config.scale
    assert not isinstance(fabric, FileConfig)
    if isinstance(fabric, ExplicitConfig):
        return _explicit(fabric, config)
    return leaf_spine(
        fabric.leaves,
        fabric.spines,
        fabric.hosts_per_leaf,
        host_bps=_bps(fabric.host_gbps, scale),
        fabric_bps=_bps(fabric.fabric_gbps, scale),
        name=config.name,
    )


def _scaled(fabric: Topology, scale: float) -> Topology:
    """The same fabric with every rate divided by `scale`."""
    return replace(
        fabric,
        hosts=tuple(replace(h, rate_bps=max(1, round(h.rate_bps / scale))) for h in fabric.hosts),
        links=tuple(replace(k, rate_bps=max(1, round(k.rate_bps / scale))) for k in fabric.links),
    )


def _check_pcie(config: ScenarioConfig) -> None:
    rates: dict[str, float] = {}
    for i, job in enumerate(config.jobs):
        if job.pcie is not None and job.pcie.gbps != rates.setdefault(job.pcie.link, job.pcie.gbps):
            raise InvalidValueError(
                ("jobs", i, "pcie", "gbps"),
                f"{job.pcie.gbps:g} is not the rate of link {job.pcie.link!r} in an earlier job; "
                f"legal: {rates[job.pcie.link]:g}",
            )


def _check_ports(topology: Topology) -> None:
    for switch, ports in topology.ports.items():
        if max(ports, default=0) >= CPU_PORT:
            raise InvalidValueError(
                ("fabric",),
                f"{switch} has a cable on port {max(ports)}; legal: up to {CPU_PORT - 1}, since port "
                f"{CPU_PORT} leads to the CPU",
            )


def _explicit(fabric: ExplicitConfig, config: ScenarioConfig) -> Topology:
    nodes = Counter(s.name for s in fabric.switches) + Counter(h.name for h in fabric.hosts)
    twice = next((name for name, count in nodes.items() if count > 1), None)
    if twice is not None:
        raise InvalidValueError(
            ("fabric",), f"{twice!r} names more than one node; legal: a name of its own for each"
        )
    leaves = [s.name for s in fabric.switches if s.tier == "leaf"]
    for i, host in enumerate(fabric.hosts):
        if host.leaf not in leaves:
            raise InvalidValueError(
                ("fabric", "hosts", i, "leaf"), f"{host.leaf!r} is no leaf; legal: {', '.join(leaves)}"
            )
    known = [s.name for s in fabric.switches]
    for i, cable in enumerate(fabric.links):
        for end in ("a", "b"):
            name = getattr(cable, end)
            if name not in known:
                raise InvalidValueError(
                    ("fabric", "links", i, end), f"{name!r} is no switch; legal: {', '.join(known)}"
                )
        if cable.a == cable.b:
            raise InvalidValueError(
                ("fabric", "links", i), f"{cable.a!r} is at both ends; legal: two different switches"
            )
    try:
        return explicit(
            config.name,
            [(s.name, Tier(s.tier)) for s in fabric.switches],
            [(h.name, h.leaf, _bps(h.gbps, config.scale)) for h in fabric.hosts],
            [(c.a, c.b, _bps(c.gbps, config.scale)) for c in fabric.links],
        )
    except ValueError as error:
        raise InvalidValueError(("fabric", "hosts"), str(error)) from None


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
        if k == 0 and phase.start_ms != 0:
            raise InvalidValueError(
                (*where, "start_ms"),
                f"{phase.start_ms:g}: the period begins with the first Up phase; legal: 0",
            )
        end = phase.end_ms
        if end > period_ms:
            raise InvalidValueError(
                (*where, "end_ms"), f"{end:g} is past the period; legal: up to {period_ms:g}"
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
        ),
        steps=steps,
        sender=job.sender,
        increase_timer=job.increase_timer,
        announces=job.announces,
        silent=job.silent,
        changes=tuple(changes),
        pcie=PcieUse(job.pcie.link, _bps(job.pcie.gbps, config.scale)) if job.pcie is not None else None,
    )


def _steps(config: ScenarioConfig, job: JobConfig | ChangeConfig, nic_bps: int) -> tuple[Steps, Profile]:
    """For each Up phase the payload that fills it at the phase's rate, and the profile."""
    share = config.packet_bytes / (config.packet_bytes + ROCE_OVERHEAD_BYTES)
    steps: list[tuple[int, int, int]] = []
    phases: list[Phase] = []
    starts = [p.start_ms for p in job.phases[1:]] + [job.period_ms]
    for phase, next_start in zip(job.phases, starts, strict=True):
        rate = min(_bps(phase.gbps, config.scale), nic_bps)
        up_s = (phase.end_ms - phase.start_ms) / 1e3
        packets = max(1, math.floor(rate * up_s * share / 8 / config.packet_bytes))
        steps.append((packets * config.packet_bytes, rate, round((next_start - phase.end_ms) * 1e6)))
        phases.append(Phase(round(phase.start_ms * 1e6), round(phase.end_ms * 1e6), rate))
    return tuple(steps), Profile(round(job.period_ms * 1e6), tuple(phases))


def _flops(job: JobConfig | ChangeConfig, gpus: int, steps: Steps) -> float:
    """Flops of an iteration: the file's, or what the GPUs do in their compute time."""
    compute_s = sum(step[2] for step in steps) / 1e9
    return (job.teraflops_per_iteration or 0) * 1e12 or gpus * max(compute_s, 1e-9) * FLOPS_PER_GPU_SECOND
