# SPDX-License-Identifier: Apache-2.0
"""The worker process: a call that nobody wants any more ends, and the next one finds what was sent before."""

from __future__ import annotations

import asyncio
import time

import pytest
from control_rig import on_loop

from controller.process.worker_process import CallAbandonedError, WorkerProcess
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from topo.generate import leaf_spine
from topo.graph import Topology

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=1_000_000, fabric_bps=1_000_000)


def name_after(topology: Topology, turns: int) -> str:
    """The topology's name, after some seconds of work in small steps.

    As in the planner, every Exception counts as a policy's own failure.
    """
    try:
        for _ in range(turns):
            time.sleep(0.01)
    except Exception as error:
        raise ValueError("the policy failed") from error
    return topology.name


def test_a_call_is_abandoned_and_the_next_one_works() -> None:
    async def scenario() -> None:
        worker = WorkerProcess(TOPOLOGY, EcnProfile(5, 50, 0.1), artefacts_dir())
        try:
            assert await worker.run(name_after, TOPOLOGY, 0) == TOPOLOGY.name
            assert not worker.abandon(TOPOLOGY)
            long = asyncio.ensure_future(worker.run(name_after, TOPOLOGY, 6_000))
            waiting = asyncio.ensure_future(
                worker.run(name_after, leaf_spine(1, 1, 1, host_bps=1, fabric_bps=1), 0)
            )
            await asyncio.sleep(0.3)
            while not long.done():
                assert worker.abandon(TOPOLOGY)
                await asyncio.sleep(0.2)
            with pytest.raises(CallAbandonedError):
                long.result()
            assert await waiting
            assert await worker.run(name_after, TOPOLOGY, 0) == TOPOLOGY.name
        finally:
            worker.close()

    on_loop(scenario())
