# SPDX-License-Identifier: Apache-2.0
"""Processes that end when the one that started them has ended, for example by a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path


def end_with_parent() -> None:
    """End this process when its parent has ended. For processes of `multiprocessing`."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def spawned_pool(workers: int) -> ProcessPoolExecutor:
    """A pool of new processes, none of which outlives this one."""
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent)


def run_command_apart(words: Sequence[str], printed: Path, log: Path) -> int:
    """Run `polyrhythm WORDS` in a process of its own, and wait for its end. Returns its exit code, which is
    negative after a signal. What it prints goes to the file `printed`, and its errors and progress to
    `log`."""
    command = [sys.executable, "-m", __name__, *words]
    with (
        printed.open("wb") as out,
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors) as process,
    ):
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise


def _command(words: Sequence[str]) -> int:
    """Run `polyrhythm WORDS` while the process that holds the other end of the standard input lives."""

    def watch() -> None:
        # Not through sys.stdin, whose lock an ending interpreter needs.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # Only here, so that a pool's processes do not load the whole command line.
    from polyrhythm.cli import main

    return main(list(words))


if __name__ == "__main__":
    sys.exit(_command(sys.argv[1:]))
