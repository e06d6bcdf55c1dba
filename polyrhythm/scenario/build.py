# SPDX-License-Identifier: Apache-2.0
"""From the keys of a scenario file to the emulated fabric and its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from controller.model.job import Flow, Job, Profile
from controller.wire.senders import KERNEL_TCP, canonical_sender
from controller.wire.traffic import flow_name
from hostagent.job import PcieUse
from polyrhythm.scenario.config import (
    ELEPHANT_NOMINAL_BYTES,
    JobConfig,
    PfcConfig,
    ScenarioConfig,
)
from polyrhythm.scenario.emulated_fabric import emulated_bps, emulated_fabric
from polyrhythm.scenario.failures import Failure, FailureError, failure_of
from polyrhythm.scenario.marking import EcnConfig, TcpConfig
from polyrhythm.scenario.patterns import (
    Pattern,
    Steps,
    check_phases,
    flops_of,
    nics_of,
    pattern_of,
    roce_overhead,
    steps_of,
)
from polyrhythm_files import InvalidValueError, listed
from topo.addresses import is_ipv6
from topo.graph import Topology

ALONE_WARMUP = 2
ALONE_ITERATIONS = 8
"""Iterations of a job alone on the fabric, which give its profile (chosen: nothing disturbs the job, so few
suffice)."""

MAX_FLOWS = 1 << 17
"""The most flows of all jobs of a scenario (chosen: they are planned in less than a minute)."""


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
    congestion_control: str = ""

    @property
    def on_kernel_tcp(self) -> bool:
        """Whether it sends over TCP of the hosts' kernel, with `congestion_control`."""
        return self.job.sender == KERNEL_TCP

    @property
    def compute_ns(self) -> int:
        """Mean compute time of one iteration, before any change."""
        return sum(step.compute_ns for step in self.steps)

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
class Flood:
    """`src` floods the fabric towards `dst`, from `start_ns` after the start of the first jobs on. `frames`:
    all, or answers (acknowledgements and CNPs) only.
    """

    src: str
    dst: str
    start_ns: int
    frames: str = "all"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario in emulated units: bit/s and bytes on the emulated wire, ns of fabric time.

    The NICs of the hosts `port_choosers` draw their UDP source ports themselves. The queue pairs of the hosts
    `dscp_keepers` keep the DSCP that they are opened with. Those of `any_order` take packets in any order.
    `hash_known`: the controller knows the switches'
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
    tcp: TcpConfig
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
    any_order: frozenset[str] = frozenset()
    strays: str = "remark"
    failures: tuple[Failure, ...] = ()
    mice: Mice | None = None
    floods: tuple[Flood, ...] = ()
    pfc: PfcConfig | None = None

    @property
    def frame_bytes(self) -> int:
        """The length of a full frame on the wire."""
        return self.packet_bytes + roce_overhead(self.topology.hosts)

    @property
    def steady(self) -> bool:
        """Whether the same jobs do the same on the same links from their start to the end of a session."""
        return not (self.failures or self.floods) and all(
            not (job.arrival_ns or job.leaves or job.changes) for job in self.workloads
        )


def build(config: ScenarioConfig, fabric: Topology | None = None) -> Scenario:
    """The scenario with its rates divided by the scale, after the checks that need several keys at once.

    `fabric` is what the topology file that `config.fabric` names holds, in nominal rates.

    Raises:
        InvalidValueError: with the path of the value that makes no sense.
    """
    topology = emulated_fabric(config, fabric)
    names = Counter(job.name for job in config.jobs)
    patterns: list[Pattern] = []
    for i, job in enumerate(config.jobs):
        if names[job.name] > 1:
            raise InvalidValueError(
                ("jobs", i, "name"), f"{job.name!r} names {names[job.name]} jobs; legal: a name of its own"
            )
        patterns.append(pattern_of(config, job, topology, ("jobs", i)))
        if sum(len(pattern.ends) for pattern in patterns) > MAX_FLOWS:
            raise InvalidValueError(
                ("jobs", i), f"more than {MAX_FLOWS:,} flows up to here; legal: fewer, or smaller, jobs"
            )
        _check_changes(i, job)
        _check_kernel_tcp(i, job)
        _check_end(i, job, patterns[-1])
    _check_pcie(config)
    _check_reachable(config, topology)
    limited = _limited(config, topology)
    if config.nics.any_order:
        topology = with_any_order(topology, limited)
    return Scenario(
        name=config.name,
        about=config.about,
        topology=topology,
        workloads=tuple(
            _workload(config, job, pattern, topology)
            for job, pattern in zip(config.jobs, patterns, strict=True)
        ),
        scale=config.scale,
        packet_bytes=config.packet_bytes,
        buffer_packets=config.buffer_packets,
        elephant_bytes=max(1, round(ELEPHANT_NOMINAL_BYTES / config.scale)),
        ecn=config.ecn,
        tcp=config.tcp,
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
        any_order=frozenset(h.name for h in topology.hosts if h.any_order),
        strays=config.strays,
        failures=_failures(config, topology),
        mice=_mice(config),
        floods=_floods(config, topology),
        pfc=config.pfc,
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


def _floods(config: ScenarioConfig, topology: Topology) -> tuple[Flood, ...]:
    busy = {host: job.name for job in config.jobs for host in job.hosts}
    for i, flood in enumerate(config.floods):
        for key, host in (("src", flood.src), ("dst", flood.dst)):
            if host not in topology.host:
                legal = listed(list(topology.host))
                raise InvalidValueError(
                    ("floods", i, key), f"{host!r} is no host of the fabric; legal: {legal}"
                )
        if flood.src in busy:
            raise InvalidValueError(
                ("floods", i, "src"),
                f"{flood.src!r} is a host of job {busy[flood.src]}; legal: a host of no job",
            )
        if flood.src == flood.dst:
            raise InvalidValueError(("floods", i, "dst"), f"{flood.dst!r} is src too; legal: another host")
        if is_ipv6(topology.host[flood.src].ip) != is_ipv6(topology.host[flood.dst].ip):
            raise InvalidValueError(
                ("floods", i, "dst"),
                f"{flood.dst!r} and src have addresses of two families; legal: a host of the family of src",
            )
    return tuple(Flood(f.src, f.dst, round(f.start_ms * 1e6), f.frames) for f in config.floods)


def with_any_order(topology: Topology, hosts: Collection[str]) -> Topology:
    """The same fabric, where the NICs of these hosts take packets in any order."""
    return replace(
        topology, hosts=tuple(replace(h, any_order=h.any_order or h.name in hosts) for h in topology.hosts)
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


def _check_pcie(config: ScenarioConfig) -> None:
    rates: dict[str, float] = {}
    for i, job in enumerate(config.jobs):
        if job.pcie is not None and job.pcie.gbps != rates.setdefault(job.pcie.link, job.pcie.gbps):
            raise InvalidValueError(
                ("jobs", i, "pcie", "gbps"),
                f"{job.pcie.gbps:g} is not the rate of link {job.pcie.link!r} in an earlier job; "
                f"legal: {rates[job.pcie.link]:g}",
            )


def _check_changes(i: int, job: JobConfig) -> None:
    last = 0
    for k, change in enumerate(job.changes):
        where = ("jobs", i, "changes", k)
        if change.iteration <= last:
            raise InvalidValueError(
                (*where, "iteration"),
                f"{change.iteration} is not above that of the change before; legal: {last + 1} or more",
            )
        last = change.iteration
        check_phases(where, change.phases, change.period_ms)


def _check_kernel_tcp(i: int, job: JobConfig) -> None:
    if job.sender != KERNEL_TCP:
        if job.congestion_control:
            raise InvalidValueError(
                ("jobs", i, "congestion_control"),
                f"means nothing with sender {job.sender}; legal: {KERNEL_TCP}",
            )
        return
    for key, given in (
        ("traffic", job.traffic is not None), ("pcie", job.pcie is not None), ("changes", job.changes),
        ("increase_timer", job.increase_timer != 1), ("silent", job.silent),
        ("announces", job.announces != "profile"),
    ):  # fmt: skip
        if given:
            raise InvalidValueError(
                ("jobs", i, key), f"means nothing with sender {KERNEL_TCP}; legal: without it"
            )


def _check_end(i: int, job: JobConfig, pattern: Pattern) -> None:
    if job.stop_ms is None:
        return
    if job.iterations is not None:
        raise InvalidValueError(
            ("jobs", i, "stop_ms"), "the job has iterations too; legal: one of stop_ms and iterations"
        )
    begin = job.start_ms + pattern.lead_ns / 1e6
    if job.stop_ms <= begin:
        raise InvalidValueError(
            ("jobs", i, "stop_ms"),
            f"{job.stop_ms:g}: the job has not sent anything by then; legal: above {begin:g}",
        )


def _check_reachable(config: ScenarioConfig, topology: Topology) -> None:
    for i, job in enumerate(config.jobs):
        servers = nics_of(job.hosts, topology, ("jobs", i), servers=job.traffic is not None)
        first = servers[0][1][0]
        for k, (_, nics) in enumerate(servers):
            apart = next((n for n in nics if topology.part[n.leaf] != topology.part[first.leaf]), None)
            if apart is not None:
                raise InvalidValueError(
                    ("jobs", i, "hosts", k),
                    f"no path from {first.name} to {apart.name}: the fabric does not connect "
                    f"{first.leaf} and {apart.leaf}; add a spine or a link",
                )


def _workload(config: ScenarioConfig, job: JobConfig, pattern: Pattern, topology: Topology) -> Workload:
    """A job as the emulated hosts run it."""
    nics = [topology.host[h] for h in pattern.hosts]
    changes = []
    for change in job.changes:
        after, profile = steps_of(config, change, len(pattern.ends), nics)
        changes.append(ChangedPattern(change.iteration, profile, after, flops_of(change, job.gpus, after)))
    return Workload(
        job=Job(
            name=job.name,
            model=job.model,
            gpus=job.gpus,
            hosts=pattern.hosts,
            profile=pattern.profile,
            flops_per_iteration=flops_of(job, job.gpus, pattern.steps),
            flows=_flows(job.name, pattern),
            sender=job.sender if job.sender == KERNEL_TCP else canonical_sender(job.sender),
        ),
        steps=pattern.steps,
        increase_timer=job.increase_timer,
        announces=job.announces,
        silent=job.silent,
        changes=tuple(changes),
        pcie=PcieUse(job.pcie.link, emulated_bps(job.pcie.gbps, config.scale))
        if job.pcie is not None
        else None,
        arrival_ns=round(job.start_ms * 1e6),
        lead_ns=pattern.lead_ns,
        stop_ns=None if job.stop_ms is None else round(job.stop_ms * 1e6),
        iterations=job.iterations,
        jitter=job.jitter_pct / 100,
        congestion_control=job.congestion_control or "reno" if job.sender == KERNEL_TCP else "",
    )


def _flows(name: str, pattern: Pattern) -> tuple[Flow, ...]:
    seen: Counter[tuple[str, str]] = Counter()
    flows = []
    for k, (a, b) in enumerate(pattern.ends):
        total = sum(step.sizes[k] for step in pattern.steps)
        flows.append(Flow(flow_name(name, a, b, seen[a, b]), name, a, b, total))
        seen[a, b] += 1
    return tuple(flows)
