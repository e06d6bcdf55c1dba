# SPDX-License-Identifier: Apache-2.0
"""The worker process: one, spawned (never forked, for gRPC is loaded), replaced when it dies."""

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
    """Runs pure functions in the worker process, one at a time, in the order they are asked for.

    `yields`: where cores are few, a plan delays no answer. The embedded fabric stands still for a plan.
    """

    def __init__(
        self,
        topology: Topology,
        ecn: EcnProfile,
        artefacts: Path,
        strays: str = STRAY_ACTIONS[0],
        *,
        yields: bool = True,
    ) -> None:
        self._start = (yields, topology, ecn, artefacts, strays)
        self._pool = self._new_pool()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="beside")

    async def warm_up(self) -> None:
        """Have the process started, its imports done, and the P4 program tried on one switch.

        Raises:
            PipelineError: the program lacks something that the controller writes.
        """
        first = {s.name: None for s in self._start[1].switches[:1]}
        await self.run(table_writes.changes, first, table_writes.DesiredState())

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`; a worker that died is replaced, and the call made again once."""
        pool = self._pool
        try:
            return await asyncio.wrap_future(pool.submit(function, *args, **kwargs))
        except BrokenProcessPool:
            # Whoever else was waiting for the dead one may have replaced it already.
            if self._pool is pool:
                log.error("the worker process died; a new one takes its place")
                pool.shutdown(wait=False)
                self._pool = self._new_pool()
            return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    async def aside(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function(*args)`, worked out in a thread beside the loop."""
        return await asyncio.wrap_future(self._beside.submit(function, *args, **kwargs))

    def close(self) -> None:
        """End the process; what it has not begun is dropped."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._beside.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=self._start
        )


def _start_worker(yields: bool, *arguments: Any) -> None:
    if yields:
        lower_priority()
    table_writes.start(*arguments)
    # Its imports stay: there is no use in looking at them in every full collection.
    gc.freeze()
