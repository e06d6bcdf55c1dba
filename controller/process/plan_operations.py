# SPDX-License-Identifier: Apache-2.0
"""The operations with plans that the REST API offers, on a running controller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from controller.live.assignments import Assignments
from controller.live.core import Core
from controller.live.job_registry import JobRegistry, JoinError
from controller.live.messages import Effect, SendAssignment, SendSchedule
from controller.live.plan_reasons import PlanReasons
from controller.model.job import Job
from controller.model.plan import Plan
from controller.northbound.plan_routes import PastPlanOut
from controller.northbound.policy_routes import OptionValue
from controller.northbound.problems import OperationError
from controller.planner import plan
from controller.planner.rollback import RollbackError, rolled_back
from controller.process.planning import Planning, Rollback
from controller.process.policy_choice import policy_with
from controller.process.worker_process import WorkerProcess
from controller.southbound.fleet import RunnerError
from controller.southbound.table_writes import DesiredState, entry_changes
from controller.store.interface import StateStore, StoreError
from controller.store.stored_plans import plan_of
from topo.graph import Topology

# Chosen, host time: how long the caller of a rollback waits for the plan to come into force.
IN_FORCE_S = 20.0
# Chosen, host time: how often that is looked at.
_LOOK_S = 0.02


class RunningPlans:
    """The `PlanOperations` of a running controller. Use it on the controller's event loop."""

    def __init__(
        self,
        core: Core,
        planning: Planning,
        worker: WorkerProcess,
        store: StateStore | None,
        reasons: PlanReasons,
    ) -> None:
        self._core = core
        self._planning = planning
        self._worker = worker
        self._store = store
        self._reasons = reasons

    async def history(self, most: int, before: int | None) -> tuple[PastPlanOut, ...]:
        """The last plans, below a version if one is given, the newest first. Raises OperationError."""
        try:
            found = await asyncio.to_thread(self._stored().plans, most, before)
        except StoreError as error:
            raise OperationError(503, str(error)) from None
        now = self._core.plan
        in_force = now.version if now is not None else 0
        return tuple(
            PastPlanOut(
                version=p.version,
                time_ns=p.time_ns,
                policy=p.policy,
                in_force=p.version == in_force,
                reason=self._reasons.of(p.version)[1],
            )
            for p in found
        )

    async def plan(self, version: int) -> Plan:
        """A plan of the history. Raises OperationError."""
        try:
            found = await asyncio.to_thread(self._stored().plan, version)
            if found is None:
                raise OperationError(404, f"the history has no plan {version}")
            return plan_of(found)
        except StoreError as error:
            raise OperationError(503, str(error)) from None

    def in_force(self) -> Plan:
        """The plan in force. Raises OperationError."""
        plan = self._core.plan
        if plan is None:
            raise OperationError(404, "no plan yet: the first one is made when the first job arrives")
        return plan

    async def roll_back(self, version: int) -> int:
        """Bring a plan of the history into force again; returns its new number. Raises OperationError."""
        core, planning, earlier = self._core, self._planning, await self.plan(version)
        try:
            rolled_back(earlier, core.input_now())
        except RollbackError as error:
            raise OperationError(409, str(error)) from None
        if planning.rollback is not None:
            raise OperationError(409, "another rollback is under way: ask again when it is done")
        # The control loop makes each plan, also this one, so that no two come into force at once.
        rollback = planning.rollback = Rollback(earlier)
        core.wants_plan = True
        try:
            async with asyncio.timeout(IN_FORCE_S):
                while not rollback.refusal and not self._in_force(rollback.version):
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            if planning.rollback is rollback:
                planning.rollback = None
            raise OperationError(503, f"plan {version} is not in force after {IN_FORCE_S:g} s") from None
        if rollback.refusal:
            raise OperationError(409, rollback.refusal)
        return rollback.version

    def _in_force(self, version: int) -> bool:
        """Whether a plan is, or was, in force; 0 is no plan."""
        now = self._core.plan
        return version > 0 and now is not None and now.version >= version

    async def dry_run(
        self, policy: str, options: Mapping[str, OptionValue], jobs: list[dict[str, Any]] | None
    ) -> tuple[Plan, dict[str, tuple[str, ...]], tuple[str, ...]]:
        """What a plan would change. Raises OperationError."""
        core = self._core
        inputs, registry = core.input_now(), core.registry
        try:
            if policy:
                inputs = replace(inputs, policy=policy_with(policy, options))
            elif options:
                raise OperationError(409, "options without a policy; legal: with a policy")
            if jobs is not None:
                registry = registry_of(core.topology, jobs_from(jobs, "jobs"))
                inputs = replace(inputs, jobs=registry.jobs, queue_pairs={}, mistrusted=frozenset())
        except JoinError as error:
            raise OperationError(409, str(error)) from None
        try:
            made = await self._worker.run(plan, inputs)
            wanted = DesiredState.of(core.condition, made)
            changes = await self._worker.run(entry_changes, core.desired, wanted)
        except RunnerError as error:
            raise OperationError(409, f"no plan can be made: {error}") from None
        told = (core.assignments if jobs is None else _all_asked(registry)).preview(made, registry)
        return made, dict(changes), tuple(_words(effect) for effect in told)

    def _stored(self) -> StateStore:
        if self._store is None:
            raise OperationError(503, "this controller has no store: start it with --state FILE")
        return self._store


def registry_of(topology: Topology, jobs: Sequence[Job]) -> JobRegistry:
    """The jobs as if all their workers had joined. Raises JoinError."""
    registry = JobRegistry(topology)
    for job in jobs:
        # Agents' text is checked on its way in. Text of a request may hold half of a surrogate pair, which no
        # answer can say.
        texts = (job.name, job.model, *(flow.name for flow in job.flows))
        if wrong := next((text for text in texts if not text.isprintable()), None):
            raise JoinError(
                f"{wrong!r:.100} is wrong for the name of a job, model or flow; legal: printable text"
            )
        for rank, host in enumerate(job.hosts):
            registry.join(host, rank, job)
    return registry


def _all_asked(registry: JobRegistry) -> Assignments:
    """Assignments as if agents had asked for every flow, and nothing had been told yet."""
    asked = Assignments()
    for job in registry.jobs:
        for flow in job.flows:
            tuple(asked.flow_asked(flow.src, flow.name, registry))
    return asked


def _words(effect: Effect) -> str:
    """A message to an agent in words."""
    match effect:
        case SendAssignment(host, flow, port, dscp, cap):
            way = f"source port {port}" if port else "ECMP"
            limit = f", at most {cap} bit/s" if cap else ""
            return f"host {host}: flow {flow}: {way}, DSCP {dscp}{limit}"
        case SendSchedule():
            period = f"{effect.period_ns / 1e6:g} ms"
            slot = f"shift {effect.shift_ns / 1e6:g} ms of {period}" if effect.period_ns else "no slots"
            return f"host {effect.host}: job {effect.job}: {slot}, sender {effect.sender}"
    return str(effect)


def jobs_from(values: list[dict[str, Any]], where: str) -> tuple[Job, ...]:
    """Jobs of a request's body. Raises JoinError, which names the place, for what is no job and for unknown
    keys.
    """
    try:
        jobs = msgspec.convert(values, tuple[Job, ...])
    except msgspec.ValidationError as error:
        raise JoinError(f"{where}: {error}") from None
    if fault := _unknown_key(values, msgspec.to_builtins(jobs), where):
        raise JoinError(fault)
    return jobs


def _unknown_key(given: Any, known: Any, where: str) -> str:
    """The first key of `given` that its converted value `known` does not have, with its place and the legal
    keys; empty: there is none.
    """
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                return f"{where}: unknown key {key!r:.100}; legal: {', '.join(known)}"
            if fault := _unknown_key(value, known[key], f"{where}.{key}"):
                return fault
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for number, (one, other) in enumerate(zip(given, known, strict=True)):
            if fault := _unknown_key(one, other, f"{where}[{number}]"):
                return fault
    return ""
