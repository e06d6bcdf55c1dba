# SPDX-License-Identifier: Apache-2.0
"""The child processes of a run: what they leave behind when they end."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from polyrhythm.run.processes import Process


def test_an_ended_child_leaves_no_open_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child may end before its output does: then nothing is left that asyncio would complain of."""
    child = tmp_path / "child"
    child.write_text("#!/bin/sh\nsleep 2 &\nexit 3\n")
    child.chmod(0o755)
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(sys, "executable", str(child))

    async def spawn_and_stop() -> str:
        process = await Process.spawn("child", [], tmp_path / "log")
        said = str(await process.failure())
        await process.stop()
        return said

    assert asyncio.run(spawn_and_stop()) == "the child ended with exit code 3"
    gc.collect()
    assert unraisable == []
