# SPDX-License-Identifier: Apache-2.0
"""Plans in the worker process, with a limit: a job that makes planning slow must not hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from controller.live.core import Core
from controller.live.plan_causes import SEARCH, rollback_to
from controller.model.plan import Plan
from controller.planner import PlanInput, first_plan, plan
from controller.planner.rollback import RollbackError, rolled_back
from controller.process.worker_calls import CallAbandonedError, stop_requested
from controller.process.worker_process import CALL_CPU_S, WorkerProcess

# Chosen, processor time: plans of 20,000 flows take half of it.
PLAN_CPU_S = 10.0
# Chosen: how much longer than the last plan a plan may take, so that a large cluster can grow.
GROWTH = 2.0
# Chosen: where jobs come all the time, they wait once in so long for the first result of a search, which
# takes seconds for a few dozen jobs; otherwise the search waits for a pause.
SEARCH_EVERY_NS = 300_000_000_000

# Chosen: how long no job has to come before a search begins. Jobs that come in a row would end each search
# before its first result, and searches take the processor from those who answer agents. Slots and levels for
# the first of them would also hold up bursts for a plan that lasts until the next one comes.
SETTLE_S = 0.3


@dataclass(slots=True)
class Rollback:
    """A plan of the history that shall come into force again. `version`: its new number, 0 until it has one;
    `refusal`: why it cannot, empty if it can."""

    plan: Plan
    version: int = 0
    refusal: str = ""


class Planning:
    """Makes plans. A plan may take PLAN_CPU_S, or GROWTH times the processor time of the last one.

    A first plan follows the arrival of a job at once, and the final plan follows it once no other job has
    come for SETTLE_S. A job that arrives while the final plan is made does not wait for it: the search ends
    with the best that it has, and the first plan with the new job starts from that. Where it has nothing yet,
    the final plan begins anew; once in SEARCH_EVERY_NS the job waits for the first result. Each change of the
    jobs so leads to at most two plans. With `stands_still`, fabric time stands still during a plan: then no
    job arrives meanwhile, and SETTLE_S is fabric time.
    """

    def __init__(self, worker: WorkerProcess, *, stands_still: bool = False) -> None:
        self._worker = worker
        self._stands_still = stands_still
        self._settled_ns = 0
        self._inputs: PlanInput | None = None
        self._searching_since_ns: int | None = None
        self._come: asyncio.Event | None = None
        self.unfinished = False
        """Whether the last plan was a first plan, so that the final one is wanted."""
        self._last_s = 0.0
        self._failure = asyncio.Event()
        self.rollback: Rollback | None = None
        """The plan of the history that comes into force next, instead of a new one."""

    def wanted(self, core: Core) -> bool:
        """Whether the core wants a plan, or the last one was a first plan and its final one is due."""
        return core.wants_plan or (self.unfinished and core.now_ns >= self._settled_ns)

    @property
    def next_timer_ns(self) -> int | None:
        """When the final plan is due, if the last one was a first plan and fabric time passes until then."""
        return self._settled_ns if self.unfinished and self._stands_still else None

    def look_at(self, core: Core) -> None:
        """Something may have failed: a plan that is being made does not hold up the answer to it."""
        if core.wants_tables:
            self._failure.set()
        making = self._inputs
        if making is None or not core.wants_plan:
            return
        planned = {job.name for job in making.jobs}
        come = any(job.name not in planned for job in core.unplannable.plannable(core.registry.jobs))
        since_ns = core.now_ns if self._searching_since_ns is None else self._searching_since_ns
        patient = core.now_ns - since_ns > SEARCH_EVERY_NS
        if not come:
            return
        if self._come is not None:
            self._come.set()
        elif not self._worker.abandon(making, patient=patient):
            return
        self._searching_since_ns = since_ns
        self._inputs = None

    async def plan(self, core: Core, answer: Callable[[], Awaitable[None]]) -> Plan | None:
        """The plan for the core's present state. `answer` is awaited when a link or switch fails or recovers
        meanwhile. None if one has failed, because the plan may lead over it, or if a job has come before the
        final plan was made: the core wants another plan.

        Raises:
            RunnerError: no plan could be made in time; the message says why.
        """
        inputs = core.plan_input()
        self._failure.clear()
        self.look_at(core)
        planning = asyncio.ensure_future(self._plan(core, inputs))
        try:
            while not planning.done():
                failure = asyncio.ensure_future(self._failure.wait())
                await asyncio.wait((planning, failure), return_when=asyncio.FIRST_COMPLETED)
                failure.cancel()
                if self._failure.is_set() and not planning.done():
                    self._failure.clear()
                    await answer()
            made, inputs = planning.result()
        except CallAbandonedError:
            return None
        finally:
            self._inputs = None
            planning.cancel()
        now = core.condition
        dead = now.down_links - inputs.down_links or now.down_switches - inputs.down_switches
        return None if dead else made

    async def _plan(self, core: Core, inputs: PlanInput) -> tuple[Plan, PlanInput]:
        """A plan, and the inputs that it was made for: those of now if a job came during the search."""
        rollback, self.rollback = self.rollback, None
        if rollback is not None:
            try:
                earlier = rolled_back(rollback.plan, inputs)
            except RollbackError as error:
                rollback.refusal = str(error)
            else:
                # Also after a first plan: a final one would replace it at once.
                self.unfinished, self._searching_since_ns = False, None
                core.causes.add(rollback_to(rollback.plan.version))
                core.causes.input_taken()
                rollback.version = earlier.version
                return earlier, inputs
        limit_s = min(max(PLAN_CPU_S, GROWTH * self._last_s), CALL_CPU_S)
        follows, self.unfinished = self.unfinished, self._comes_first(core, inputs)
        if self.unfinished:
            if self._stands_still:
                self._await_jobs(core.now_ns)
            return (await self._worker.run_timed(limit_s, first_plan, inputs))[0], inputs
        if follows:
            core.causes.add(SEARCH)
            core.causes.input_taken()
        searches = inputs.policy.joint_search and not self._stands_still
        if searches:
            self._inputs = inputs
            await self._settle(core, inputs)
        made, self._last_s = await self._worker.run_timed(limit_s, plan, inputs, stop=stop_requested)
        self._searching_since_ns = None
        if searches and self._inputs is None and core.wants_plan and self.rollback is None:
            # A job has come: its plan is the next one, so this one need not be published.
            unpublished = replace(made, version=inputs.previous.version if inputs.previous else 0)
            newer = replace(core.plan_input(), previous=unpublished)
            return await self._plan(core, newer)
        return made, inputs

    def _comes_first(self, core: Core, inputs: PlanInput) -> bool:
        """Whether the next plan is a first plan."""
        return gains_by_first_plan(inputs) and not (self._stands_still and self._overdue(core))

    def _await_jobs(self, now_ns: int) -> None:
        """The final plan is due once no job has come for SETTLE_S of fabric time."""
        self._settled_ns = now_ns + round(SETTLE_S * 1e9)
        if self._searching_since_ns is None:
            self._searching_since_ns = now_ns

    def _overdue(self, core: Core) -> bool:
        """Whether a search has waited for SEARCH_EVERY_NS."""
        since_ns = self._searching_since_ns
        return since_ns is not None and core.now_ns - since_ns > SEARCH_EVERY_NS

    async def _settle(self, core: Core, inputs: PlanInput) -> None:
        """Wait until no job has come for SETTLE_S, unless one waits for this plan, or a search has waited for
        SEARCH_EVERY_NS. Raises CallAbandonedError if one comes."""
        if self._overdue(core) or new_jobs(inputs):
            return
        self._come = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await self._come.wait()
            if self._come.is_set():
                raise CallAbandonedError
        finally:
            self._come = None


def new_jobs(inputs: PlanInput) -> bool:
    """Whether a job has no plan yet."""
    planned = inputs.previous.jobs if inputs.previous is not None else {}
    return any(job.name not in planned for job in inputs.jobs)


def gains_by_first_plan(inputs: PlanInput) -> bool:
    """Whether a first plan is worth its publication: a job is new, and the final plan may need a search, as
    one job alone does not."""
    some = len(inputs.jobs) > 1 and inputs.policy.joint_search
    return some and new_jobs(inputs)
