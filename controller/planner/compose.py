# SPDX-License-Identifier: Apache-2.0
"""From fabric, jobs and policy to a plan, as one pure function.

Order of work: paths (most intense job first), then who would meet whom on which link, then rhythms for
those who gain by taking turns, then levels for those who still overlap in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise

from controller.interleave.circle import SharedLink, overlapping, random_score
from controller.interleave.hold import Holding, contended, hold
from controller.interleave.period import quantise
from controller.interleave.rotate import rotate
from controller.model import (
    TRAFFIC_CLASSES,
    Flow,
    FlowPlan,
    Job,
    JobPlan,
    LinkPlan,
    Phase,
    Plan,
    Policy,
    Profile,
)
from controller.priority.compress import Compression, compress
from controller.priority.crux import Contender, Ranked, contention, rank, traffic_time
from controller.routing.assign import Assignment, assign_ecmp, assign_greedy
from controller.routing.fabric import capacities
from controller.routing.forwarding import forwarding
from controller.routing.greedy import Commodity, connection_order
from controller.routing.instance import Failures
from topo.graph import Topology

POLICIES: Mapping[str, Policy] = {
    "ecmp": Policy("ecmp", "ecmp", "equal", "none"),
    "polyrhythm": Policy("polyrhythm", "auto", "crux", "cassini"),
    "routing": Policy("routing", "auto", "equal", "none"),
    "crux": Policy("crux", "ecmp", "crux", "none"),
    "cassini": Policy("cassini", "ecmp", "equal", "cassini"),
}
SLACK = 0.02
TURNS = 0.5
_FIT = 0.99

DirectedLink = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All that a plan depends on.

    `down_links` are sorted name pairs (a host's cable is (host, leaf), sorted); `epoch_ns` is the
    fabric time that shifts count from; flows below `mice_bytes` an iteration are left to ECMP in the
    lowest queue; `seed` decides ECMP's draws and the sampled orders of the priority compression.
    """

    topology: Topology
    jobs: tuple[Job, ...]
    policy: Policy
    epoch_ns: int
    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()
    previous: Plan | None = None
    seed: int = 0
    mice_bytes: int = 1024


def plan(inputs: PlanInput) -> Plan:
    """The plan for these inputs. Raises ValueError, in words, for jobs that the fabric cannot have."""
    _check(inputs)
    return _Planner(inputs).plan()


def _only(link: SharedLink, jobs: Iterable[str]) -> SharedLink:
    """The same link as if no other jobs used it."""
    return SharedLink(link.name, link.rate_bps, {j: link.demands[j] for j in jobs})


def _check(inputs: PlanInput) -> None:
    policy = inputs.policy
    for value, legal in (
        (policy.routing, ("ecmp", "greedy", "auto")),
        (policy.priority, ("equal", "crux")),
        (policy.interleave, ("none", "cassini")),
    ):
        if value not in legal:
            raise ValueError(f"policy {policy.name}: {value!r} is not one of {', '.join(legal)}")
    if policy.levels < 1:
        raise ValueError(f"policy {policy.name}: levels must be at least 1, not {policy.levels}")
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


@dataclass(frozen=True)
class _Planner:
    """One planning run; every property is a stage, computed once from those before it."""

    inputs: PlanInput
    _pairs: dict[tuple[str, str], float] = field(default_factory=dict)

    @cached_property
    def jobs(self) -> Mapping[str, Job]:
        return {j.name: j for j in self.inputs.jobs}

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """Measured profiles; a job not measured yet is taken to send all the time."""
        result = {}
        for job in self.inputs.jobs:
            rates = [self.inputs.topology.host[f.src].rate_bps for f in job.flows]
            unknown = Profile(1, (Phase(0, 1, max(rates)),)) if rates else Profile(1, ())
            result[job.name] = job.profile if job.profile.phases else unknown
        return result

    @cached_property
    def rates(self) -> Mapping[DirectedLink, int]:
        """Capacity in bit/s of every directed link, hosts' cables too."""
        rates = dict(capacities(self.inputs.topology))
        for host in self.inputs.topology.hosts:
            rates[host.name, host.leaf] = rates[host.leaf, host.name] = host.rate_bps
        return rates

    @cached_property
    def elephants(self) -> tuple[Flow, ...]:
        return tuple(
            f
            for job in self.inputs.jobs
            for f in job.flows
            if f.bytes_per_iteration >= self.inputs.mice_bytes and f.src != f.dst
        )

    def _contenders(self, links_of: Mapping[str, Sequence[DirectedLink]]) -> list[Contender]:
        """The jobs as CRUX sees them, with t_j over the given links of each flow."""
        contenders = []
        for job in self.inputs.jobs:
            on: dict[DirectedLink, float] = defaultdict(float)
            for flow in job.flows:
                for link in links_of.get(flow.name, ()):
                    on[link] += flow.bytes_per_iteration
            profile = self.profiles[job.name]
            contenders.append(
                Contender(
                    name=job.name,
                    work=job.flops_per_iteration,
                    compute_s=(profile.period_ns - profile.up_ns) / 1e9,
                    traffic_s=traffic_time(on, self.rates),
                    total_bytes=sum(f.bytes_per_iteration for f in job.flows),
                )
            )
        return contenders

    def _turns(self, a: str, b: str) -> float:
        """How much two jobs on one link hurt each other: TURNS if they can take turns there, else 1."""
        key = (a, b) if a < b else (b, a)
        if key not in self._pairs:
            profiles = {j: self.profiles[j] for j in key}
            fitted = quantise([p.period_ns for p in profiles.values()])
            if fitted is None:
                self._pairs[key] = 1.0
            else:
                peak = max(x.rate_bps for p in profiles.values() for x in p.phases)
                link = SharedLink(("", ""), peak, {j: p.phases for j, p in profiles.items()})
                loss = rotate([link], dict(zip(key, fitted.periods, strict=True)), slack=SLACK).loss
                self._pairs[key] = TURNS if 1 - loss >= _FIT else 1.0
        return self._pairs[key]

    @cached_property
    def assignments(self) -> Mapping[str, Assignment]:
        """Path and source port of every elephant; none where the plan leaves all to ECMP."""
        x, policy = self.inputs, self.inputs.policy
        if policy.routing == "ecmp" and policy.priority == "equal" and policy.interleave == "none":
            return {}
        table = forwarding(x.topology, x.down_links, x.down_switches)
        commodities: tuple[Commodity, ...] = tuple(
            Commodity(f.name, f.src, f.dst, max(p.rate_bps for p in self.profiles[f.job].phases), f.job)
            for f in self.elephants
        )
        if policy.routing == "ecmp":
            return assign_ecmp(x.topology, table, commodities, seed=x.seed, down_links=x.down_links)
        if policy.priority == "crux":
            intensity = {c.name: c.intensity or 0.0 for c in self._contenders(self._access)}
            commodities = tuple(sorted(commodities, key=lambda c: (-intensity[c.owner], c.owner)))
        else:
            commodities = connection_order(x.topology, commodities)
        before = x.previous.flows.values() if x.previous else ()
        return assign_greedy(
            x.topology,
            table,
            commodities,
            down_links=x.down_links,
            previous={f.flow: (f.path, f.source_port) for f in before if f.path and f.source_port},
            overlap=self._turns if policy.interleave == "cassini" else None,
            failures=Failures(x.down_links, x.down_switches) if policy.routing == "auto" else None,
        )

    @cached_property
    def _access(self) -> Mapping[str, tuple[DirectedLink, ...]]:
        """Each flow's links at the hosts: what it uses whatever its path."""
        host = self.inputs.topology.host
        return {
            f.name: ((f.src, host[f.src].leaf), (host[f.dst].leaf, f.dst))
            for job in self.inputs.jobs
            for f in job.flows
        }

    @cached_property
    def links_of(self) -> Mapping[str, Sequence[DirectedLink]]:
        """Each flow's directed links: its path's, or those at the hosts where the path is ECMP's."""
        links: dict[str, Sequence[DirectedLink]] = dict(self._access)
        for name, a in self.assignments.items():
            links[name] = tuple(pairwise(a.path)) if a.path else ()
        return links

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        return rank(self._contenders(self.links_of))

    @cached_property
    def shared(self) -> tuple[SharedLink, ...]:
        """Directed links that elephants of several jobs use; no job asks for more than the link has."""
        flows: dict[DirectedLink, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for f in self.elephants:
            for link in self.links_of[f.name] if f.name in self.assignments else ():
                flows[link][f.job] += 1
        return tuple(
            SharedLink(
                link,
                self.rates[link],
                {
                    job: tuple(
                        Phase(p.start_ns, p.end_ns, min(n * p.rate_bps, self.rates[link]))
                        for p in self.profiles[job].phases
                    )
                    for job, n in sorted(counts.items())
                },
            )
            for link, counts in sorted(flows.items())
            if len(counts) > 1
        )

    @cached_property
    def holding(self) -> Holding:
        x = self.inputs
        if x.policy.interleave == "none":
            return Holding({}, {}, (), ())
        known = [_only(k, [j for j in k.demands if self.jobs[j].profile.phases]) for k in self.shared]
        previous: dict[str, tuple[int, int]] = {}
        for j in x.previous.jobs.values() if x.previous else ():
            if x.previous and j.period_ns:
                previous[j.job] = j.period_ns, (j.shift_ns + x.previous.epoch_ns - x.epoch_ns) % j.period_ns
        return hold(
            known,
            {name: p.period_ns for name, p in self.profiles.items()},
            [r.name for r in self.ranked],
            previous=previous,
            slack=SLACK,
            seed=x.seed,
        )

    @cached_property
    def periods(self) -> Mapping[str, int]:
        """The period of every job in ns: held, or its own."""
        held = self.holding.held
        return {n: held[n].period_ns if n in held else p.period_ns for n, p in self.profiles.items()}

    def _groups(self, link: SharedLink) -> list[dict[str, int]]:
        """The held jobs on a link, by the group that they keep step with: job -> shift."""
        groups: dict[int, dict[str, int]] = defaultdict(dict)
        for job in link.demands:
            if job in self.holding.held:
                held = self.holding.held[job]
                groups[held.group][job] = held.shift_ns
        return list(groups.values())

    @cached_property
    def contending(self) -> Mapping[tuple[str, str], DirectedLink]:
        """Pairs of jobs (sorted) that still meet in time on a link that cannot carry both, and where."""
        pairs: dict[tuple[str, str], DirectedLink] = {}
        for link in self.shared:
            if not contended(link, SLACK):
                continue
            groups = self._groups(link)
            in_step = {p for g in groups for p in combinations(sorted(g), 2)}
            meet = set(combinations(sorted(link.demands), 2)) - in_step
            for g in groups:
                meet |= overlapping(_only(link, g), self.periods, g, slack=SLACK)
            for p in sorted(meet):
                pairs.setdefault(p, link.name)
        return pairs

    @cached_property
    def compression(self) -> Compression:
        edges = contention(self.ranked, self.contending)
        levels = min(self.inputs.policy.levels, len(TRAFFIC_CLASSES.levels))
        return compress([r.name for r in self.ranked], edges, levels, seed=self.inputs.seed)

    def plan(self) -> Plan:
        x = self.inputs
        jobs = {r.name: self._job_plan(r) for r in self.ranked}
        flows = {f.name: self._flow_plan(f, jobs[f.job]) for job in x.jobs for f in job.flows}
        links = tuple(LinkPlan(*k.name, tuple(k.demands), self._score(k)) for k in self.shared)
        version = x.previous.version + 1 if x.previous else 1
        return Plan(version, x.policy, x.epoch_ns, flows, {j.name: jobs[j.name] for j in x.jobs}, links)

    def _score(self, link: SharedLink) -> float:
        full = contended(link, SLACK)
        return random_score(link, self.periods, self._groups(link), slack=SLACK) if full else 1.0

    def _job_plan(self, ranked: Ranked) -> JobPlan:
        name = ranked.name
        if self.inputs.policy.priority == "equal":
            level, order = TRAFFIC_CLASSES.levels.index(TRAFFIC_CLASSES.equal), "same level for all"
        elif ranked.intensity is None:
            level = min(self.inputs.policy.levels, len(TRAFFIC_CLASSES.levels)) - 1
            order = "lowest level: it sends nothing"
        else:
            level, order = self.compression.level[name], self._order_why(ranked)
        held = self.holding.held.get(name)
        return JobPlan(
            job=name,
            level=level,
            dscp=TRAFFIC_CLASSES.levels[level],
            shift_ns=held.shift_ns if held else 0,
            period_ns=held.period_ns if held else None,
            intensity=ranked.intensity,
            why=f"{self._time_why(name)}; {order}",
        )

    def _order_why(self, ranked: Ranked) -> str:
        meets = sorted({j for p in self.contending for j in p if ranked.name in p} - {ranked.name})
        if not meets:
            return f"level {self.compression.level[ranked.name]}: it meets no other job, no order needed"
        place = {r.name: i for i, r in enumerate(self.ranked)}
        above = [j for j in meets if place[j] < place[ranked.name]]
        below = [j for j in meets if j not in above]
        words = [f"after {', '.join(above)}"] if above else []
        words += [f"before {', '.join(below)}"] if below else []
        return (
            f"level {self.compression.level[ranked.name]}: {' and '.join(words)}, by intensity "
            f"{ranked.intensity:.3g} flop/s x correction {ranked.correction:.3g}"
        )

    def _time_why(self, name: str) -> str:
        if self.inputs.policy.interleave == "none":
            return "runs at its own pace"
        held = self.holding.held.get(name)
        if held is None:
            meets = any(name in p for p in self.contending)
            why = "none it meets can keep its rhythm" if meets else "shares no full link with another job"
            return f"runs at its own pace: {self.holding.reasons.get(name, why)}"
        fits = [f for f in self.holding.fits if name in f.jobs]
        worst = min(fits, key=lambda f: f.score)
        link = next(k for k in self.shared if k.name == worst.link)
        chance = random_score(_only(link, worst.jobs), self.periods, slack=SLACK)
        others = sorted({j for f in fits for j in f.jobs} - {name})
        measured = self.profiles[name].period_ns
        return (
            f"takes turns with {', '.join(others)} on {worst.link[0]}->{worst.link[1]}"
            f"{f' and {len(fits) - 1} more' if len(fits) > 1 else ''}: score {worst.score:.2f}, "
            f"{chance:.2f} at random; starts at {held.shift_ns / 1e6:.1f} of every "
            f"{held.period_ns / 1e6:.1f} ms ({100 * (held.period_ns / measured - 1):.1f} % over its own)"
        )

    def _flow_plan(self, flow: Flow, job: JobPlan) -> FlowPlan:
        if flow.bytes_per_iteration < self.inputs.mice_bytes:
            why = f"{flow.bytes_per_iteration} bytes an iteration: a mouse, left to ECMP"
            return FlowPlan(flow.name, None, None, TRAFFIC_CLASSES.mice, why)
        a = self.assignments.get(flow.name)
        if a is None:
            return FlowPlan(flow.name, None, None, job.dscp, "left to ECMP")
        why = a.why or self._path_why(flow, a)
        return FlowPlan(flow.name, a.path, a.source_port, job.dscp, why)

    def _path_why(self, flow: Flow, a: Assignment) -> str:
        path = a.path or ()
        meets = sorted(
            {j for k in self.shared if k.name in set(pairwise(path[1:-1])) for j in k.demands} - {flow.job}
        )
        way = "inside the leaf" if len(path) == 3 else f"least loaded path, by {path[len(path) // 2]}"
        company = f", with {', '.join(meets)}" if meets else ", shared with no other job"
        return f"{way}{company if len(path) > 3 else ''}{'; as before' if a.kept else ''}"
