# SPDX-License-Identifier: Apache-2.0
"""The worker process, which computes plans and table writes beside the controller's loop.

There is one. It is spawned, never forked, because gRPC does not survive a fork; it is replaced when it dies.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from controller.process.latency import lower_priority
from controller.southbound import table_writes
from controller.southbound.desired import STRAY_ACTIONS, EcnProfile
from topo.graph import Topology

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class WorkerProcess:
    """Runs pure functions in the worker process, one at a time, in the order of the calls.

    `low_priority`: the worker gets only processor time that the controller leaves, so that on a machine with
    few cores a plan delays no answer to an agent. The embedded fabric stands still during a plan and needs
    no such priority.
    """

    def __init__(
        self,
        topology: Topology,
        ecn: EcnProfile,
        artefacts: Path,
        strays: str = STRAY_ACTIONS[0],
        *,
        low_priority: bool = True,
    ) -> None:
        self._start = (low_priority, topology, ecn, artefacts, strays)
        self._pool = self._new_pool()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="serialise")

    async def warm_up(self) -> None:
        """Start the process, load its imports, and encode the tables of one switch as a check.

        Raises:
            PipelineError: the P4 program lacks a table, action or field that the controller writes.
        """
        first = {s.name: None for s in self._start[1].switches[:1]}
        await self.run(table_writes.writes_to, first, table_writes.DesiredState())

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`. If the worker dies, it is replaced and the call repeated once."""
        pool = self._pool
        try:
            return await asyncio.wrap_future(pool.submit(function, *args, **kwargs))
        except BrokenProcessPool:
            # Another caller that waited for the same process may have replaced it already.
            if self._pool is pool:
                log.error("the worker process died; a new one takes its place and repeats the call")
                pool.shutdown(wait=False)
                self._pool = self._new_pool()
            return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    async def run_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`, computed in a thread of this process."""
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def close(self) -> None:
        """End the process; calls that it has not begun are dropped."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=self._start
        )


def _start_worker(low_priority: bool, *arguments: Any) -> None:
    if low_priority:
        lower_priority()
    table_writes.start_worker(*arguments)
    # The imported modules stay for good, so the garbage collector need not visit them.
    gc.freeze()
