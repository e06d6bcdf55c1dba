# SPDX-License-Identifier: Apache-2.0
"""Plans for whole clusters: `first_ms`, `change_ms`, `full_ms`, `many_*`, `huge_*` and `publish_ms`; and
`paths_speedup` and `ports_speedup`, the compiled kernels against the plain reference.

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

import numpy as np

from controller.model import Plan
from controller.planner import POLICIES, PlanInput, first_plan, plan
from controller.planner.demand import Demands
from controller.process.worker_process import WorkerProcess
from controller.routing.fabric import LeafDemand
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.least_congested import OwnedDemand, least_congested
from controller.routing.ports import ports_for, stages
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


def speedups(x: PlanInput, *, weighted: bool = False) -> dict[str, float]:
    """How many times faster the compiled kernels choose paths and source ports after a change than the plain
    reference, on the same flows: the median of three runs each. Runs in the planner's process.

    Paths are those of the routing that the default policy has, where the plan before is in force. `weighted`:
    a flow weighs the highest rate of its job; otherwise all flows weigh the same.
    """
    demands = Demands(x)
    flows, fabric = demands.columns, fabric_of(x.topology, Failures(x.down_links, x.down_switches))
    numbers = flows.numbers
    leaf = numbers.leaves_of(fabric)[numbers.leaf]
    far = np.flatnonzero(flows.elephant & (leaf[flows.src] != leaf[flows.dst]))
    peak = np.array([max(p.rate_bps for p in job.profile.phases) for job in x.jobs], dtype=np.float64)
    weight = peak[flows.job[far]] if weighted else None
    demand = LeafDemand(leaf[flows.src[far]], leaf[flows.dst[far]], weight)
    before = x.previous.flows if x.previous is not None else {}
    paths = [p.path[1:-1] if (p := before.get(flows.names[i])) and p.path else () for i in far.tolist()]
    held = numbers.choices_of_hops(fabric, demand, numbers.hops_of_paths(paths))
    owned = OwnedDemand(demand, flows.job[far], held)
    choice = least_congested(fabric, owned, balance=True)
    wanted = stages(x.topology, fabric, demand, choice)
    addresses = numbers.source[flows.src[far]], numbers.destination[flows.dst[far]]
    return {
        "paths_speedup": plain_over_compiled(
            lambda plain: least_congested(fabric, owned, balance=True, plain=plain)
        ),
        "ports_speedup": plain_over_compiled(lambda plain: ports_for(*addresses, wanted, plain=plain)),
    }


def plain_over_compiled(work: Callable[[bool], object], runs: int = 3) -> float:
    """How many times more processor time the work takes when it is told to be plain: medians of some runs of
    each way, the kernels warm."""
    work(False)
    plain, compiled = (statistics.median(_cpu_s(work, way) for _ in range(runs)) for way in (True, False))
    return round(plain / max(compiled, 1e-6), 1)


def _cpu_s(work: Callable[[bool], object], plain: bool) -> float:
    began = time.process_time()
    work(plain)
    return time.process_time() - began


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
        faster = await planner.worker.run(speedups, changed(x, full, seed))
    finally:
        planner.worker.close()
    return {
        "first_ms": first_ms,
        "change_ms": change_ms,
        "full_ms": full_ms,
        "publish_ms": round(publish_ms, 2),
        "change_publish_ms": round(change_publish_ms, 2),
        **faster,
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
