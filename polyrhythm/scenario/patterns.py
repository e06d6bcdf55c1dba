# SPDX-License-Identifier: Apache-2.0
"""The communication patterns of a scenario's jobs on the emulated wire, from their phases or traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.model.job import Phase, Profile
from controller.wire.traffic import RankPlaces, TrafficError, busy_s, flows_of, phases_of, spread
from polyrhythm.scenario.config import MAX_MS, ChangeConfig, JobConfig, PhaseConfig, ScenarioConfig
from polyrhythm.scenario.emulated_fabric import emulated_bps
from polyrhythm_files import InvalidValueError, Loc, listed
from topo.addresses import is_ipv6
from topo.graph import Host, Topology

FLOPS_PER_GPU_SECOND = 312e12 * 0.4
"""An A100's peak in bf16 (data sheet), at the 40 % that large training reaches. It stands for a job's flops
where the scenario gives none."""

ROCE_OVERHEAD_BYTES = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC around a payload."""
_IPV6_EXTRA_BYTES = 20
"""So much longer is the header of IPv6."""


class SendStep(NamedTuple):
    """An Up phase and the compute after it: payload bytes of each flow, rate cap of a flow in bit/s, and the
    compute time in ns."""

    sizes: tuple[int, ...]
    rate_bps: int
    compute_ns: int


Steps = tuple[SendStep, ...]


def roce_overhead(hosts: Iterable[Host]) -> int:
    """Bytes around the payload of a frame between these hosts: those of IPv6 if one of them has IPv6."""
    return ROCE_OVERHEAD_BYTES + (_IPV6_EXTRA_BYTES if any(is_ipv6(h.ip) for h in hosts) else 0)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A job's flows as (source, destination) NICs, and its steps. `hosts` are the NICs in the order of the
    ranks. The job computes for `lead_ns` before its first Up phase when it arrives."""

    hosts: tuple[str, ...]
    ends: tuple[tuple[str, str], ...]
    steps: Steps
    profile: Profile
    lead_ns: int


def nics_of(
    hosts: Sequence[str], topology: Topology, loc: Loc, *, servers: bool
) -> list[tuple[str, tuple[Host, ...]]]:
    """The servers of a job, whose keys are at `loc` in the file, with the NICs that it uses of each.

    `servers`: a server with several NICs may stand in `hosts` under its own name.

    Raises:
        InvalidValueError: a host that the fabric does not have.
    """
    found: list[tuple[str, tuple[Host, ...]]] = []
    for k, name in enumerate(hosts):
        if name in topology.host:
            found.append((topology.host[name].machine, (topology.host[name],)))
        elif servers and name in topology.machines:
            found.append((name, topology.machines[name]))
        else:
            legal = listed(list(topology.host))
            raise InvalidValueError((*loc, "hosts", k), f"{name!r} is no host of the fabric; legal: {legal}")
        # A NIC may stand there as itself and as one of its server's.
        if twice := {nic.name for nic in found[-1][1]} & {nic.name for _, nics in found[:-1] for nic in nics}:
            what = name if name in hosts[:k] else min(twice)
            raise InvalidValueError(
                (*loc, "hosts", k), f"{what!r} is in the list twice; legal: each host once"
            )
        first, own = (_family(found[i][1][0]) for i in (0, k))
        if own != first:
            raise InvalidValueError(
                (*loc, "hosts", k),
                f"{name!r} has an {own} address and {hosts[0]!r} an {first} one; legal: hosts of one family",
            )
    return found


def _family(host: Host) -> str:
    return "IPv6" if is_ipv6(host.ip) else "IPv4"


def pattern_of(config: ScenarioConfig, job: JobConfig, topology: Topology, loc: Loc) -> Pattern:
    """The pattern of a job, whose keys are at `loc` in the file.

    Raises:
        InvalidValueError: with the path of the value that makes no sense.
    """
    servers = nics_of(job.hosts, topology, loc, servers=job.traffic is not None)
    if job.traffic is None:
        return _by_phases(config, job, topology, loc)
    for key, given in (("period_ms", job.period_ms), ("phases", job.phases), ("changes", job.changes)):
        if given:
            raise InvalidValueError((*loc, key), "the job has traffic too; legal: one of both")
    if job.compute_ms is None:
        raise InvalidValueError(loc, "compute_ms is missing; legal: with traffic, the compute time")
    try:
        places = spread([(name, [n.name for n in nics]) for name, nics in servers], job.gpus)
    except TrafficError as error:
        raise InvalidValueError((*loc, "gpus"), str(error)) from None
    try:
        return _by_traffic(config, job, places, topology)
    except (TrafficError, InvalidValueError) as error:
        inner = error.loc if isinstance(error, InvalidValueError) else ()
        words = error.message if isinstance(error, InvalidValueError) else str(error)
        raise InvalidValueError((*loc, "traffic", *inner), words) from None


def steps_of(
    config: ScenarioConfig, pattern: JobConfig | ChangeConfig, flows: int, nics: Sequence[Host]
) -> tuple[Steps, Profile]:
    """For each Up phase the payload that fills it at the phase's rate, the same on each of `flows`, and the
    profile from the first phase on. `nics` are those of the job."""
    nic_bps = min(nic.rate_bps for nic in nics)
    share = config.packet_bytes / (config.packet_bytes + roce_overhead(nics))
    steps: list[SendStep] = []
    phases: list[Phase] = []
    first, period_ms = pattern.phases[0].start_ms, pattern.period_ms or 0.0
    starts = [p.start_ms for p in pattern.phases[1:]] + [period_ms + first]
    for phase, next_start in zip(pattern.phases, starts, strict=True):
        rate = min(emulated_bps(phase.gbps, config.scale), nic_bps)
        up_s = (phase.end_ms - phase.start_ms) / 1e3
        packets = max(1, math.floor(rate * up_s * share / 8 / config.packet_bytes))
        compute_ns = round((next_start - phase.end_ms) * 1e6)
        steps.append(SendStep((packets * config.packet_bytes,) * flows, rate, compute_ns))
        phases.append(Phase(round((phase.start_ms - first) * 1e6), round((phase.end_ms - first) * 1e6), rate))
    return tuple(steps), Profile(round(period_ms * 1e6), tuple(phases))


def check_phases(at: Loc, phases: Sequence[PhaseConfig], period_ms: float) -> None:
    """Raise InvalidValueError for phases that are not sorted, disjoint and within the period."""
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


def flops_of(pattern: JobConfig | ChangeConfig, gpus: int, steps: Steps) -> float:
    """Flops of an iteration: the file's, or what the GPUs do in their compute time."""
    compute_s = sum(step.compute_ns for step in steps) / 1e9
    given = (pattern.teraflops_per_iteration or 0) * 1e12
    return given or gpus * max(compute_s, 1e-9) * FLOPS_PER_GPU_SECOND


def _by_phases(config: ScenarioConfig, job: JobConfig, topology: Topology, loc: Loc) -> Pattern:
    """A ring all-reduce over the hosts in each Up phase."""
    if job.period_ms is None or not job.phases:
        key = "period_ms" if job.period_ms is None else "phases"
        raise InvalidValueError(
            loc, f"{key} is missing; legal: period_ms and phases, or traffic and compute_ms"
        )
    if job.compute_ms is not None:
        raise InvalidValueError((*loc, "compute_ms"), "the job has phases; legal: with traffic only")
    if len(job.hosts) < 2:
        raise InvalidValueError((*loc, "hosts"), "a ring joins two hosts or more; legal: 2 to 1024 hosts")
    check_phases(loc, job.phases, job.period_ms)
    hosts = job.hosts
    ends = tuple((host, hosts[(k + 1) % len(hosts)]) for k, host in enumerate(hosts))
    steps, profile = steps_of(config, job, len(ends), [topology.host[h] for h in hosts])
    return Pattern(hosts, ends, steps, profile, round(job.phases[0].start_ms * 1e6))


def _by_traffic(config: ScenarioConfig, job: JobConfig, places: RankPlaces, topology: Topology) -> Pattern:
    """The flows of what the job is. Each Up phase is as long as the busiest NIC needs for it."""
    assert job.traffic is not None
    assert job.compute_ms is not None
    traffic = job.traffic.traffic(job.gpus)
    flows = flows_of(traffic, places)
    nics = {end for f in flows for end in (f.src, f.dst)}
    bps = {nic: topology.host[nic].rate_bps for nic in nics}
    cap = max(bps.values())
    overhead = 1 + roce_overhead(topology.host[nic] for nic in nics) / config.packet_bytes
    at, steps, phases = 0, [], []
    for phase in phases_of(flows, traffic.exchanges, round(job.compute_ms * 1e6)):
        packets = [max(1, round(n / config.scale / config.packet_bytes)) if n else 0 for n in phase.sizes]
        sizes = tuple(p * config.packet_bytes for p in packets)
        up_ns = max(1, round(1e9 * overhead * busy_s(flows, sizes, bps)))
        rate = max(1, round(8e9 * overhead * max(sizes) / up_ns))
        steps.append(SendStep(sizes, cap, phase.compute_ns))
        phases.append(Phase(at, at + up_ns, rate))
        at += up_ns + phase.compute_ns
    if at > MAX_MS * 1e6:
        raise TrafficError(
            f"an iteration takes {at / 6e10:,.1f} minutes; legal: up to an hour, with fewer bytes"
        )
    return Pattern(
        hosts=tuple(dict.fromkeys(nic for nic in places.nics if nic in nics)),
        ends=tuple((f.src, f.dst) for f in flows),
        steps=tuple(steps),
        profile=Profile(at, tuple(phases)),
        lead_ns=max(step.compute_ns for step in steps),
    )
