# SPDX-License-Identifier: Apache-2.0
"""What a plan is made from: the policies by name, the planner's inputs, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.model import Job, Plan, Policy, QueuePair
from controller.priority.methods import METHODS
from controller.routing.assign import Learned
from topo.graph import Topology

POLICIES: Mapping[str, Policy] = {
    "ecmp": Policy("ecmp", "ecmp", "equal", "none"),
    "polyrhythm": Policy("polyrhythm", "auto", "crux", "circles"),
    "routing": Policy("routing", "auto", "equal", "none"),
    "crux": Policy("crux", "greedy", "crux", "none"),
    "crux-fair": Policy("crux-fair", "greedy", "crux", "none", loss_cap=0.4),
    "crux-ps-pa": Policy("crux-ps-pa", "greedy", "crux", "none", compress=False),
    "crux-pa": Policy("crux-pa", "ecmp", "crux", "none", compress=False),
    "intensity": Policy("intensity", "greedy", "intensity", "none"),
    "circles": Policy("circles", "ecmp", "equal", "circles"),
    "cassini": Policy("cassini", "ecmp", "equal", "cassini"),
    "mltcp": Policy("mltcp", "ecmp", "equal", "none", sender="mltcp"),
    "sincronia": Policy("sincronia", "ecmp", "sincronia", "none"),
    "varys": Policy("varys", "ecmp", "varys", "none"),
    "taccl": Policy("taccl", "greedy", "taccl", "none"),
}

# Entries of `pinned_flow` in our P4 program.
PIN_CAPACITY = 4096

DirectedLink = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All that a plan depends on.

    `down_links` are sorted name pairs (a host's cable is (host, leaf), sorted); `epoch_ns` is the
    fabric time that shifts count from; flows below `elephant_bytes` an iteration are left to ECMP in the
    lowest queue; `learned` are source ports found by probes, where nobody knows the switches' hash (None:
    there are no probes); `seed` decides ECMP's draws and the sampled orders of the priority compression.
    `queue_pairs` holds, by flow, what a NIC does not let the plan choose; flows in `mistrusted` went
    elsewhere than their source port should lead them; a switch has room for `pin_capacity` single flows.
    On `mltcp_hosts` the NICs can send by MLTCP, job by job.
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


def check(inputs: PlanInput) -> None:
    """Refuse what no plan can be made for.

    Raises:
        ValueError: an unknown mechanism, a profile that makes no sense, or an unknown host, in words.
    """
    policy = inputs.policy
    for value, legal in (
        (policy.routing, ("ecmp", "greedy", "auto")),
        (policy.priority, ("equal", *METHODS)),
        (policy.interleave, ("none", "circles", "cassini")),
        (policy.sender, ("job", "dcqcn", "mltcp")),
    ):
        if value not in legal:
            raise ValueError(f"policy {policy.name}: {value!r} is not one of {', '.join(legal)}")
    if policy.loss_cap is not None and not 0 <= policy.loss_cap <= 1:
        raise ValueError(f"policy {policy.name}: a loss cap is from 0 to 1, not {policy.loss_cap}")
    if policy.levels < 1:
        raise ValueError(f"policy {policy.name}: levels must be at least 1, not {policy.levels}")
    if policy.max_moves is not None and policy.max_moves < 0:
        raise ValueError(f"policy {policy.name}: max_moves must not be negative, not {policy.max_moves}")
    epsilon = policy.cap_epsilon
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"policy {policy.name}: cap_epsilon must be 0 or more, not {epsilon}")
    names: set[str] = set()
    for job in inputs.jobs:
        if job.name in names:
            raise ValueError(f"job {job.name}: there are two of this name")
        names.add(job.name)
        if job.profile.period_ns <= 0 and job.profile.phases:
            raise ValueError(f"job {job.name}: the period must be positive, not {job.profile.period_ns}")
        for p in job.profile.phases:
            if not 0 <= p.start_ns < p.end_ns <= job.profile.period_ns or p.rate_bps <= 0:
                raise ValueError(f"job {job.name}: phase {p} is empty or outside the period")
        for flow in job.flows:
            for host in (flow.src, flow.dst):
                if host not in inputs.topology.host:
                    raise ValueError(f"flow {flow.name}: the fabric has no host {host}")
