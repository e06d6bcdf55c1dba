# SPDX-License-Identifier: Apache-2.0
"""What a command shows while it computes: a bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compiling kernels, once for this machine"
_SILENT_S = 1.0
"""Seconds of work without a bar. Chosen: what takes two seconds shows one for the second of them."""
_AGAIN_S = 0.5
"""How often a bar's spent time is drawn. Chosen."""


class Bar:
    """Shows on standard error how many of `total` jobs (or other `unit`) are done, and how long the rest may
    take.

    On a terminal it is a bar. Elsewhere it is a line every `lines_s` seconds; 0: nothing.
    """

    def __init__(self, title: str, total: int, lines_s: float = 0.0, unit: str = "jobs") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._title, self._total, self._lines_s, self._unit = title, total, lines_s, unit
        self._began = self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} " + unit),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(title, total=total)
        self._stop_watching: Callable[[], None] = lambda: None

    def __enter__(self) -> Bar:
        if not self._progress.disable:
            from controller.kernel import watch_compilations

            self._stop_watching = watch_compilations(
                lambda: self._progress.update(self._task, description=f"{self._title}: {COMPILING}"),
                lambda: self._progress.update(self._task, description=self._title),
            )
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
        self._stop_watching()

    def step(self, done: int) -> None:
        """Show that `done` jobs are done."""
        self._progress.update(self._task, completed=done)
        now = time.monotonic()
        if self._lines_s and done and self._progress.disable and now - self._said >= self._lines_s:
            self._said, took = now, now - self._began
            left = took / done * (self._total - done)
            print(
                f"{self._title}: {done}/{self._total} {self._unit} after {took:.0f} s, "
                f"about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )


@contextmanager
def working(title: str) -> Iterator[None]:
    """Show that the block works on `title`, and for how long it has, where nothing says how much is left.

    The bar comes after a second and leaves with the block. While kernels are compiled for the first time, it
    says so. Where standard error is no terminal, nothing is shown. Blocks may not be nested.
    """
    if not sys.stderr.isatty():
        yield
        return
    from controller.kernel import watch_compilations

    compiling, ended = threading.Event(), threading.Event()
    stop_watching = watch_compilations(compiling.set, compiling.clear)
    thread = threading.Thread(target=_show, args=(title, compiling, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_watching()
        ended.set()
        thread.join()


def _show(title: str, compiling: threading.Event, ended: threading.Event) -> None:
    """Draw the bar until `ended`."""
    if ended.wait(_SILENT_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Drawn by this thread, so that the bar is gone when it ends. Standard output is the command's.
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
    ) as bar:
        task = bar.add_task(title, total=None)
        while not ended.wait(_AGAIN_S):
            bar.update(task, description=COMPILING if compiling.is_set() else title, refresh=True)
