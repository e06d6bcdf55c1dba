# SPDX-License-Identifier: Apache-2.0
"""The routing stage: the path and source port of every elephant, and the links that jobs share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from controller.interleave.circle import SharedLink
from controller.interleave.link_sharing import ROUTING_WEIGHT, pair_fits
from controller.model import Phase
from controller.planner.ask import ask_routing
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink
from controller.planner.pinned_flows import PORT_UNKNOWN, Pinned, flows_of_unknown_port, kept_ports, pin
from controller.routing.assign import Assignment, assign_ecmp, with_ports
from controller.routing.from_topology import Failures
from controller.routing.greedy import Commodity
from controller.routing.protocol import LeftToHash, RoutingProblem


@dataclass(frozen=True)
class RoutingStage:
    """The assignments of one candidate, and what follows from them.

    `placed` holds the assignments before any flow is pinned in switches: a path may still lack a port. With
    `by_hash` the paths are those of ECMP and nothing is pinned.
    """

    demands: Demands
    placed: Mapping[str, Assignment]
    by_hash: bool

    @property
    def assignments(self) -> Mapping[str, Assignment]:
        """Path and source port of every elephant; none where the plan leaves all flows to ECMP."""
        return self.pinned.assignments

    @cached_property
    def pinned(self) -> Pinned:
        """The assignments, and the switches' entries for single flows that they need."""
        if self.by_hash:
            return Pinned(self.placed, (), {})
        return pin(self.demands.inputs, self.demands.forwarding, self.placed)

    @cached_property
    def links_of(self) -> Mapping[str, Sequence[DirectedLink]]:
        """The directed links of each flow: those of its path, or those at its hosts where it has no path."""
        links: dict[str, Sequence[DirectedLink]] = dict(self.demands.access)
        for name, a in self.assignments.items():
            links[name] = (*self.demands.inside[name], *pairwise(a.path)) if a.path else ()
        return links

    @cached_property
    def jobs_on(self) -> Mapping[DirectedLink, Collection[str]]:
        """The jobs on each directed link that several jobs share."""
        return {k.name: k.demands.keys() for k in self.shared}

    @cached_property
    def shared(self) -> tuple[SharedLink, ...]:
        """Directed links that elephants of several jobs use. No job demands more than the link's rate."""
        demands, assigned, links_of = self.demands, self.assignments, self.links_of
        flows: dict[DirectedLink, dict[str, int]] = {}
        for f in demands.elephants:
            if f.name not in assigned:
                continue
            for link in links_of[f.name]:
                counts = flows.setdefault(link, {})
                counts[f.job] = counts.get(f.job, 0) + 1
        phases: dict[tuple[str, int, int], tuple[Phase, ...]] = {}

        def demand(job: str, count: int, rate: int) -> tuple[Phase, ...]:
            key = job, count, rate
            if key not in phases:
                phases[key] = tuple(
                    Phase(p.start_ns, p.end_ns, min(count * p.rate_bps, rate))
                    for p in demands.profiles[job].phases
                )
            return phases[key]

        shared = sorted(link for link, counts in flows.items() if len(counts) > 1)
        return tuple(
            SharedLink(
                link,
                demands.rates[link],
                {job: demand(job, n, demands.rates[link]) for job, n in sorted(flows[link].items())},
            )
            for link in shared
        )


@dataclass(frozen=True)
class _TimeSharing:
    """How much two jobs on one link slow each other down. Each pair is computed once."""

    demands: Demands
    known: dict[tuple[str, str], float] = field(default_factory=dict)

    def __call__(self, a: str, b: str) -> float:
        """ROUTING_WEIGHT if the two jobs can share a link in time, else 1."""
        key = (a, b) if a < b else (b, a)
        if key not in self.known:
            profiles = {j: self.demands.profiles[j] for j in key}
            fits = pair_fits(
                {j: p.phases for j, p in profiles.items()}, {j: p.period_ns for j, p in profiles.items()}
            )
            self.known[key] = ROUTING_WEIGHT if fits else 1.0
        return self.known[key]


def route_flows(demands: Demands, *, time_sharing: bool = True) -> RoutingStage:
    """Ask the policy's routing for paths, and find a source port for each.

    With `time_sharing`, and if the policy's timing has slots, a link costs less for two jobs that could share
    it in time. If the routing leaves the flows to the hash, but the order or the timing depends on the links
    that jobs share, the source ports are drawn here, so that the links are known.

    Raises:
        PolicyError: the routing cannot handle these flows, or its answer is not legal.
    """
    x = demands.inputs
    policy = x.policy
    if policy.job_by_job:
        return RoutingStage(demands, {}, by_hash=True)
    unknown = flows_of_unknown_port(x.queue_pairs)
    peak = {
        name: max((p.rate_bps for p in profile.phases), default=0)
        for name, profile in demands.profiles.items()
    }
    commodities = tuple(
        Commodity(f.name, f.src, f.dst, peak[f.job], f.job)
        for f in demands.elephants
        if f.name not in unknown
    )
    before = x.previous.flows.values() if x.previous else ()
    previous = {f.flow: (f.path, f.source_port) for f in before if f.path and f.source_port}
    overlap = _TimeSharing(demands) if time_sharing and policy.timing.holds_slots else None
    problem = RoutingProblem(
        topology=x.topology,
        forwarding=demands.forwarding,
        flows=commodities,
        failures=Failures(x.down_links, x.down_switches),
        previous={name: path for name, (path, _) in previous.items()},
        overlap=overlap,
        intensities=demands.intensities,
        distances=demands.distances,
        seed=x.seed,
    )
    answer = ask_routing(policy, problem)
    fixed = kept_ports(x.queue_pairs)
    by_hash = isinstance(answer, LeftToHash)
    if isinstance(answer, LeftToHash):
        if not policy.depends_on_jobs:
            return RoutingStage(demands, {}, by_hash=True)
        placed = assign_ecmp(
            x.topology, demands.forwarding, commodities, seed=x.seed, down_links=x.down_links, fixed=fixed
        )
    else:
        flow = {c.name: c for c in commodities}
        placed = with_ports(
            x.topology,
            demands.forwarding,
            [*(flow[name] for name in answer.paths), *(c for c in commodities if c.name not in answer.paths)],
            answer.paths,
            fabric=problem.fabric,
            down_links=x.down_links,
            previous=previous,
            learned=x.learned,
            fixed=fixed,
        )
    without = {
        f.name: Assignment(None, None, False, PORT_UNKNOWN) for f in demands.elephants if f.name in unknown
    }
    return RoutingStage(demands, {**placed, **without}, by_hash)
