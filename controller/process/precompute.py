# SPDX-License-Identifier: Apache-2.0
"""Results that a worker process computes ahead of time while it is idle.

These are the answers to single failures, and the paths for the next predicted change of the sending jobs
(lookahead). A result that is missing when it is needed is computed then, with the same content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from controller.kernel import load_compiler
from controller.live.core import Core
from controller.live.failover import FailoverAnswer, PreparedFailovers, answers, prepare, writes
from controller.model.plan import Plan
from controller.planner import PlanInput, first_plan, plan
from controller.process.planning import SETTLE_S
from controller.process.worker_calls import stop_requested
from controller.process.worker_process import ATTEMPTS, CALL_CPU_S, WorkerProcess
from controller.process.workers import WorkerProcesses
from controller.routing.failover import Event
from controller.southbound.fleet import RunnerError

log = logging.getLogger(__name__)

# How many failures are computed in one call. Chosen: a plan that is wanted meanwhile waits for one call at
# most, some milliseconds on a fabric of 96 switches.
STEP = 8
# The most processor time of a call that prepares the table writes for one failure. Chosen: a plan that is
# wanted meanwhile waits as long. Where a call takes longer, no further writes are prepared.
MAX_WRITES_CPU_S = 0.05

SLOW_WRITES = (
    "table writes are not prepared for failures: on this fabric those for one failure take %.0f ms; they are "
    "computed when a failure happens"
)

Watched = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
T = TypeVar("T")
Asked = TypeVar("Asked")


class Precomputation:
    """Computes results ahead of time. `with_writes`: prepare table writes too, where host time counts."""

    def __init__(self, workers: WorkerProcesses, *, with_writes: bool) -> None:
        self._worker = workers.plans
        # A failure that has happened waits for no plan.
        self._urgent = workers.tables
        self._with_writes = with_writes
        self._settle_s = SETTLE_S if with_writes else 0.0
        self._first_writes = True
        self._workers = workers
        self._kernels_wanted = with_writes
        self._loading: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lookahead_plan: tuple[PlanInput, Plan] | None = None

    def begin(self, core: Core, watched: Watched) -> None:
        """Start to compute results for the core's present state.

        Drop what is being computed for an older one.
        """
        self.cancel()
        failovers, active = core.failovers, core.next_senders
        planned = failovers.inputs
        if self._kernels_wanted and planned is not None and planned.jobs:
            self._kernels_wanted = False
            self._loading = watched(self._load(planned))
        inputs = core.lookahead_input(active) if active is not None else None
        self._task = watched(self._work(failovers, inputs))

    def cancel(self) -> None:
        """Stop computing what the next state may need anew."""
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Stop computing."""
        self.cancel()
        if self._loading is not None:
            self._loading.cancel()

    async def answer(self, failovers: PreparedFailovers, event: Event) -> tuple[FailoverAnswer | None, bool]:
        """The answer to a failure, and whether it was ready. The answer is None before the first plan."""
        ready = failovers.answer(event)
        if ready is not None or failovers.inputs is None or failovers.plan is None:
            return ready, True
        try:
            found, _ = await _searched(self._urgent, failovers, answers, (event,))
        except RunnerError as error:
            log.error("no answer to the failure: %s; the next plan moves its flows", error)
            return None, False
        return found[0], False

    async def paths(self, inputs: PlanInput) -> tuple[Plan, bool]:
        """The plan for `inputs`, and whether it was ready."""
        if self._lookahead_plan is not None and self._lookahead_plan[0] == inputs:
            return self._lookahead_plan[1], True
        return await self._worker.run(plan, inputs), False

    async def _load(self, planned: PlanInput) -> None:
        """Make ready what plans for several jobs need."""
        try:
            await self._workers.compile_kernels()
            if planned.policy.joint_search:
                await self._worker.run(load_for_search, planned)
        except RunnerError as error:
            log.error("plans do without compiled kernels: %s", error)

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
        # While jobs come in a row, each plan makes what was prepared for the one before useless.
        await asyncio.sleep(self._settle_s)
        while failovers.missing:
            chosen = tuple(failovers.missing[:STEP])
            found, _ = await _searched(self._worker, failovers, answers, chosen)
            failovers.put(found)
            del failovers.missing[: len(chosen)]
        while self._with_writes and failovers.unwritten:
            event = failovers.unwritten[0]
            written, cpu_s = await _searched(self._worker, failovers, writes, event)
            del failovers.unwritten[0]
            # The first call also builds the tables before the failure.
            if cpu_s > MAX_WRITES_CPU_S and not self._first_writes:
                self._with_writes = False
                log.info(SLOW_WRITES, 1e3 * cpu_s)
            self._first_writes = False
            if not failovers.put_writes(event, written):
                break


def load_for_search(inputs: PlanInput) -> None:
    """Runs in the worker, after the first plan: what plans for several jobs load at their first use, for
    which the jobs would wait."""
    # A call that asks is not ended halfway: the next job would wait as long for the rest.
    stop_requested()
    load_compiler()
    first_plan(inputs)


async def _searched(
    worker: WorkerProcess,
    failovers: PreparedFailovers,
    function: Callable[[int, Asked], T | None],
    asked: Asked,
) -> tuple[T, float]:
    """What a function of `controller.live.failover` finds in the worker, and its processor time in s.

    The worker gets what it needs for that once, and again if it had to be replaced. Raises RunnerError.
    """
    number, inputs, plan = failovers.number, failovers.inputs, failovers.plan
    if inputs is not None and plan is not None:
        for _ in range(ATTEMPTS):
            found, cpu_s = await worker.run_timed(CALL_CPU_S, function, number, asked)
            if found is not None:
                return found, cpu_s
            await worker.run(prepare, number, inputs, plan, failovers.condition)
    raise RunnerError(f"{function.__name__}: the worker has lost what was prepared, again and again")
