# SPDX-License-Identifier: Apache-2.0
"""Where: the path and source port of every elephant, and the links on which jobs meet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from controller.interleave.circle import SharedLink
from controller.interleave.link_sharing import ROUTING_WEIGHT, pair_fits
from controller.model import Phase
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink
from controller.planner.pinned_flows import NOT_TOLD, Pinned, kept_ports, pin, untold
from controller.routing.assign import Assignment, assign_ecmp, assign_greedy
from controller.routing.forwarding import SwitchForwarding, forwarding
from controller.routing.from_topology import Failures
from controller.routing.greedy import Commodity, connection_order


@dataclass(frozen=True)
class RoutingStage:
    """The paths of one planning run; `given` ones are taken as they are, and pinned where they need it.

    `turns`: whether jobs that could take turns on a link count less to one another there."""

    demands: Demands
    given: Mapping[str, Assignment] | None = None
    turns: bool = True
    _pairs: dict[tuple[str, str], float] = field(default_factory=dict)

    def _turns(self, a: str, b: str) -> float:
        """The cost of two jobs sharing a link: ROUTING_WEIGHT if they can take turns there, else 1."""
        key = (a, b) if a < b else (b, a)
        if key not in self._pairs:
            profiles = {j: self.demands.profiles[j] for j in key}
            fits = pair_fits(
                {j: p.phases for j, p in profiles.items()}, {j: p.period_ns for j, p in profiles.items()}
            )
            self._pairs[key] = ROUTING_WEIGHT if fits else 1.0
        return self._pairs[key]

    @property
    def assignments(self) -> Mapping[str, Assignment]:
        """Path and source port of every elephant; none where the plan leaves all to ECMP."""
        return self.pinned.assignments

    @cached_property
    def pinned(self) -> Pinned:
        """The assignments, and what switches hold of single flows for them."""
        if self.demands.inputs.policy.routing == "ecmp":
            return Pinned(self.placed, (), {})
        return pin(self.demands.inputs, self.table, self.placed)

    @cached_property
    def table(self) -> Mapping[str, SwitchForwarding]:
        """What the switches forward by."""
        x = self.demands.inputs
        return forwarding(x.topology, x.down_links, x.down_switches)

    @cached_property
    def placed(self) -> Mapping[str, Assignment]:
        """The assignments before any flow is pinned: a path may still lack a port."""
        if self.given is not None:
            return self.given
        demands, x = self.demands, self.demands.inputs
        policy = x.policy
        if policy.routing == "ecmp" and policy.priority == "equal" and policy.interleave == "none":
            return {}
        silent, table = untold(x.queue_pairs), self.table
        commodities: tuple[Commodity, ...] = tuple(
            Commodity(f.name, f.src, f.dst, max(p.rate_bps for p in demands.profiles[f.job].phases), f.job)
            for f in demands.elephants
            if f.name not in silent
        )
        unknown = {
            f.name: Assignment(None, None, False, NOT_TOLD) for f in demands.elephants if f.name in silent
        }
        fixed = kept_ports(x.queue_pairs)
        if policy.routing == "ecmp":
            drawn = assign_ecmp(
                x.topology, table, commodities, seed=x.seed, down_links=x.down_links, fixed=fixed
            )
            return {**drawn, **unknown}
        first = self._first()
        if first:
            commodities = tuple(sorted(commodities, key=lambda c: (-first[c.owner], c.owner)))
        else:
            commodities = connection_order(x.topology, commodities)
        before = x.previous.flows.values() if x.previous else ()
        found = assign_greedy(
            x.topology,
            table,
            commodities,
            down_links=x.down_links,
            previous={f.flow: (f.path, f.source_port) for f in before if f.path and f.source_port},
            overlap=self._turns if self.turns and policy.interleave == "circles" else None,
            failures=Failures(x.down_links, x.down_switches) if policy.routing == "auto" else None,
            max_moves=policy.max_moves,
            learned=x.learned,
            fixed=fixed,
        )
        return {**found, **unknown}

    def _first(self) -> Mapping[str, float]:
        """Which jobs choose their paths first, the highest number at once; empty where jobs do not matter.

        CRUX: the most intense (CRUX, section 4.1). TACCL*: those whose traffic goes farthest, in leaves
        that it touches one hop from another (CRUX, section 4.4).
        """
        demands = self.demands
        if demands.inputs.policy.priority in ("crux", "intensity"):
            jobs = demands.link_jobs(demands.access)
            return {j.name: j.contender(demands.rates).intensity or 0.0 for j in jobs}
        if demands.inputs.policy.priority == "taccl":
            reach = dict.fromkeys(demands.jobs, 0)
            for f in demands.elephants:
                reach[f.job] = max(reach[f.job], self._hops(f.src, f.dst))
            return {job: float(hops) for job, hops in reach.items()}
        return {}

    def _hops(self, src: str, dst: str) -> int:
        """Hops of the shortest way between two hosts: 2 in a leaf, 4 below a common switch, then 6."""
        topology = self.demands.inputs.topology
        a, b = topology.host[src].leaf, topology.host[dst].leaf
        if a == b:
            return 2
        return 4 if set(topology.upward[a]) & set(topology.upward[b]) else 6

    @cached_property
    def links_of(self) -> Mapping[str, Sequence[DirectedLink]]:
        """Each flow's directed links: its path's, or those at the hosts where the path is ECMP's."""
        links: dict[str, Sequence[DirectedLink]] = dict(self.demands.access)
        for name, a in self.assignments.items():
            links[name] = (*self.demands.inside[name], *pairwise(a.path)) if a.path else ()
        return links

    @cached_property
    def shared(self) -> tuple[SharedLink, ...]:
        """Directed links that elephants of several jobs use; no job asks for more than the link has."""
        demands = self.demands
        flows: dict[DirectedLink, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for f in demands.elephants:
            for link in self.links_of[f.name] if f.name in self.assignments else ():
                flows[link][f.job] += 1
        return tuple(
            SharedLink(
                link,
                demands.rates[link],
                {
                    job: tuple(
                        Phase(p.start_ns, p.end_ns, min(n * p.rate_bps, demands.rates[link]))
                        for p in demands.profiles[job].phases
                    )
                    for job, n in sorted(counts.items())
                },
            )
            for link, counts in sorted(flows.items())
            if len(counts) > 1
        )
