# SPDX-License-Identifier: Apache-2.0
"""Table writes wait for no plan, except in the embedded fabric."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from control_rig import PATIENCE_S, on_loop

from controller.process.workers import WorkerProcesses
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.southbound.host_guard import HostGuard
from controller.southbound.table_writes import DesiredState, writes_to
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 1, 1, host_bps=1_000_000, fabric_bps=1_000_000)


def workers(clock: str) -> WorkerProcesses:
    fabric = SimpleNamespace(topology=TOPOLOGY, ecn=EcnProfile(5, 50, 0.1), guard=HostGuard(), clock=clock)
    return WorkerProcesses(fabric, artefacts_dir())  # type: ignore[arg-type]


def plan_until(file: Path) -> str:
    """Stands for a plan that takes until the file is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return "planned" if file.exists() else "too late"


@pytest.mark.slow
def test_table_writes_do_not_wait_for_a_plan(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, int]:
        both = workers("host")
        try:
            planning = asyncio.ensure_future(both.plans.run(plan_until, tmp_path / "end"))
            writes = await both.tables.run(writes_to, {"leaf1": None}, DesiredState())
            assert not planning.done()
            (tmp_path / "end").touch()
            return await planning, writes["leaf1"].updates
        finally:
            both.close()

    planned, updates = on_loop(scenario())
    assert planned == "planned"
    assert updates > 0


def test_the_embedded_fabric_needs_one_process() -> None:
    one = workers("embedded")
    assert one.tables is one.plans
    one.close()
