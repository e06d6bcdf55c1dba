# SPDX-License-Identifier: Apache-2.0
"""The worker process: a call that nobody wants any more ends, and the next one finds what was sent before."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from control_rig import PATIENCE_S, on_loop

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


@asynccontextmanager
async def started() -> AsyncGenerator[WorkerProcess]:
    """A worker process that has answered a call about TOPOLOGY. It is ended with the context."""
    worker = WorkerProcess(TOPOLOGY, EcnProfile(5, 50, 0.1), artefacts_dir())
    try:
        assert await worker.run(name_after, TOPOLOGY, 0) == TOPOLOGY.name
        yield worker
    finally:
        worker.close()


@pytest.mark.slow
def test_a_call_is_abandoned_and_the_next_one_works() -> None:
    async def scenario() -> None:
        async with started() as worker:
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

    on_loop(scenario())


def name_after_import(topology: Topology, folder: str, turns: int) -> str:
    """The topology's name, after the import of a package in `folder` and some seconds of work."""
    if folder not in sys.path:
        sys.path.append(folder)
    return str(importlib.import_module("slow_package").part.NAME) + name_after(topology, turns)


@pytest.mark.slow
def test_a_call_is_not_ended_within_an_import(tmp_path: Path) -> None:
    """A package that was imported in part would stay broken: its parts are there, but not it."""
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "part.py").write_text("NAME = 'whole '\n")
    begun = tmp_path / "begun"
    (package / "__init__.py").write_text(
        f"import slow_package.part\nimport pathlib, time\npathlib.Path({str(begun)!r}).touch()\n"
        "for _ in range(50):\n    time.sleep(0.01)\n"
    )

    async def scenario() -> None:
        async with started() as worker:
            long = asyncio.ensure_future(worker.run(name_after_import, TOPOLOGY, str(tmp_path), 60_000))
            while not begun.exists():
                await asyncio.sleep(0.01)
            # Asked once, it ends after the import.
            assert worker.abandon(TOPOLOGY)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(CallAbandonedError):
                    await long
                whole = await worker.run(name_after_import, TOPOLOGY, str(tmp_path), 0)
            assert whole == f"whole {TOPOLOGY.name}"

    on_loop(scenario())


def answer_kept(topology: Topology, folder: str, file: str) -> str:
    """The topology's name, after some minutes. What the library in `folder` got as an answer is in `file`."""
    sys.modules.pop("llvmlite", None)
    sys.path.insert(0, folder)
    Path(file).write_text(str(importlib.import_module("llvmlite").answers()))
    return name_after(topology, 60_000)


def test_a_call_is_not_ended_within_a_callback_of_a_compiled_library(tmp_path: Path) -> None:
    """The library takes the lack of an answer for an empty one, and the process dies of it."""
    begun = tmp_path / "begun"
    (tmp_path / "llvmlite.py").write_text(
        "import ctypes, pathlib, time\n"
        "def _answer():\n"
        f"    pathlib.Path({str(begun)!r}).touch()\n"
        "    for _ in range(50):\n        time.sleep(0.01)\n"
        "    return 1\n"
        "def answers():\n"
        "    return ctypes.CFUNCTYPE(ctypes.c_int)(_answer)()\n"
    )
    later = tmp_path / "later"

    async def scenario() -> None:
        async with started() as worker:
            call = asyncio.ensure_future(worker.run(answer_kept, TOPOLOGY, str(tmp_path), str(later)))
            while not begun.exists():
                await asyncio.sleep(0.01)
            assert worker.abandon(TOPOLOGY)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(CallAbandonedError):
                    await call
            assert later.read_text() == "1"

    on_loop(scenario())


def die_once(topology: Topology, died: str, turns: int) -> str:
    """The topology's name. The first time, the process dies some time after the file is there."""
    if not Path(died).exists():
        Path(died).touch()
        time.sleep(0.5)
        os._exit(1)
    return name_after(topology, turns)


@pytest.mark.slow
def test_an_abandoned_call_is_not_repeated_when_the_worker_dies(tmp_path: Path) -> None:
    """The new process would not know that nobody waits for it, and the next plan would wait for it."""
    died = tmp_path / "died"

    async def scenario() -> None:
        async with started() as worker:
            call = asyncio.ensure_future(worker.run(die_once, TOPOLOGY, str(died), 60_000))
            while not died.exists():
                await asyncio.sleep(0.01)
            # As the planner does: a patient request lets it go on until it asks.
            assert worker.abandon(TOPOLOGY, patient=True)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(CallAbandonedError):
                    await call
                assert await worker.run(name_after, TOPOLOGY, 0) == TOPOLOGY.name

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
        async with started() as worker:
            for _ in range(20):
                call = asyncio.ensure_future(worker.run(name_after, TOPOLOGY, 6_000))
                while not worker.abandon(TOPOLOGY):
                    await asyncio.sleep(0)
                with pytest.raises(CallAbandonedError):
                    await call

    on_loop(scenario())


@pytest.mark.slow
@pytest.mark.parametrize(("first", "patient"), [(1, False), (60, True)])
def test_a_call_that_asks_ends_with_what_it_has(first: int, patient: bool) -> None:
    async def scenario() -> None:
        async with started() as worker:
            call = asyncio.ensure_future(worker.run(steps_until, TOPOLOGY, first, 6_000, stop=stop_requested))
            await asyncio.sleep(0.3)
            while not call.done():
                worker.abandon(TOPOLOGY, patient=patient)
                await asyncio.sleep(0.2)
            assert first <= call.result() < 6_000
            assert await worker.run(steps_until, TOPOLOGY, 1, 4, stop=stop_requested) == 4

    on_loop(scenario())


@pytest.mark.slow
def test_the_worker_keeps_what_it_knows_when_a_caller_gives_up() -> None:
    """Else the next plan would wait until the fabric has travelled again, and until caches are filled."""

    async def scenario() -> None:
        async with started() as worker:
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

    on_loop(scenario())
