# SPDX-License-Identifier: Apache-2.0
"""Why each plan was made, and how long iterations took before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from controller.live.core import Core
from controller.live.plan_causes import ROLLBACK
from controller.model.job import Job
from controller.model.plan import Plan, PolicyReference
from controller.southbound.table_writes import FabricCondition
from polyrhythm_files import listed

MOST_PLANS = 1_000
"""Chosen: as many as the API lists."""
ITERATIONS = 20
"""The last iterations before a plan that count. Chosen: some seconds."""
_NAMED = 3
NOT_KNOWN = f"not known: reasons are kept of the last {MOST_PLANS:,} plans since the start of the controller"
UNCHANGED = "made anew: jobs, profiles, policy and fabric are as before"


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """What a plan was made for."""

    jobs: Mapping[str, Job]
    breaches: Mapping[str, int]
    condition: FabricCondition
    policy: PolicyReference


def changes(before: PlanBasis, after: PlanBasis) -> Iterator[str]:
    """What is different, in words, the most important first."""
    for words, was, now in (
        ("down: ", frozenset(before.condition.failed_names), frozenset(after.condition.failed_names)),
        ("drained: ", _drained(before.condition), _drained(after.condition)),
    ):
        if new := now - was:
            yield words + _some(new)
        if back := was - now:
            yield f"no longer {words}{_some(back)}"
    arrived = after.jobs.keys() - before.jobs.keys()
    left = before.jobs.keys() - after.jobs.keys()
    kept = after.jobs.keys() & before.jobs.keys()
    if arrived:
        yield f"arrived: {_some(arrived)}"
    if left:
        yield f"left: {_some(left)}"
    if before.policy != after.policy:
        yield (
            f"policy {after.policy.name} was chosen"
            if before.policy.name != after.policy.name
            else "new options"
        )
    profiled = {name for name in kept if after.jobs[name].profile != before.jobs[name].profile}
    if profiled:
        yield f"new profile: {_some(profiled)}"
    below = {name for name in kept if after.breaches.get(name, 0) > before.breaches.get(name, 0)}
    if below:
        yield f"below its floor: {_some(below)}"
    described = {name for name in kept - profiled if after.jobs[name] != before.jobs[name]}
    if described:
        yield f"described anew: {_some(described)}"


class PlanReasons:
    """Looks at a core after each step. `before_ms` has by job the mean of its last iterations before the
    present plan; a job that had none is missing."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # Why an earlier controller made its last plan is not known.
        plan = core.plan
        self._basis = (
            PlanBasis({}, {}, FabricCondition(), core.settings.policy.reference)
            if plan is None
            else self._basis_of(plan, plan.jobs.keys())
        )
        self._version = None if plan is None else plan.version
        self._made: dict[int, tuple[int, str]] = {}
        self.before_ms: Mapping[str, float] = {}

    def look(self) -> None:
        """Take up a plan that has come into force since the last call."""
        core = self._core
        plan = core.plan
        if plan is None or plan.version == self._version:
            return
        basis, causes = self._basis_of(plan), core.causes.in_force()
        words = [*(c for c in causes if c.startswith(ROLLBACK)), *changes(self._basis, basis)]
        reason = "; ".join(words or causes) or UNCHANGED
        self._basis, self._version = basis, plan.version
        self._made[plan.version] = core.now_ns, reason
        while len(self._made) > MOST_PLANS:
            del self._made[next(iter(self._made))]
        recent = {name: core.reports.stats[name].recent_ms[-ITERATIONS:] for name in basis.jobs}
        self.before_ms = {name: sum(ms) / len(ms) for name, ms in recent.items() if ms}

    def of(self, version: int) -> tuple[int | None, str]:
        """When a plan came into force, and what had changed; None and NOT_KNOWN: that is not known."""
        return self._made.get(version, (None, NOT_KNOWN))

    def _basis_of(self, plan: Plan, names: Set[str] | None = None) -> PlanBasis:
        """What a plan in force was made for; of the present jobs only those of `names`, None: all."""
        jobs = {j.name: j for j in self._core.registry.jobs if names is None or j.name in names}
        breaches = {name: self._core.floors.breaches(name) for name in jobs}
        return PlanBasis(jobs, breaches, self._core.condition, plan.policy)


def _drained(condition: FabricCondition) -> Set[str]:
    return condition.drained_switches | {"-".join(cable) for cable in condition.drained_links}


def _some(names: Set[str]) -> str:
    return listed(sorted(names), _NAMED)
