# SPDX-License-Identifier: Apache-2.0
"""Results that the worker process computes ahead of time while it is idle.

These are the answers to single failures, and the paths for the next predicted change of the sending jobs
(lookahead). A result that is missing when it is needed is computed then, with the same content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from controller.live.core import Core
from controller.live.failover import FailoverAnswer, PreparedFailovers, pack, prepare, prepare_packed
from controller.model.plan import Plan
from controller.planner import PlanInput, plan
from controller.process.worker_process import WorkerProcess
from controller.routing.failover import Event
from controller.southbound.fleet import RunnerError

log = logging.getLogger(__name__)

# How many failures are computed in one call where no table writes are needed. Chosen: a plan that is wanted
# meanwhile waits for one call at most.
STEP = 8

Watched = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Precomputation:
    """Computes results ahead of time. `with_writes`: prepare table writes too, where host time counts."""

    def __init__(self, worker: WorkerProcess, *, with_writes: bool) -> None:
        self._worker = worker
        self._with_writes = with_writes
        self._task: asyncio.Task[None] | None = None
        self._lookahead_plan: tuple[PlanInput, Plan] | None = None

    def begin(self, core: Core, watched: Watched) -> None:
        """Start to compute results for the core's present state.

        Drop what is being computed for an older one.
        """
        self.cancel()
        failovers, active = core.failovers, core.next_senders
        inputs = core.lookahead_input(active) if active is not None else None
        self._task = watched(self._work(failovers, inputs))

    def cancel(self) -> None:
        """Stop computing."""
        if self._task is not None:
            self._task.cancel()

    async def answer(self, failovers: PreparedFailovers, event: Event) -> tuple[FailoverAnswer | None, bool]:
        """The answer to a failure, and whether it was ready. The answer is None before the first plan."""
        ready = failovers.answer(event)
        if ready is not None or failovers.inputs is None or failovers.plan is None:
            return ready, True
        work = (failovers.inputs, failovers.plan, failovers.condition, (event,), False)
        try:
            (answer,) = await self._worker.run(prepare, *work)
        except RunnerError as error:
            log.error("no answer to the failure: %s; the next plan moves its flows", error)
            return None, False
        return answer, False

    async def paths(self, inputs: PlanInput) -> tuple[Plan, bool]:
        """The plan for `inputs`, and whether it was ready."""
        if self._lookahead_plan is not None and self._lookahead_plan[0] == inputs:
            return self._lookahead_plan[1], True
        return await self._worker.run(plan, inputs), False

    async def _work(self, failovers: PreparedFailovers, lookahead: PlanInput | None) -> None:
        try:
            await self._compute(failovers, lookahead)
        except RunnerError as error:
            log.error("not prepared: %s; the rest is computed when it is needed", error)

    async def _compute(self, failovers: PreparedFailovers, lookahead: PlanInput | None) -> None:
        if lookahead is not None and lookahead.jobs:
            self._lookahead_plan = lookahead, await self._worker.run(plan, lookahead)
        if failovers.inputs is None or failovers.plan is None:
            return
        step = 1 if self._with_writes else STEP
        state = await self._worker.run_in_thread(pack, failovers.inputs, failovers.plan, failovers.condition)
        while failovers.missing:
            chosen = tuple(failovers.missing[:step])
            failovers.put(await self._worker.run(prepare_packed, state, chosen, self._with_writes))
            del failovers.missing[:step]
