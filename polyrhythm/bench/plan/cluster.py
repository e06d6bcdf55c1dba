# SPDX-License-Identifier: Apache-2.0
"""Plans for whole clusters: `first_ms`, `change_ms`, `full_ms`, `many_*`, `huge_*` and `publish_ms`.

The planner's process of a live controller makes the plans, by the functions that the controller calls there.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from controller.model import Plan
from controller.planner import POLICIES, PlanInput, first_plan, plan
from controller.process.worker_process import WorkerProcess
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from polyrhythm.bench.plan.clusters import cluster, rails, ring_job, ring_jobs
from topo.graph import Topology

_ECN = EcnProfile(5, 50, 0.1)
LIMIT_S = 600.0
"""The most processor time of a call. Chosen: far above any bound, so that a slow plan is a figure too."""


def measure(seed: int, runs: int) -> dict[str, Any]:
    """All figures by name; a plan is made once before it is measured, so that kernels are warm."""
    return {
        **asyncio.run(_cluster(seed, runs)),
        **asyncio.run(_many(seed, runs)),
        **asyncio.run(_huge(seed, runs)),
    }


@dataclass
class Planner:
    """The planner's process. `publish_s` holds the time that each call spent outside the function."""

    topology: Topology
    publish_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.worker = WorkerProcess(self.topology, _ECN, artefacts_dir())

    async def made(self, function: Callable[[PlanInput], Plan], x: PlanInput) -> tuple[Plan, float]:
        """The plan and the processor time of the function in ms."""
        began = time.perf_counter()
        result, cpu_s = await self.worker.run_timed(LIMIT_S, function, x)
        self.publish_s.append(time.perf_counter() - began - cpu_s)
        return result, 1e3 * cpu_s

    async def median_ms(
        self, function: Callable[[PlanInput], Plan], given: Callable[[], PlanInput], runs: int
    ) -> float:
        """The median processor time in ms after one run that does not count. Each run gets inputs of its own,
        so that a job which is new for the planner is new in each run."""
        await self.made(function, given())
        return round(statistics.median([(await self.made(function, given()))[1] for _ in range(runs)]), 2)


def inputs(topology: Topology, jobs: int, flows: int, seed: int, most_ms: int = 2_000) -> PlanInput:
    """Ring jobs under the default policy; iterations of 0.2 s to `most_ms`."""
    made = ring_jobs(topology, jobs, flows, seed, (200, most_ms))
    return PlanInput(topology, made, POLICIES["polyrhythm"], 0, seed=seed)


def changed(x: PlanInput, before: Plan, seed: int) -> PlanInput:
    """The inputs after the first job has left and another one has come to its hosts, where `before` is in
    force."""
    gone = x.jobs[0]
    hosts = [x.topology.host[name] for name in gone.hosts]
    rng = Random(f"{seed}/bench plan/change")
    rng.shuffle(hosts)
    come = ring_job("new", hosts, len(gone.flows), rng)
    return replace(x, jobs=(*x.jobs[1:], come), previous=before)


async def _cluster(seed: int, runs: int) -> dict[str, Any]:
    topology = cluster()
    planner = Planner(topology)

    def new() -> PlanInput:
        return inputs(topology, 5, 1_500, seed)

    try:
        first_ms = await planner.median_ms(first_plan, new, runs)
        publish_ms = 1e3 * statistics.median(planner.publish_s)
        x = new()
        first, _ = await planner.made(first_plan, x)
        full_ms = await planner.median_ms(plan, lambda: replace(x, previous=first), runs)
        full, _ = await planner.made(plan, replace(x, previous=first))
        change_ms = await planner.median_ms(first_plan, lambda: changed(x, full, seed), runs)
        planner.publish_s.clear()
        await planner.median_ms(first_plan, lambda: changed(x, full, seed), runs)
        change_publish_ms = 1e3 * statistics.median(planner.publish_s)
    finally:
        planner.worker.close()
    return {
        "first_ms": first_ms,
        "change_ms": change_ms,
        "full_ms": full_ms,
        "publish_ms": round(publish_ms, 2),
        "change_publish_ms": round(change_publish_ms, 2),
    }


async def _many(seed: int, runs: int) -> dict[str, Any]:
    topology = cluster()
    planner = Planner(topology)

    def new() -> PlanInput:
        return inputs(topology, 100, 10_000, seed, most_ms=60_000)

    try:
        first_ms = await planner.median_ms(first_plan, new, runs)
        x = new()
        first, _ = await planner.made(first_plan, x)
        full_ms = await planner.median_ms(plan, lambda: replace(x, previous=first), runs)
    finally:
        planner.worker.close()
    return {"many_first_ms": first_ms, "many_full_ms": full_ms}


async def _huge(seed: int, runs: int) -> dict[str, Any]:
    topology = rails()
    planner = Planner(topology)
    try:
        first_ms = await planner.median_ms(first_plan, lambda: inputs(topology, 500, 100_000, seed), runs)
        usage = await planner.worker.run(resource.getrusage, resource.RUSAGE_SELF)
    finally:
        planner.worker.close()
    return {"huge_first_ms": first_ms, "huge_mib": round(usage.ru_maxrss / 1024, 1)}
