# SPDX-License-Identifier: Apache-2.0
"""Processes that end when the one that started them has ended, for example by a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Handler = signal.Handlers | Callable[[int, FrameType | None], object]


def end_with_parent() -> None:
    """End this process when its parent has ended. For processes of `multiprocessing`."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Pool(ProcessPoolExecutor):
    """A pool that starts its processes, in `submit`, so that they ignore Ctrl-C. Their parent ends them."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        with signal_handled(signal.SIGINT, signal.SIG_IGN):
            return super().submit(fn, *args, **kwargs)


@contextmanager
def spawned_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes, none of which outlives this one. An error in the block ends them at once."""
    others = set(active_children())
    with _Pool(workers, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        try:
            yield pool
        except BaseException:
            # Without this, the pool would wait for the running tasks, whatever the error. A signal that
            # Python handles would too, where the system gives it to another thread than the main one.
            for child in set(active_children()) - others:
                child.kill()
            # The pool's thread ends here: Python 3.11 wakes one that is left over at its exit through a pipe
            # that the thread closes meanwhile, with a traceback, or it waits for ever.
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def signal_handled(number: signal.Signals, handler: _Handler) -> Iterator[None]:
    """Give a signal another handler in this block; only the main thread can, in others nothing changes.

    Processes that start within the block inherit that they ignore the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


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
