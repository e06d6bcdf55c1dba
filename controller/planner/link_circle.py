# SPDX-License-Identifier: Apache-2.0
"""The unified circle of one directed link under a plan, and what other time-shifts would do to all jobs.

The score is CASSINI's (Table 4.1), and iteration times are those of the evaluator that also judges plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.interleave.circle import SharedLink, perimeter, random_score
from controller.interleave.joint.evaluator import Evaluator
from controller.interleave.joint.instance import UNSCHEDULED, Choice
from controller.interleave.link_sharing import SLACK
from controller.interleave.period import repeat_soon, repeating_groups
from controller.model import Phase, Plan
from controller.model.plan import JobPlan
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink, PlanInput
from controller.planner.joint_search import LIMITS
from controller.planner.search_instance import instance_of
from controller.routing.cable_links import Way
from controller.wire.senders import uses_mltcp


@dataclass(frozen=True, slots=True)
class Arc:
    """A job on the circle of a link. `period_ns` is that of its slots, or its own where it has no slots
    (`slotted`). `phases` are its Up phases with its rate on this link, counted from `shift_ns`."""

    job: str
    level: int
    dscp: int
    period_ns: int
    shift_ns: int
    slotted: bool
    phases: tuple[Phase, ...]
    alone_ns: int


@dataclass(frozen=True, slots=True)
class LinkCircle:
    """The circle of a link. `perimeter_ns` is None where the jobs' periods do not meet again soon."""

    capacity_bps: int
    perimeter_ns: int | None
    score: float
    arcs: tuple[Arc, ...]


class NotEvaluableError(ValueError):
    """The iteration times cannot be predicted, or the shifts are not legal; the message says why."""


def link_circle(
    inputs: PlanInput, plan: Plan, link: DirectedLink, shifts_ns: Mapping[str, int] | None = None
) -> LinkCircle:
    """The circle of a directed link under a plan of these jobs; `shifts_ns` replaces shifts of some of them.

    Raises:
        NotEvaluableError: a shift is of a job that has no slots; the message names it.
    """
    plan, demands = _with_shifts(plan, shifts_ns or {}), Demands(inputs)
    flows = Counter(demands.elephant[name].job for name, way in _ways(demands, plan).items() if link in way)
    rate_bps = demands.rates[link]
    arcs = []
    for name, count in sorted(flows.items()):
        profile, planned = demands.profiles[name], plan.jobs[name]
        phases = tuple(replace(p, rate_bps=min(count * p.rate_bps, rate_bps)) for p in profile.phases)
        period_ns = planned.period_ns or profile.period_ns
        shift_ns = planned.shift_ns if planned.period_ns else 0
        slotted = planned.period_ns is not None
        arcs.append(
            Arc(
                name,
                planned.level,
                planned.dscp,
                period_ns,
                shift_ns,
                slotted,
                phases,
                profile.period_ns,
            )
        )
    shared = SharedLink(link, rate_bps, {arc.job: arc.phases for arc in arcs})
    periods = {arc.job: arc.period_ns for arc in arcs}
    score = random_score(shared, periods, _in_step(arcs), slack=SLACK) if arcs else 1.0
    soon = bool(arcs) and repeat_soon([list(periods.values())])
    return LinkCircle(rate_bps, perimeter(list(periods.values())) if soon else None, score, tuple(arcs))


def predicted(
    inputs: PlanInput, plan: Plan, shifts_ns: Mapping[str, int]
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The mean iterations of all jobs with traffic in ns, as the plan is and with other shifts.

    Raises:
        NotEvaluableError: a job has no profile, or a shift is of a job that has no slots.
    """
    changed, demands = _with_shifts(plan, shifts_ns), Demands(inputs)
    ways = _ways(demands, plan)
    unknown = sorted(
        {demands.elephant[n].job for n in ways} - {j.name for j in inputs.jobs if j.profile.phases}
    )
    if unknown:
        raise NotEvaluableError(f"job {unknown[0]} has no profile yet; legal: once it is measured")
    instance = instance_of(demands, {name: (way,) for name, way in ways.items()})
    evaluator = Evaluator(instance)
    names = [job.name for job in instance.jobs]
    effort = replace(LIMITS.thorough, longer=0.0)
    found = []
    for value in (plan, changed):
        choice = Choice(
            path_choice=(0,) * len(instance.flows),
            level=tuple(value.jobs[name].level for name in names),
            timings=tuple(_timing(value.jobs[name]) for name in names),
            mltcp=tuple(uses_mltcp(value.jobs[name].sender) for name in names),
        )
        lengths = evaluator.lengths(choice, effort).mean(0).tolist()
        found.append(dict(zip(names, lengths, strict=True)))
    return found[0], found[1]


def _timing(job: JobPlan) -> tuple[int, int]:
    return UNSCHEDULED if job.period_ns is None else (job.period_ns, job.shift_ns % job.period_ns)


def _with_shifts(plan: Plan, shifts_ns: Mapping[str, int]) -> Plan:
    jobs = dict(plan.jobs)
    for name, shift_ns in shifts_ns.items():
        job = jobs.get(name)
        if job is None or job.period_ns is None:
            held = sorted(n for n, j in plan.jobs.items() if j.period_ns is not None)
            legal = ", ".join(held) or "none, for no job is held to slots"
            raise NotEvaluableError(f"job {name!r} is not held to slots; legal: {legal}")
        jobs[name] = replace(job, shift_ns=shift_ns % job.period_ns)
    return replace(plan, jobs=jobs)


def _ways(demands: Demands, plan: Plan) -> Mapping[str, Way]:
    """The links of every elephant that has a path in the plan, job by job."""
    way = demands.cable_links.way
    planned = ((flow.name, plan.flows.get(flow.name)) for flow in demands.elephants if flow.job in plan.jobs)
    return {
        name: (*demands.inside[name], *way(flow.path, flow.source_port))
        for name, flow in planned
        if flow is not None and flow.path
    }


def _in_step(arcs: Sequence[Arc]) -> list[Mapping[str, int]]:
    """The jobs with slots, in groups whose periods meet again soon: only their shifts mean anything to one
    another."""
    slotted = {arc.job: arc for arc in arcs if arc.slotted}
    groups = repeating_groups({job: arc.period_ns for job, arc in slotted.items()})
    return [{job: slotted[job].shift_ns for job in group} for group in groups]
