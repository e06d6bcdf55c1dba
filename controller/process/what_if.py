# SPDX-License-Identifier: Apache-2.0
"""The present jobs under other policies: a running controller asks the simulator, in a process of its own.

The simulator stands above the controller, so the caller hands its function in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.live.core import Core
from controller.live.recorder import Recorder
from controller.model.job import Job
from controller.northbound.problems import OperationError
from controller.northbound.render import NAMED
from controller.northbound.what_if_routes import (
    MOST_POLICIES,
    PolicyOutcomeOut,
    SimulatedJobOut,
    WhatIfOut,
    WorstOut,
)
from controller.planner import Policy, PolicyError
from controller.planner.registry import registered, registered_policy
from controller.process.worker_process import WorkerProcess
from controller.southbound.fleet import RunnerError
from polyrhythm_files import listed
from topo.graph import Topology

HORIZON_NS = 60_000_000_000
"""Simulated time. Chosen: a minute, or ten iterations of the slowest job."""
LEAST_ITERATIONS = 10
# Chosen: processor time for one policy, and for all of a question.
POLICY_CPU_S = 30.0
QUESTION_CPU_S = 90.0
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class PresentFabric:
    """What is simulated. Job i begins an iteration `offsets_ns[i]` after the start. `down_links` are names of
    cables (`Topology.cables`)."""

    topology: Topology
    jobs: tuple[Job, ...]
    offsets_ns: tuple[int, ...]
    down_links: frozenset[tuple[str, str]]
    down_switches: frozenset[str]
    seed: int
    elephant_bytes: int
    horizon_ns: int


@dataclass(frozen=True, slots=True)
class SimulatedUnder:
    """The figures under one policy. `jobs`: name, mean, 99th percentile and uncontended iteration in ms."""

    gpu_utilisation: float | None
    jobs: tuple[tuple[str, float | None, float | None, float | None], ...]


Simulate = Callable[[PresentFabric, Policy], SimulatedUnder]
"""The simulator: a function of a module, which a worker process can import. Raises ValueError."""


class RunningWhatIf:
    """The `WhatIfOperations` of a running controller. Use it on the controller's event loop.

    `new_worker` makes a process for one question.
    """

    def __init__(
        self, core: Core, recorder: Recorder, simulate: Simulate, new_worker: Callable[[], WorkerProcess]
    ) -> None:
        self._core = core
        self._recorder = recorder
        self._simulate = simulate
        self._new_worker = new_worker
        self._busy = False

    async def compare(self, policies: Sequence[str] | None) -> WhatIfOut:
        """The present jobs under each policy. Raises OperationError."""
        if self._busy:
            raise OperationError(503, "another such question is being answered: try again in some seconds")
        self._busy = True
        try:
            return await self._compare(policies)
        finally:
            self._busy = False

    async def _compare(self, policies: Sequence[str] | None) -> WhatIfOut:
        core = self._core
        time_ns, present = core.now_ns, self._present()
        simulated = {job.name for job in present.jobs}
        left_out = tuple(job.name for job in core.registry.jobs if job.name not in simulated)
        # Importing policies takes a while.
        found = await asyncio.to_thread(_policies, policies, core.settings.policy)
        left_s, results = QUESTION_CPU_S, list[PolicyOutcomeOut]()
        worker = self._new_worker()
        try:
            for policy in found:
                try:
                    if left_s <= 0:
                        raise RunnerError(f"the policies before it took {QUESTION_CPU_S:g} s")
                    limit_s = min(left_s, POLICY_CPU_S)
                    outcome, took_s = await worker.run_timed(limit_s, self._simulate, present, policy)
                    left_s -= took_s
                    results.append(_result(policy.name, outcome, present.horizon_ns))
                except RunnerError as error:
                    left_s -= POLICY_CPU_S if "took longer" in str(error) else 0
                    results.append(_failed(policy.name, str(error)))
        finally:
            worker.close()
        horizon_ms = present.horizon_ns / _NS_PER_MS
        return WhatIfOut(time_ns=time_ns, horizon_ms=horizon_ms, left_out=left_out, results=tuple(results))

    def _present(self) -> PresentFabric:
        core = self._core
        jobs = tuple(job for job in core.registry.jobs if job.profile.phases and job.flows)
        if not jobs:
            raise OperationError(409, "no present job has a profile yet, so there is nothing to simulate")
        longest_ns = max(job.profile.period_ns for job in jobs)
        return PresentFabric(
            core.topology,
            jobs,
            tuple(self._offset_ns(job) for job in jobs),
            core.condition.down_links,
            core.condition.down_switches,
            core.settings.seed,
            core.settings.elephant_bytes,
            max(HORIZON_NS, LEAST_ITERATIONS * longest_ns),
        )

    def _offset_ns(self, job: Job) -> int:
        """When the next iteration of a job begins, if it goes on at the period of its profile."""
        ended = self._recorder.iterations().get(job.name, ())
        return (ended[-1].end_ns - self._core.now_ns) % job.profile.period_ns if ended else 0


def _policies(names: Sequence[str] | None, running: Policy) -> list[Policy]:
    """The policies to try; the running one with its present options. Raises OperationError."""

    def find(name: str) -> Policy:
        return running if name == running.name else registered_policy(name)

    if names is not None:
        try:
            return [find(name) for name in dict.fromkeys(names)]
        except PolicyError as error:
            raise OperationError(409, str(error)) from None
    found = []
    for name in registered():
        try:
            policy = find(name)
        except PolicyError:
            continue
        if not policy.simulator_only:
            found.append(policy)
    return found[:MOST_POLICIES]


def _result(policy: str, outcome: SimulatedUnder, horizon_ns: int) -> PolicyOutcomeOut:
    jobs = tuple(
        SimulatedJobOut(job=job, mean_ms=mean, p99_ms=p99, alone_ms=alone)
        for job, mean, p99, alone in outcome.jobs
    )
    means = [job.mean_ms for job in jobs if job.mean_ms is not None]
    ratios = [
        (job.mean_ms / job.alone_ms, job.job) for job in jobs if job.mean_ms is not None and job.alone_ms
    ]
    # A job that ends no iteration is worse off than any other.
    stalled = sorted(job.job for job in jobs if job.mean_ms is None)
    worst = WorstOut(job=max(ratios)[1], ratio=max(ratios)[0]) if ratios else None
    return PolicyOutcomeOut(
        policy=policy,
        fault=None,
        note=_stalled(stalled, horizon_ns) if stalled else None,
        gpu_utilisation=outcome.gpu_utilisation,
        mean_iteration_ms=sum(means) / len(means) if means else None,
        jobs=jobs,
        worst=WorstOut(job=stalled[0], ratio=None) if stalled else worst,
    )


def _failed(policy: str, fault: str) -> PolicyOutcomeOut:
    return PolicyOutcomeOut(
        policy=policy,
        fault=fault,
        note=None,
        gpu_utilisation=None,
        mean_iteration_ms=None,
        jobs=(),
        worst=None,
    )


def _stalled(jobs: Sequence[str], horizon_ns: int) -> str:
    """The sentence about jobs of which no iteration ended."""
    return (
        f"no iteration of {listed(jobs, NAMED)} ended in {horizon_ns / 1e9:g} s: "
        "all paths of a flow are down or drained, or an iteration takes longer"
    )
