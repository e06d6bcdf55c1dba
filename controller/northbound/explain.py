# SPDX-License-Identifier: Apache-2.0
"""Why a job has its paths, level and time-shift, and what the other ways would have been, with numbers.

Everything follows from the plan in force and the jobs' profiles. The load of a link is what it would carry if
every flow on it sent at the highest rate of its job's profile at once, without DCQCN.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from controller.model.flow_plans import flows_of_job, pinned_flows
from controller.model.job import job_of_flow
from controller.model.plan import FlowPlan, JobPlan, Plan
from controller.model.view import JobView, View
from controller.northbound import schema
from controller.northbound.render import NAMED
from controller.routing.forwarding import forwarding
from controller.routing.paths import paths
from polyrhythm_files import listed

# Chosen: what a person reads; the counts are whole.
MOST_FLOWS = 16
MOST_ALTERNATIVES = 64
DirectedLink = tuple[str, str]
RateUnit = tuple[str, float]
_RATE_UNITS: tuple[RateUnit, ...] = (
    ("Tbit/s", 1e12),
    ("Gbit/s", 1e9),
    ("Mbit/s", 1e6),
    ("kbit/s", 1e3),
    ("bit/s", 1.0),
)


class PathOut(schema.Out):
    """A path, and the link on it that would be the fullest."""

    path: tuple[str, ...]
    link: tuple[str, str] = Field(description="Its fullest link, from a node to the next.")
    load_bps: int = Field(description="What this link would carry if all its flows sent at once, in bit/s.")
    capacity_bps: int
    jobs: tuple[str, ...] = Field(description="The other jobs on this link.")


class FlowExplainedOut(schema.Out):
    """Why a flow goes where it goes."""

    flow: str
    chosen: PathOut | None = Field(description="null: the flow is left to ECMP.")
    rejected: tuple[PathOut, ...] = Field(
        description=f"Other live paths as they would be with this flow, the emptiest first; at most "
        f"{MOST_ALTERNATIVES}."
    )
    why: str


class NeighbourOut(schema.Out):
    """A job that shares a link with the explained one."""

    job: str
    level: int
    intensity: float | None = Field(description="CRUX's GPU intensity in flop/s.")
    links: int = Field(description="How many directed links they share.")
    score: float | None = Field(
        description="The lowest compatibility score of these links under the shifts in force, up to 1; null: "
        "none of them is full."
    )


class TimesOut(schema.Out):
    """Iteration times of the job in ms; null: not known."""

    alone: float | None = Field(description="The period of its profile, alone on the fabric.")
    ecmp: float | None = Field(description="Expected under plain ECMP with the same jobs.")
    expected: float | None = Field(description="Expected under the plan in force.")
    allowed: float | None = Field(description="The longest that the policy's max_slowdown allows.")
    measured: float | None = Field(description="The mean of the last iterations.")


class ExplainedOut(schema.Out):
    """Why a job has its paths, level and time-shift."""

    job: str
    version: int = Field(description="Number of the plan that is explained.")
    policy: str
    sentences: tuple[str, ...]
    times: TimesOut
    level: int
    shift_ms: float | None = Field(description="null: it runs at its own pace.")
    neighbours: tuple[NeighbourOut, ...] = Field(description="The jobs that share a link with it, by name.")
    flows: tuple[FlowExplainedOut, ...] = Field(
        description=f"Its flows with the fullest links, at most {MOST_FLOWS}."
    )
    flows_in_all: int


@dataclass(frozen=True, slots=True)
class _Loads:
    """The planned load of each directed link in bit/s, the jobs on it, and what it can carry."""

    load: Mapping[DirectedLink, int]
    jobs: Mapping[DirectedLink, Collection[str]]
    capacity: Mapping[DirectedLink, int]

    def part(self, link: DirectedLink, more_bps: int = 0) -> float:
        return (self.load.get(link, 0) + more_bps) / self.capacity[link]

    def shown(
        self, path: tuple[str, ...], job: str, on_it: Collection[DirectedLink], rate_bps: int
    ) -> PathOut:
        """A path with a flow of `rate_bps`, which is now on the links `on_it`."""

        def more(link: DirectedLink) -> int:
            return 0 if link in on_it else rate_bps

        fullest = max(pairwise(path), key=lambda link: self.part(link, more(link)))
        return PathOut(
            path=path,
            link=fullest,
            load_bps=self.load.get(fullest, 0) + more(fullest),
            capacity_bps=self.capacity[fullest],
            jobs=tuple(sorted(set(self.jobs.get(fullest, ())) - {job})),
        )


def explained(view: View, job: JobView, plan: Plan, planned: JobPlan) -> ExplainedOut:
    """Explain what the plan of a view decides for a job."""
    rates = {
        j.name: max((p.rate_bps for p in j.profile.phases), default=0) if j.profile else 0 for j in view.jobs
    }
    loads = _loads(view, plan, rates)
    own = list(flows_of_job(plan.flows, job.name))
    neighbours = tuple(_neighbours(plan, job.name, own, loads))
    fullest = sorted(own, key=lambda flow: (-_fullness(flow, loads), flow.flow))[:MOST_FLOWS]
    flows = tuple(_flow(view, job.name, rates[job.name], flow, loads) for flow in fullest)
    times = TimesOut(
        alone=_ms(job.profile.period_ns) if job.profile else None,
        ecmp=_ms(planned.ecmp_ns),
        expected=_ms(planned.expected_ns),
        allowed=_ms(planned.floor_ns),
        measured=job.mean_ms,
    )
    return ExplainedOut(
        job=job.name,
        version=plan.version,
        policy=plan.policy.name,
        sentences=(
            *_about_paths(flows, len(own), _unit(flows)),
            *_about_level(planned, neighbours),
            *_about_shift(planned, neighbours),
            *_about_times(times),
            f"In the words of the plan: {planned.why}.",
        ),
        times=times,
        level=planned.level,
        shift_ms=_ms(planned.shift_ns) if planned.period_ns else None,
        neighbours=neighbours,
        flows=flows,
        flows_in_all=len(own),
    )


def _loads(view: View, plan: Plan, rates: Mapping[str, int]) -> _Loads:
    load: Counter[DirectedLink] = Counter()
    jobs: dict[DirectedLink, set[str]] = defaultdict(set)
    for name, path, _ in pinned_flows(plan.flows):
        job = job_of_flow(name)
        for link in pairwise(path):
            load[link] += rates.get(job, 0)
            jobs[link].add(job)
    capacity: Counter[DirectedLink] = Counter()
    for switch, ports in view.topology.ports.items():
        for peer in ports.values():
            capacity[switch, peer.node] += peer.rate_bps
            if peer.node in view.topology.host:
                capacity[peer.node, switch] += peer.rate_bps
    return _Loads(load, jobs, capacity)


def _fullness(flow: FlowPlan, loads: _Loads) -> float:
    return max((loads.part(link) for link in pairwise(flow.path or ())), default=0.0)


def _flow(view: View, job: str, rate_bps: int, flow: FlowPlan, loads: _Loads) -> FlowExplainedOut:
    if flow.path is None:
        return FlowExplainedOut(flow=flow.flow, chosen=None, rejected=(), why=flow.why)
    on_it = frozenset(pairwise(flow.path))
    table = forwarding(view.topology, view.down_links, view.down_switches)
    others = [p for p in paths(view.topology, table, flow.path[0], flow.path[-1]) if p != flow.path]
    rejected = sorted(
        (loads.shown(path, job, on_it, rate_bps) for path in others),
        key=lambda path: (path.load_bps / path.capacity_bps, path.path),
    )
    return FlowExplainedOut(
        flow=flow.flow,
        chosen=loads.shown(flow.path, job, on_it, rate_bps),
        rejected=tuple(rejected[:MOST_ALTERNATIVES]),
        why=flow.why,
    )


def _neighbours(plan: Plan, job: str, own: Iterable[FlowPlan], loads: _Loads) -> Iterator[NeighbourOut]:
    links = {link for flow in own for link in pairwise(flow.path or ())}
    shared = Counter(other for link in links for other in loads.jobs.get(link, ()) if other != job)
    scores: dict[str, float] = {}
    for link in plan.links:
        if job in link.jobs:
            for other in link.jobs:
                scores[other] = min(scores.get(other, link.score), link.score)
    for other in sorted(shared.keys() | scores.keys() - {job}):
        planned = plan.jobs.get(other)
        if planned is not None:
            yield NeighbourOut(
                job=other,
                level=planned.level,
                intensity=planned.intensity,
                links=shared[other],
                score=scores.get(other),
            )


def _unit(flows: Iterable[FlowExplainedOut]) -> RateUnit:
    """The unit of all rates of an answer, so that they can be compared: the largest that its largest link
    has one of."""
    paths = (path for flow in flows for path in (flow.chosen, *flow.rejected) if path is not None)
    most_bps = max((path.capacity_bps for path in paths), default=0)
    return next((unit for unit in _RATE_UNITS if most_bps >= unit[1]), _RATE_UNITS[-1])


def _about_paths(flows: Iterable[FlowExplainedOut], count: int, unit: RateUnit) -> Iterator[str]:
    flow = next(iter(flows), None)
    if flow is None:
        yield "It sends nothing over the fabric."
        return
    if flow.chosen is None:
        yield f"{'Its flow is' if count == 1 else f'Its {count} flows are'} left to ECMP: {flow.why}."
        return
    chosen = flow.chosen
    beside = f" together with {listed(chosen.jobs, NAMED)}" if chosen.jobs else " alone"
    whose = "Its only flow" if count == 1 else f"Of its {count} flows,"
    yield (
        f"{whose} {flow.flow} has the fullest link: {'-'.join(chosen.link)}, which it uses"
        f"{beside} and which carries {_rate(chosen, unit)} if all send at once."
    )
    if not flow.rejected:
        yield "There is no other live path for this flow."
        return
    best = flow.rejected[0]
    verdict = "no less" if _part(best) >= _part(chosen) - 1e-9 else "less"
    words = f"On the best of its {len(flow.rejected)} other paths, through {_middle(best)}, the fullest link"
    kept = "" if verdict == "no less" else f"; the plan still prefers the present one: {flow.why}"
    yield f"{words} would carry {_rate(best, unit)}, which is {verdict}{kept}."


def _about_level(planned: JobPlan, neighbours: Collection[NeighbourOut]) -> Iterator[str]:
    before = [n.job for n in neighbours if n.level < planned.level]
    after = [n.job for n in neighbours if n.level > planned.level]
    beside = [n.job for n in neighbours if n.level == planned.level]
    parts = (
        ("gives way to", before),
        ("goes before", after),
        ("shares the level with", beside),
    )
    words = [f"{verb} {listed(jobs, NAMED)}" for verb, jobs in parts if jobs]
    intensity = "" if planned.intensity is None else f" (GPU intensity {planned.intensity:.3g} flop/s)"
    told = "; ".join(words) if words else "meets no other job on a link"
    yield f"On level {planned.level}{intensity} it {told}."
    known = [f"{n.job} {n.intensity:.3g}" for n in neighbours if n.intensity is not None]
    if known:
        yield f"GPU intensities of the jobs that it meets, in flop/s: {listed(known, NAMED)}."


def _about_shift(planned: JobPlan, neighbours: Collection[NeighbourOut]) -> Iterator[str]:
    if not planned.period_ns:
        yield "It runs at its own pace."
        return
    once = " once, then at its own pace" if planned.once else ""
    shift_ms, period_ms = planned.shift_ns / 1e6, planned.period_ns / 1e6
    yield f"It starts to send at {shift_ms:.1f} of every {period_ms:.1f} ms{once}."
    scores = [f"{n.job} {n.score:.2f}" for n in neighbours if n.score is not None]
    if scores:
        yield (
            "Compatibility scores of the links that it shares, where 1 is no excess: "
            f"{listed(scores, NAMED)}."
        )


def _about_times(times: TimesOut) -> Iterator[str]:
    parts = (
        ("alone", times.alone),
        ("expected under this plan", times.expected),
        ("expected under plain ECMP", times.ecmp),
        ("at most allowed", times.allowed),
        ("measured", times.measured),
    )
    known = [f"{value:.1f} ms {what}" for what, value in parts if value is not None]
    if known:
        yield f"An iteration takes {', '.join(known)}."


def _part(path: PathOut) -> float:
    return path.load_bps / path.capacity_bps


def _rate(path: PathOut, unit: RateUnit) -> str:
    load, capacity = (_digits(bps / unit[1]) for bps in (path.load_bps, path.capacity_bps))
    return f"{load} of {capacity} {unit[0]}"


def _digits(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _middle(path: PathOut) -> str:
    return path.path[len(path.path) // 2]


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
