# SPDX-License-Identifier: Apache-2.0
"""The inputs of a plan, and their checks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

from controller.model import Flow, Job, Measurement, Phase, Plan, Profile, QueuePair
from controller.planner.flow_columns import columns_of
from controller.planner.policy import Policy
from controller.routing.assign import Learned
from controller.routing.topology_cache import cached_by_part
from topo.addresses import is_ipv6
from topo.graph import Topology

PIN_CAPACITY = 4096
"""Entries of the table `pinned_flow` in our P4 program."""

_MOST_BYTES = (1 << 63) - 1
"""What columns of 64 bits hold."""

DirectedLink = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All inputs of a plan.

    `down_links` are names of cables (`Topology.cables`). `epoch_ns` is the fabric time that time-shifts count
    from. Flows below `elephant_bytes` per iteration are mice: they are left to
    ECMP, in the lowest queue. `learned` are source ports that INT probes found where the switches' hash is
    unknown; None: there are no probes. `seed` decides ECMP's draws and the sampled orders of the priority
    compression. `queue_pairs` holds by flow what a NIC does not let the plan choose. Probes of the flows in
    `mistrusted` took another path than their source port should give them. A switch has room for entries of
    `pin_capacity` single flows. On `mltcp_hosts` the NICs can send by MLTCP, job by job. `measured_ns` is the
    iteration that jobs were measured to take under `previous`, where that was more than its `floor_ns`.
    Plans have numbers above `last_number`: those up to it may have been given before `previous` was taken up.
    """

    topology: Topology
    jobs: tuple[Job, ...]
    policy: Policy
    epoch_ns: int
    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()
    previous: Plan | None = None
    seed: int = 0
    elephant_bytes: int = 1024
    learned: Learned | None = None
    queue_pairs: Mapping[str, QueuePair] = field(default_factory=dict)
    mistrusted: frozenset[str] = frozenset()
    pin_capacity: int = PIN_CAPACITY
    mltcp_hosts: frozenset[str] = frozenset()
    measured_ns: Mapping[str, int] = field(default_factory=dict)
    last_number: int = 0

    @property
    def number(self) -> int:
        """The number (`Plan.version`) of the plan that is made."""
        return 1 + max(self.last_number, self.previous.version if self.previous is not None else 0)


def check(inputs: PlanInput) -> None:
    """Refuse inputs that no plan can be made for.

    Raises:
        ValueError: the policy is no Policy, a job or flow is there twice, a flow names another job or an
            unknown host, or a profile or a number makes no sense; the message says which and why.
    """
    if not isinstance(inputs.policy, Policy):
        raise ValueError(
            f"the policy must be a Policy, not {inputs.policy!r}; legal: POLICIES[name], or "
            "Policy(name, routing, priority, timing)"
        )
    _number("epoch_ns", inputs.epoch_ns)
    _number("elephant_bytes", inputs.elephant_bytes)
    for name, length in inputs.measured_ns.items():
        _number(f"job {name}: the measured iteration in ns", length, least=1)
    if not isinstance(inputs.jobs, Sequence):
        raise ValueError(f"jobs must be a sequence of Job, not {inputs.jobs!r}")
    jobs: set[str] = set()
    names: list[frozenset[str]] = []
    for job in inputs.jobs:
        if not isinstance(job, Job):
            raise ValueError(f"{job!r} is no Job")
        if job.name in jobs:
            raise ValueError(f"job {job.name}: there are two of this name")
        jobs.add(job.name)
        where = f"job {job.name}"
        _number(f"{where}: GPUs", job.gpus, least=0)
        _number(f"{where}: flops_per_iteration", job.flops_per_iteration, least=0)
        if job.pcie_link:
            _number(f"{where}: pcie_bps", job.pcie_bps, least=1)
        _check_profile(where, job.profile)
        if job.measured is not None:
            _check_measurement(where, job.measured)
        names.append(_check_flows(inputs.topology, job.flows, job.name))
    if sum(map(len, names)) > len(frozenset[str]().union(*names)):
        twice = Counter(name for some in names for name in some).most_common(1)[0][0]
        raise ValueError(f"flow {twice}: there are two of this name")


@cached_by_part
def _check_flows(topology: Topology, flows: tuple[Flow, ...], job: str) -> frozenset[str]:
    """Refuse flows of a job that no plan can be made for; returns their names."""
    if (legal := _names_if_legal(topology, flows, job)) is not None:
        return legal
    names: set[str] = set()
    for flow in flows:
        if not isinstance(flow, Flow):
            raise ValueError(f"job {job}: {flow!r} is no Flow")
        if flow.name in names:
            raise ValueError(f"flow {flow.name}: there are two of this name")
        names.add(flow.name)
        _check_flow(topology, job, flow)
    return frozenset(names)


def _names_if_legal(topology: Topology, flows: tuple[Flow, ...], job: str) -> frozenset[str] | None:
    """The names of the flows if a look at all together finds nothing wrong, else None: thousands are looked
    at in a millisecond."""
    if not {*map(type, flows)} <= {Flow}:
        return None
    if not {f.job for f in flows} <= {job} or not {type(f.bytes_per_iteration) for f in flows} <= {int}:
        return None
    try:
        columns = columns_of(topology, flows)
    except (KeyError, TypeError, OverflowError):
        # There is an unknown host, or a number above 64 bits.
        return None
    names, ipv6 = frozenset(columns.names), columns.numbers.ipv6
    alike = (ipv6[columns.src] == ipv6[columns.dst]).all()
    return names if len(names) == len(flows) and (columns.size >= 0).all() and alike else None


def _check_profile(where: str, profile: Profile) -> None:
    if not isinstance(profile, Profile):
        raise ValueError(f"{where}: the profile must be a Profile, not {profile!r}")
    _number(f"{where}: the period in ns", profile.period_ns)
    if profile.period_ns <= 0 and profile.phases:
        raise ValueError(f"{where}: the period must be positive, not {profile.period_ns}")
    before = None
    for p in profile.phases:
        if not isinstance(p, Phase):
            raise ValueError(f"{where}: {p!r} is no Phase")
        for value in (p.start_ns, p.end_ns, p.rate_bps):
            _number(f"{where}: phase {p}: each value", value)
        if not 0 <= p.start_ns < p.end_ns <= profile.period_ns or p.rate_bps <= 0:
            raise ValueError(f"{where}: phase {p} is empty or outside the period")
        if before is not None and p.start_ns < before.end_ns:
            raise ValueError(f"{where}: phase {p} overlaps {before}, or should be listed before it")
        before = p


def _check_measurement(where: str, measured: Measurement) -> None:
    _number(f"{where}: the measured communication in ns", measured.communication_ns, least=0)
    if measured.compute_ns is not None:
        _number(f"{where}: the measured compute in ns", measured.compute_ns, least=0)
    if measured.flops is not None:
        _number(f"{where}: the measured flops", measured.flops, least=0)


def _check_flow(topology: Topology, job: str, flow: Flow) -> None:
    if flow.job != job:
        raise ValueError(f"flow {flow.name}: it is listed under job {job}, but its job is {flow.job}")
    _number(f"flow {flow.name}: bytes_per_iteration", flow.bytes_per_iteration, least=0)
    if flow.bytes_per_iteration > _MOST_BYTES:
        raise ValueError(f"flow {flow.name}: bytes_per_iteration must be {_MOST_BYTES} or less")
    for host in (flow.src, flow.dst):
        if host not in topology.host:
            raise ValueError(f"flow {flow.name}: the fabric has no host {host}")
    if is_ipv6(topology.host[flow.src].ip) != is_ipv6(topology.host[flow.dst].ip):
        raise ValueError(f"flow {flow.name}: {flow.src} and {flow.dst} have addresses of two families")


def _number(what: str, value: object, least: float | None = None) -> None:
    # Most are whole numbers, and the abstract class takes long to ask.
    if type(value) is not int and (not isinstance(value, Real) or not math.isfinite(value)):
        raise ValueError(f"{what} must be a finite number, not {value}")
    if least is not None and value < least:
        raise ValueError(f"{what} must be {least} or more, not {value}")
