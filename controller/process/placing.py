# SPDX-License-Identifier: Apache-2.0
"""Ranks candidate placements on a running controller, in processes of its own, so that no plan waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from controller.live.core import Core
from controller.live.job_registry import JoinError
from controller.model.job import Job
from controller.northbound.problems import OperationError
from controller.planner import PlanInput
from controller.planner.placement import RankedPlacement, judge, ranked
from controller.process.plan_operations import jobs_from, registry_of
from controller.process.worker_process import WorkerProcess
from controller.southbound.fleet import RunnerError
from controller.wire.job_name import job_name_fault

# Chosen: a process takes two seconds to start, as long as this many candidates take on a large fabric.
CANDIDATES_A_PROCESS = 4
# Chosen: bounds the memory of a question, some 150 MB a process.
MAX_PROCESSES = 4
MOST_GPUS = 1_000_000
"""As for a job that is declared over REST."""


class RunningPlacements:
    """The `PlacementOperations` of a running controller, one question at a time.

    `new_worker` makes a worker process.
    """

    def __init__(self, core: Core, new_worker: Callable[[], WorkerProcess]) -> None:
        self._core = core
        self._new_worker = new_worker
        self._turn = asyncio.Lock()

    async def rank(self, candidates: list[dict[str, Any]], loops: bool) -> Sequence[RankedPlacement]:
        """The candidates, the most compatible first. Raises OperationError.

        A job that is present already is judged as if it had left.
        """
        inputs = self._core.input_now()
        try:
            jobs = jobs_from(candidates, "candidates")
            for number, job in enumerate(jobs):
                _check(job, f"candidates[{number}]")
            if len({job.name for job in jobs}) > 1:
                names = sorted({job.name for job in jobs})
                raise OperationError(409, f"the candidates name the jobs {', '.join(names)}; legal: one job")
            for job in jobs:
                registry_of(self._core.topology, (job,))
        except JoinError as error:
            raise OperationError(409, str(error)) from None
        inputs = replace(inputs, jobs=tuple(j for j in inputs.jobs if j.name != jobs[0].name))
        async with self._turn:
            return ranked(await self._judged(inputs, jobs), loops=loops)

    async def _judged(self, inputs: PlanInput, jobs: Sequence[Job]) -> list[RankedPlacement]:
        count = min(MAX_PROCESSES, os.cpu_count() or 1, -(-len(jobs) // CANDIDATES_A_PROCESS))
        workers = [self._new_worker() for _ in range(count)]
        numbered = iter(enumerate(jobs))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_work(worker, inputs, numbered)) for worker in workers]
        except* RunnerError as errors:
            raise OperationError(409, f"not ranked: {errors.exceptions[0]}") from None
        finally:
            for worker in workers:
                worker.close()
        return [placement for task in tasks for placement in task.result()]


def _check(job: Job, where: str) -> None:
    """Raises JoinError for a job that no scheduler can place; the phases are checked later.

    The controller does not know how many GPUs a host has, so it refuses no job that is too large.
    """
    if wrong := job_name_fault(job.name, ()):
        raise JoinError(f"{where}.name: {wrong}")
    if not 1 <= job.gpus <= MOST_GPUS:
        raise JoinError(f"{where}.gpus: {job.gpus:.9g}; legal: 1 to {MOST_GPUS:,}")
    if not job.hosts or len(set(job.hosts)) < len(job.hosts):
        said = ", ".join(job.hosts)
        raise JoinError(f"{where}.hosts: {said!r:.100}; legal: a host or more, each once")
    if not 0 <= job.flops_per_iteration < inf:
        raise JoinError(f"{where}.flops_per_iteration: {job.flops_per_iteration:g}; legal: a number from 0")
    if job.profile.period_ns < 0:
        raise JoinError(f"{where}.profile.period_ns: {job.profile.period_ns}; legal: a whole number from 0")


async def _work(
    worker: WorkerProcess, inputs: PlanInput, numbered: Iterator[tuple[int, Job]]
) -> list[RankedPlacement]:
    """Judge candidates until none is left. The workers take them from one iterator."""
    return [await worker.run(judge, inputs, index, job) for index, job in numbered]
