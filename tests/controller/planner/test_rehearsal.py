# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled in a process of their own; plans do without them until then."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from control_rig import on_loop

from controller.kernel import available, cache_folder
from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.rehearsal import kernels_are_cold
from controller.process.workers import WorkerProcesses
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.southbound.host_guard import HostGuard
from topo.generate import leaf_spine

RATE_BPS = 1_000_000_000
TOPOLOGY = leaf_spine(2, 1, 4, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def job(name: str, hosts: list[str], period_ns: int) -> Job:
    """A job that fills the link between the leaves for half of its period."""
    a, b = hosts
    flows = (Flow(f"{name}/0", name, a, b, 10_000_000), Flow(f"{name}/1", name, b, a, 10_000_000))
    return Job(name, "m", 2, (a, b), Profile(period_ns, (Phase(0, period_ns // 2, RATE_BPS),)), 1e12, flows)


JOBS = tuple(job(f"j{n}", [f"h{n}", f"h{n + 4}"], (100 + 30 * n) * 1_000_000) for n in range(1, 5))


@pytest.mark.long
@pytest.mark.skipif(not available(), reason="without Numba there are no kernels")
def test_plans_use_the_plain_loops_until_the_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache_folder.cache_clear()
    fabric = SimpleNamespace(topology=TOPOLOGY, ecn=EcnProfile(5, 50, 0.1), guard=HostGuard(), clock="host")

    async def scenario() -> None:
        workers = WorkerProcesses(fabric, artefacts_dir())  # type: ignore[arg-type]
        try:
            await workers.warm_up()
            made = await workers.plans.run(plan, PlanInput(TOPOLOGY, JOBS, POLICIES["polyrhythm"], 0))
            assert set(made.jobs) == {job.name for job in JOBS}
            assert not await workers.plans.run(available)
            assert not list(tmp_path.glob("**/*.nbi"))
            await workers.compile_kernels()
            assert not kernels_are_cold()
            assert await workers.plans.run(available)
        finally:
            workers.close()

    try:
        on_loop(scenario())
    finally:
        cache_folder.cache_clear()
