# SPDX-License-Identifier: Apache-2.0
"""The routing stage: the path and source port of every elephant, and the links that jobs share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from controller.interleave.circle import SharedLink
from controller.interleave.link_sharing import ROUTING_WEIGHT, pair_fits
from controller.model import Profile
from controller.model.flow_plans import FlowPlans
from controller.planner.ask import ask_routing
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink
from controller.planner.link_use import LinkUse
from controller.planner.pinned_flows import PORT_UNKNOWN, Pinned, flows_of_unknown_port, kept_ports, pin
from controller.routing.assign import Assignment, assign_ecmp, with_ports
from controller.routing.assigned import AssignedFlows, assigned
from controller.routing.cable_links import Way
from controller.routing.commodities import Commodities, FlowPaths
from controller.routing.fabric import Ints
from controller.routing.from_topology import Failures
from controller.routing.protocol import ArrayRoutes, LeftToHash, RoutingProblem

_MOST_JOBS_IN_TIME = 128
"""With more jobs, paths are chosen as if no two could share a link in time. Chosen: each pair of jobs takes
half a millisecond."""


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
        if self.by_hash or (isinstance(self.placed, AssignedFlows) and not self._pins_possible):
            return Pinned(self.placed, (), {})
        return pin(self.demands.inputs, self.demands.forwarding, self.placed)

    @property
    def _pins_possible(self) -> bool:
        """Whether a flow whose port was searched for may need a pin all the same."""
        x = self.demands.inputs
        fixed = any(q.port_fixed for q in x.queue_pairs.values())
        return bool(fixed or x.mistrusted or (x.previous is not None and x.previous.pins))

    @cached_property
    def links_of(self) -> Mapping[str, Sequence[DirectedLink]]:
        """The directed links of the path of each elephant, with the cables that its port leads along; none of
        one without a path."""
        inside, ways = self.demands.inside, self.ways
        return {name: (*inside[name], *ways[name]) if name in ways else () for name in self.assignments}

    @cached_property
    def ways(self) -> Mapping[str, Way]:
        """The links from host to host of each elephant with a path."""
        way = self.demands.cable_links.way
        return {name: way(a.path, a.source_port) for name, a in self.assignments.items() if a.path}

    @cached_property
    def link_use(self) -> LinkUse:
        """What each job puts on each link: on its path, or at its hosts where it is no elephant."""
        demands = self.demands
        flows, assigned = demands.columns, self.assignments
        routed = np.zeros_like(flows.elephant)
        index = flows.elephants
        if isinstance(assigned, AssignedFlows):
            hops = assigned.paths.hops
            between = demands.links.of(hops[:, :-1], hops[:, 1:])
            routed[index] = True
            without = index[hops[:, 0] < 0]
        else:
            links = self.links_of
            ways = [links.get(flows.names[i]) for i in index.tolist()]
            routed[index] = [way is not None for way in ways]
            number = demands.links.number
            between = np.full((len(ways), max((len(w) for w in ways if w), default=0)), -1, dtype=np.int32)
            for row, way in zip(between, ways, strict=True):
                row[: len(way or ())] = [number[link] for link in way or ()]
            # Their links from host to host are all in `between`.
            without = index[routed[index]]
        rows = np.full((len(routed), 3 + between.shape[1]), -1, dtype=np.int32)
        rows[:, :1], rows[:, 1], rows[:, -1] = demands.inside_rows, flows.access[:, 0], flows.access[:, 1]
        rows[without] = -1
        rows[index, 2:-1] = between
        return demands.link_use(rows, routed)

    @cached_property
    def jobs_on(self) -> Mapping[DirectedLink, Collection[str]]:
        """The jobs on each directed link that several jobs share."""
        return {k.name: k.demands.keys() for k in self.shared}

    @cached_property
    def shared(self) -> tuple[SharedLink, ...]:
        """Directed links that elephants of several jobs use. No job demands more than the link's rate."""
        return self.link_use.shared(self.demands.inputs.jobs, self.demands.profiles)


@dataclass(frozen=True)
class _TimeSharing:
    """How much two jobs on one link slow each other down. Each pair of profiles is computed once."""

    demands: Demands
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    @cached_property
    def _kind(self) -> Mapping[str, int]:
        """A number by job, the same for jobs with equal profiles."""
        numbers: dict[Profile, int] = {}
        return {name: numbers.setdefault(p, len(numbers)) for name, p in self.demands.profiles.items()}

    def __call__(self, a: str, b: str) -> float:
        """ROUTING_WEIGHT if the two jobs can share a link in time, else 1."""
        if a > b:
            a, b = b, a
        key = self._kind[a], self._kind[b]
        if key not in self.known:
            profiles = {j: self.demands.profiles[j] for j in (a, b)}
            fits = pair_fits(
                {j: p.phases for j, p in profiles.items()}, {j: p.period_ns for j, p in profiles.items()}
            )
            self.known[key] = ROUTING_WEIGHT if fits else 1.0
        return self.known[key]


def may_share_in_time(demands: Demands) -> bool:
    """Whether paths are chosen with regard to time at all: the policy's timing has slots, and there are not
    too many jobs."""
    return demands.inputs.policy.timing.holds_slots and len(demands.inputs.jobs) <= _MOST_JOBS_IN_TIME


def route_flows(demands: Demands, *, time_sharing: bool = True) -> RoutingStage:
    """Ask the policy's routing for paths, and find a source port for each.

    With `time_sharing`, if `may_share_in_time`, a link costs less for two jobs that could share it in time.
    If the routing leaves the flows to the hash, but the order or the timing depends on the links that jobs
    share, the source ports are drawn here, so that the links are known.

    Raises:
        PolicyError: the routing cannot handle these flows, or its answer is not legal.
    """
    x = demands.inputs
    policy = x.policy
    if policy.job_by_job:
        return RoutingStage(demands, {}, by_hash=True)
    unknown = flows_of_unknown_port(x.queue_pairs)
    commodities = _commodities(demands, unknown)
    in_force, ports = _in_force(demands, commodities)
    overlap = _TimeSharing(demands) if time_sharing and may_share_in_time(demands) else None
    problem = RoutingProblem(
        topology=x.topology,
        forwarding=demands.forwarding,
        flows=commodities,
        failures=Failures(x.down_links, x.down_switches),
        previous=in_force,
        overlap=overlap,
        intensities=demands.intensities,
        distances=demands.distances,
        seed=x.seed,
        ports=ports,
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
        found = None
        if isinstance(answer, ArrayRoutes) and not (unknown or fixed or x.learned):
            found = assigned(problem, answer, ports)
        if found is not None:
            # Columns of hops do not name cables.
            return RoutingStage(demands, dict(found) if x.topology.bundles else found, by_hash)
        flow = {c.name: c for c in commodities}
        placed = with_ports(
            x.topology,
            demands.forwarding,
            [*(flow[name] for name in answer.paths), *(c for c in commodities if c.name not in answer.paths)],
            answer.paths,
            fabric=problem.fabric,
            down_links=x.down_links,
            previous={name: (path, int(ports[commodities.row[name]])) for name, path in in_force.items()},
            learned=x.learned,
            fixed=fixed,
        )
    without = {
        f.name: Assignment(None, None, False, PORT_UNKNOWN) for f in demands.elephants if f.name in unknown
    }
    return RoutingStage(demands, {**placed, **without}, by_hash)


def _commodities(demands: Demands, unknown: frozenset[str]) -> Commodities:
    """The elephants but those in `unknown`. The weight of a flow is the highest rate of its job."""
    flows, jobs = demands.columns, demands.inputs.jobs
    index = flows.elephants
    if unknown:
        index = index[[flows.names[i] not in unknown for i in index.tolist()]]
    peak = [max((p.rate_bps for p in demands.profiles[job.name].phases), default=0) for job in jobs]
    owner = flows.job[index]
    names = flows.names if len(index) == len(flows.names) else [flows.names[i] for i in index.tolist()]
    weight = np.array(peak, dtype=np.float64)[owner] if len(owner) else np.empty(0)
    # Owners count from 0 in the order of their first flows, and jobs without an elephant are none.
    there = np.bincount(owner, minlength=len(jobs)) > 0
    number = (np.cumsum(there) - 1).astype(np.int32)[owner]
    owners = tuple(job.name for job, some in zip(jobs, there.tolist(), strict=True) if some)
    return Commodities(flows.numbers, names, flows.src[index], flows.dst[index], weight, number, owners)


def _in_force(demands: Demands, flows: Commodities) -> tuple[FlowPaths, Ints]:
    """The paths in force, and the source port of each flow, (flows,); -1: none."""
    x, none = demands.inputs, np.full(len(flows), -1, dtype=np.int32)
    order = np.arange(len(flows))
    before = x.previous.flows if x.previous is not None else {}
    if isinstance(before, FlowPlans) and before.topology is x.topology and len(flows):
        hops, ports = _columns_in_force(demands, before)
        index = demands.columns.elephants
        if len(index) == len(flows):
            return FlowPaths(flows, hops[index], order), ports[index]
    known = {f.flow: f for f in before.values() if f.path and f.source_port} if before else {}
    paths = FlowPaths.of(flows, {name: f.path for name, f in known.items() if f.path})
    ports = none
    for name in paths:
        ports[flows.row[name]] = known[name].source_port or -1
    return paths, ports


def _columns_in_force(demands: Demands, before: FlowPlans) -> tuple[Ints, Ints]:
    """Hops and source port of each flow of all jobs under the plan before; -1 where it has none."""
    columns = demands.columns
    blocks = [before.jobs.get(job.name) for job in demands.inputs.jobs]
    width = max((b.hops.shape[1] for b in blocks if b is not None), default=1)
    hops = np.full((len(columns.names), width), -1, dtype=np.int32)
    ports = np.full(len(columns.names), -1, dtype=np.int32)
    moved = before.others
    for j, (job, block) in enumerate(zip(demands.inputs.jobs, blocks, strict=True)):
        first = columns.first[j]
        if block is not None and (block.flows is job.flows or block.flows == job.flows):
            hops[first : first + len(job.flows), : block.hops.shape[1]] = block.hops
            ports[first : first + len(job.flows)] = block.port
        elif block is not None:
            row = {f.name: i for i, f in enumerate(block.flows)}
            for i, f in enumerate(job.flows):
                k = row.get(f.name)
                if k is not None and (block.flows[k].src, block.flows[k].dst) == (f.src, f.dst):
                    hops[first + i, : block.hops.shape[1]] = block.hops[k]
                    ports[first + i] = block.port[k]
    for i, name in enumerate(columns.names) if moved else ():
        now = moved.get(name)
        if now is None:
            continue
        path = now.path or ()
        row_of = columns.numbers.hops_of_paths([path[1:-1]])[0]
        if len(row_of) > hops.shape[1]:
            hops = np.pad(hops, ((0, 0), (0, len(row_of) - hops.shape[1])), constant_values=-1)
        hops[i], ports[i] = -1, now.source_port or -1
        hops[i, : len(row_of)] = row_of
    return hops, np.where(hops[:, 0] >= 0, ports, -1).astype(np.int32)
