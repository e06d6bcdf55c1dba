# SPDX-License-Identifier: Apache-2.0
"""The processes that a bench of the running controller starts, and how it waits for them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Chosen: a fresh machine compiles the planner for half a minute, a loaded one for longer.
READY_S = 300.0


@contextlib.contextmanager
def process(*arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of this Python, with its errors in a file; ended with the block."""
    with log.open("w") as errors:
        started = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
            for end in (started.stdin, started.stdout):
                if end is not None:
                    with contextlib.suppress(BrokenPipeError):
                        end.close()


def line(started: subprocess.Popen[str], log: Path) -> str:
    """The next line that a process prints. Raises RuntimeError if it ends without one."""
    said = started.stdout.readline() if started.stdout is not None else ""
    if not said:
        raise RuntimeError(f"a process did not start: {log.read_text()[-500:]}")
    return said


def last_words(folder: Path) -> str:
    """The last line of each log, for the error message of a bench that failed."""
    lines = {log.stem: log.read_text().splitlines()[-1:] for log in sorted(folder.glob("*.log"))}
    return "".join(f"\n  {name}: {said[0]}" for name, said in lines.items() if said)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds. Raises RuntimeError if it does not within READY_S."""
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} not ready within {READY_S:g} s")
        time.sleep(0.02)
