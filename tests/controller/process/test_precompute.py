# SPDX-License-Identifier: Apache-2.0
"""What the planner's process does while it is idle."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

import pytest
from control_rig import on_loop

from controller.kernel import available
from controller.live.failover import PreparedFailovers
from controller.model.job import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, first_plan
from controller.process.precompute import Precomputation
from controller.process.workers import WorkerProcesses
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.southbound.host_guard import HostGuard
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 1, 1, host_bps=1_000_000, fabric_bps=1_000_000)
JOB = Job(
    "a",
    "m",
    2,
    ("h1", "h2"),
    Profile(100_000_000, (Phase(0, 50_000_000, 1_000_000),)),
    1e12,
    (Flow("a/h1>h2", "a", "h1", "h2", 6_250),),
)


def numba_is_loaded() -> bool:
    """Runs in the worker."""
    return "numba" in sys.modules


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="without Numba there are no kernels")
@pytest.mark.parametrize(
    ("jobs", "policy", "loaded"),
    [((JOB,), "polyrhythm", True), ((JOB,), "ecmp", False), ((), "polyrhythm", False)],
)
def test_what_a_search_needs_is_loaded_after_the_first_plan_for_jobs(
    jobs: tuple[Job, ...], policy: str, loaded: bool
) -> None:
    inputs = PlanInput(TOPOLOGY, jobs, POLICIES[policy], 0)
    core = SimpleNamespace(failovers=PreparedFailovers.after(inputs, first_plan(inputs)), next_senders=None)

    async def scenario() -> tuple[bool, bool]:
        fabric = SimpleNamespace(
            topology=TOPOLOGY, ecn=EcnProfile(5, 50, 0.1), guard=HostGuard(), clock="host"
        )
        both = WorkerProcesses(fabric, artefacts_dir())  # type: ignore[arg-type]
        tasks: list[asyncio.Task[None]] = []

        def watched(work: object) -> asyncio.Task[None]:
            tasks.append(asyncio.ensure_future(work))  # type: ignore[call-overload]
            return tasks[-1]

        try:
            before = await both.plans.run(numba_is_loaded)
            Precomputation(both, with_writes=True).begin(core, watched)  # type: ignore[arg-type]
            while tasks:
                await tasks.pop()
            return before, await both.plans.run(numba_is_loaded)
        finally:
            both.close()

    assert on_loop(scenario()) == (False, loaded)
