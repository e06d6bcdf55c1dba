# SPDX-License-Identifier: Apache-2.0
"""The worker process: a call that nobody wants any more ends, and the next one finds what was sent before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from control_rig import on_loop

from controller.process.worker_calls import CallAbandonedError, stop_requested
from controller.process.worker_process import WorkerProcess
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


def steps_until(topology: Topology, first: int, most: int, stop: Callable[[], bool]) -> int:
    """How many of at most `most` steps are done before `stop` says so; asks after the first `first` steps."""
    for done in range(first, most):
        time.sleep(0.01 if done > first else 0.01 * first)
        if stop():
            return done
    return most


def test_a_call_is_abandoned_on_its_way_to_the_worker() -> None:
    """The worker may not have begun the call when it is asked to end it; it is asked only once."""

    async def scenario() -> None:
        worker = WorkerProcess(TOPOLOGY, EcnProfile(5, 50, 0.1), artefacts_dir())
        try:
            assert await worker.run(name_after, TOPOLOGY, 0) == TOPOLOGY.name
            for _ in range(20):
                call = asyncio.ensure_future(worker.run(name_after, TOPOLOGY, 6_000))
                while not worker.abandon(TOPOLOGY):
                    await asyncio.sleep(0)
                with pytest.raises(CallAbandonedError):
                    await call
        finally:
            worker.close()

    on_loop(scenario())


@pytest.mark.parametrize(("first", "patient"), [(1, False), (60, True)])
def test_a_call_that_asks_ends_with_what_it_has(first: int, patient: bool) -> None:
    async def scenario() -> None:
        worker = WorkerProcess(TOPOLOGY, EcnProfile(5, 50, 0.1), artefacts_dir())
        try:
            assert await worker.run(name_after, TOPOLOGY, 0) == TOPOLOGY.name
            call = asyncio.ensure_future(worker.run(steps_until, TOPOLOGY, first, 6_000, stop=stop_requested))
            await asyncio.sleep(0.3)
            while not call.done():
                worker.abandon(TOPOLOGY, patient=patient)
                await asyncio.sleep(0.2)
            assert first <= call.result() < 6_000
            assert await worker.run(steps_until, TOPOLOGY, 1, 4, stop=stop_requested) == 4
        finally:
            worker.close()

    on_loop(scenario())


def test_the_worker_keeps_what_it_knows_when_a_caller_gives_up() -> None:
    """Else the next plan would wait until the fabric has travelled again, and until caches are filled."""

    async def scenario() -> None:
        worker = WorkerProcess(TOPOLOGY, EcnProfile(5, 50, 0.1), artefacts_dir())
        try:
            there = await worker.run(id, TOPOLOGY)
            long = asyncio.ensure_future(worker.run(name_after, TOPOLOGY, 6_000))
            while not worker.abandon(TOPOLOGY, patient=True):
                await asyncio.sleep(0)
            # One that waits for its turn is dropped; the one under way ends soon.
            waiting = asyncio.ensure_future(worker.run(name_after, TOPOLOGY, 6_000))
            await asyncio.sleep(0)
            for call in (waiting, long):
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            async with asyncio.timeout(30):
                assert await worker.run(id, TOPOLOGY) == there
        finally:
            worker.close()

    on_loop(scenario())
