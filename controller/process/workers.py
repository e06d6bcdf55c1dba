# SPDX-License-Identifier: Apache-2.0
"""The processes beside the controller's loop: one makes plans, one computes table writes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from controller.kernel import leave_out
from controller.planner.rehearsal import compile_kernels, kernels_are_cold
from controller.process.config import FabricDescription
from controller.process.latency import NICENESS, NICENESS_OF_WRITES
from controller.process.worker_process import WorkerProcess

log = logging.getLogger(__name__)


class WorkerProcesses:
    """`plans` makes plans, and prepares answers to failures. `tables` computes table writes and differences,
    and answers that are not prepared, so these wait neither for a plan nor for a planner that has to start
    again. The embedded fabric stands still meanwhile: there one process does both.
    """

    def __init__(self, fabric: FabricDescription, artefacts: Path) -> None:
        self._fabric = fabric
        self._artefacts = artefacts
        self.plans = self.another()
        embedded = fabric.clock == "embedded"
        self.tables = self.plans if embedded else self.another(NICENESS_OF_WRITES)
        self._kernels_left_out = False

    def another(self, niceness: int = NICENESS) -> WorkerProcess:
        """One more process, which the caller closes."""
        fabric = self._fabric
        return WorkerProcess(
            fabric.topology,
            fabric.ecn,
            self._artefacts,
            fabric.guard,
            host_clock=fabric.clock != "embedded",
            niceness=niceness,
        )

    def aside(self) -> WorkerProcess:
        """A process that the caller closes, for what no plan waits for: on any clock it gets only the
        processor time that is left, and its calls keep to their limits.
        """
        fabric = self._fabric
        return WorkerProcess(fabric.topology, fabric.ecn, self._artefacts, fabric.guard)

    async def warm_up(self) -> None:
        """Start the processes. Raises PipelineError as `WorkerProcess.warm_up` does.

        Where kernels would have to be compiled first, `plans` leaves them out until `compile_kernels`.
        """
        if self.tables is self.plans:
            await self.plans.warm_up()
            return
        await asyncio.gather(self.plans.warm_up(), self.tables.warm_up())
        cold = kernels_are_cold()
        if cold != self._kernels_left_out:
            await self.plans.run(leave_out, cold)
        self._kernels_left_out = cold

    async def compile_kernels(self) -> None:
        """Compile the kernels, if `plans` leaves them out, in a process of its own; then it uses them.

        This is done once on a machine for each version: it takes half a minute of processor time, for which
        jobs would have to wait. Raises RunnerError.
        """
        if not self._kernels_left_out:
            return
        log.info("kernels are compiled, once for this version; until then plans use the plain loops")
        worker = self.aside()
        try:
            await worker.run(compile_kernels)
        finally:
            worker.close()
        self._kernels_left_out = False
        await self.plans.run(leave_out, False)
        log.info("the kernels are compiled; plans use them from now on")

    def close(self) -> None:
        """End the processes."""
        self.plans.close()
        if self.tables is not self.plans:
            self.tables.close()
