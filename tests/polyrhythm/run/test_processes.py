# SPDX-License-Identifier: Apache-2.0
"""The child processes of a run: how they start, what they say, and what they leave behind when they end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.run import processes
from polyrhythm.run.processes import Process, RunError
from polyrhythm.scenario import scenario_path


def complaints(work: Coroutine[Any, Any, object], monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What Python complains of after `work`: streams that nobody has closed."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    asyncio.run(work)
    gc.collect()
    return unraisable


def test_an_ended_child_says_why_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spawn_and_stop() -> None:
        process = await Process.spawn("child", ["fabric", "nowhere.yaml"], tmp_path / "log")
        said = str(await process.failure())
        assert said.startswith("the child ended with exit code 2; the end of its log:\n  nowhere.yaml: ")
        # Output that nobody has read.
        helpful = await Process.spawn("child", ["fabric", "--help"], tmp_path / "log")
        assert str(await helpful.failure()) == "the child ended with exit code 0"
        for child in (process, helpful):
            await child.stop()

    assert complaints(spawn_and_stop(), monkeypatch) == []


def test_an_ended_child_whose_output_stays_open_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child may end before its output does: a process that it has started still has it."""
    (tmp_path / "log").touch()

    async def wait_and_stop() -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        streams = [await asyncio.open_connection(sock=ours) for ours, _ in pairs]
        process = Process("child", tmp_path / "log", 0, streams)
        pairs[2][1].sendall(b'{"code": 3}\n')
        assert str(await process.failure()) == "the child ended with exit code 3"
        await process.stop()
        for _, theirs in pairs:
            theirs.close()

    assert complaints(wait_and_stop(), monkeypatch) == []


def test_a_child_says_what_it_is_and_ends_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_path("two_vgg19")
    monkeypatch.chdir(scenario.parent)

    async def talk() -> None:
        child = await Process.spawn("fabric", ["fabric", scenario.name], tmp_path / "log")
        ready = await child.expect("ready")
        assert {"switches", "topology"} & set(ready["fabric"])
        assert Path(f"/proc/{child.pid}/comm").read_text() == "fabric\n"
        assert os.getpgid(child.pid) == child.pid
        await child.stop()
        assert str(await child.failure()) == "the fabric ended with exit code 0"

    assert complaints(talk(), monkeypatch) == []


def test_a_killed_child_is_told_by_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def kill() -> None:
        child = await Process.spawn("fabric", ["fabric", str(scenario_path("two_vgg19"))], tmp_path / "log")
        # Then it waits for its controller.
        await child.expect("ready")
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"^the fabric was killed by signal 9$"):
            await child.expect("result")
        await child.stop()

    assert complaints(kill(), monkeypatch) == []


def test_a_fork_server_that_somebody_ended_is_replaced(tmp_path: Path) -> None:
    async def ended() -> str:
        child = await Process.spawn("child", ["history", "--help"], tmp_path / "log")
        said = str(await child.failure())
        await child.stop()
        return said

    assert asyncio.run(ended()) == "the child ended with exit code 0"
    server = processes._FORK_SERVER._process
    assert server is not None
    server.kill()
    server.wait()
    assert asyncio.run(ended()) == "the child ended with exit code 0"
    assert processes._FORK_SERVER._process is not server


def test_children_have_the_environment_of_their_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lines_of_help() -> int:
        child = await Process.spawn("child", ["fabric", "--help"], tmp_path / "log")
        lines = [line async for line in child._output]
        await child.stop()
        return len(lines)

    monkeypatch.setenv("COLUMNS", "200")
    wide = asyncio.run(lines_of_help())
    monkeypatch.setenv("COLUMNS", "50")
    assert asyncio.run(lines_of_help()) > wide
