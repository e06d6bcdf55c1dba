# SPDX-License-Identifier: Apache-2.0
"""Whether jobs measure worse than the floor that their plan promised, and what the controller then does.

A plan says the longest mean iteration that it allows each job, its floor. A job that measures worse for ten
iterations in a row gets a new plan, which is told what was measured. At the second such breach the job and
those that share a link with it share one level, at their own pace, until one of them changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from controller.live.plan_changes import neighbours
from controller.model.flow_plans import with_dscps
from controller.model.plan import JobPlan, Plan

log = logging.getLogger(__name__)

BREACH_ITERATIONS = 10
"""So many iterations in a row above the floor are a breach."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A job took `measured_ns` (median of ten iterations in a row) where its plan promised `floor_ns`."""

    measured_ns: int
    floor_ns: int

    def __str__(self) -> str:
        return f"{self.measured_ns / 1e6:.1f} ms in ten iterations, its floor is {self.floor_ns / 1e6:.1f} ms"


@dataclass(slots=True)
class _FloorState:
    """What one job has done since something last changed for it.

    `slow_ns` are its last iterations in a row above the floor. The iteration that is under way when the plan
    changes is of two plans, so `skips` it.
    """

    slow_ns: list[int] = field(default_factory=list)
    skips: bool = True
    breaches: list[Breach] = field(default_factory=list)


class FloorWatch:
    """The jobs that measure worse than their floor, and the groups of jobs that share one level for it."""

    def __init__(self) -> None:
        self._states: dict[str, _FloorState] = {}
        self._groups: dict[str, frozenset[str]] = {}
        self.version = 0

    @property
    def measured_ns(self) -> Mapping[str, int]:
        """What the jobs that have breached their floor took under the plans that promised it."""
        return {name: s.breaches[-1].measured_ns for name, s in self._states.items() if s.breaches}

    def breaches(self, job: str) -> int:
        """How often a job has breached its floor since it or one of its neighbours last changed."""
        state = self._states.get(job)
        return len(state.breaches) if state is not None else 0

    def shares_with(self, job: str) -> tuple[str, ...]:
        """The jobs that share one level with `job` because of a breach, sorted; empty without one."""
        return tuple(sorted({j for g in self._groups.values() if job in g for j in g} - {job}))

    def ended(self, job: str, lengths_ns: Iterable[int], plan: Plan | None, profiled: str | None) -> bool:
        """Iterations of a job have ended. True if a new plan is wanted.

        While a job is `profiled`, it and its neighbours do not run as their plan says, so nothing counts. Nor
        does it for a job that shares no link: no plan makes it faster.
        """
        planned = plan.jobs.get(job) if plan is not None else None
        state = self._states.setdefault(job, _FloorState())
        floor_ns = planned.floor_ns if planned is not None else None
        if plan is None or floor_ns is None or not self._contends(job, plan, profiled):
            state.slow_ns.clear()
            return False
        wanted = False
        for length in lengths_ns:
            if state.skips:
                state.skips = False
                continue
            state.slow_ns = [*state.slow_ns, length] if length > floor_ns else []
            if len(state.slow_ns) == BREACH_ITERATIONS:
                wanted = self._breached(job, state, floor_ns, plan) or wanted
        return wanted

    def _contends(self, job: str, plan: Plan, profiled: str | None) -> bool:
        """Whether a job shares links, and neither it nor one of its neighbours is profiled."""
        others = neighbours(plan, [job])
        return bool(others) and profiled != job and profiled not in others

    def _breached(self, job: str, state: _FloorState, floor_ns: int, plan: Plan) -> bool:
        breach = Breach(round(median(state.slow_ns)), floor_ns)
        state.slow_ns.clear()
        if any(job in group for group in self._groups.values()):
            # They share one level already. More cannot be done here.
            return False
        state.breaches.append(breach)
        self.version += 1
        if len(state.breaches) == 1:
            log.warning("job %s is below its floor: it took %s; a new plan is made from that", job, breach)
            return True
        group = neighbours(plan, [job]) | {job}
        self._groups[job] = group
        log.warning(
            "job %s is below its floor again: it took %s; it now shares one level with %s, until one of them "
            "changes",
            job,
            breach,
            ", ".join(sorted(group - {job})),
        )
        return True

    def plan_changed(self, jobs: Iterable[str]) -> None:
        """A plan has come into force that disturbs these jobs: their iterations under way do not count."""
        for job in jobs:
            state = self._states.setdefault(job, _FloorState())
            state.slow_ns.clear()
            state.skips = True

    def job_changed(self, job: str, plan: Plan | None) -> None:
        """A job has come, has left or has a new profile: what it and its neighbours did says nothing now."""
        for owner in [o for o, group in self._groups.items() if job in group]:
            log.info(
                "job %s has changed: the jobs that share one level with job %s are free again", job, owner
            )
            self._forget_breaches(self._groups.pop(owner))
        self._forget_breaches([job, *(neighbours(plan, [job]) if plan is not None else ())])

    def left(self, job: str, plan: Plan | None) -> None:
        """A job has left."""
        self.job_changed(job, plan)
        self._states.pop(job, None)

    def end_sharing(self, plan: Plan) -> None:
        """A new plan has been made: the jobs of a group that has a new neighbour in it are free again."""
        for owner in [o for o, group in self._groups.items() if neighbours(plan, [o]) - group]:
            log.info(
                "job %s has a new neighbour: the jobs that share one level with it are free again", owner
            )
            self._forget_breaches(self._groups.pop(owner))

    def _forget_breaches(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            if job in self._states and self._states[job].breaches:
                self._states[job].breaches.clear()
        self.version += 1

    def overlay(self, plan: Plan, dscps: tuple[int, ...]) -> Plan:
        """The plan with the jobs of each group on one level, and with the reasons of new plans.

        `dscps` are those of the levels, highest first.
        """
        for owner, group in sorted(self._groups.items()):
            plan = with_one_level(plan, group, dscps, self._reason(owner))
        jobs = dict(plan.jobs)
        for name, state in self._states.items():
            if len(state.breaches) == 1 and name in jobs:
                why = f"{jobs[name].why}; planned again because it was below its floor: {state.breaches[0]}"
                jobs[name] = replace(jobs[name], why=why)
        return replace(plan, jobs=jobs) if jobs != plan.jobs else plan

    def _reason(self, owner: str) -> str:
        return f"{owner} was below its floor twice: {self._states[owner].breaches[-1]}"


def with_one_level(plan: Plan, group: frozenset[str], dscps: tuple[int, ...], why: str) -> Plan:
    """The plan with the jobs of `group` on the highest level that one of them has, at their own pace."""
    members = [name for name in plan.jobs if name in group]
    if not members:
        return plan
    level = min(plan.jobs[name].level for name in members)
    dscp = dscps[min(level, len(dscps) - 1)]
    jobs: dict[str, JobPlan] = dict(plan.jobs)
    for name in members:
        others = ", ".join(sorted(set(members) - {name})) or "no other job"
        reason = f"level {level}, shared with {others} until one of them changes: {why}"
        jobs[name] = replace(
            jobs[name], level=level, dscp=dscp, shift_ns=0, period_ns=None, once=False, why=reason
        )
    moved = {name: (plan.jobs[name].dscp, dscp) for name in members}
    return replace(plan, jobs=jobs, flows=with_dscps(plan.flows, moved))
