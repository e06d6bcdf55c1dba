# SPDX-License-Identifier: Apache-2.0
"""A progress bar for long computations, with the time that is left."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """Shows on standard error how many of `total` jobs (or other `unit`) are done, and how long the rest may
    take.

    On a terminal it is a bar. Elsewhere it is a line every `lines_s` seconds; 0: nothing.
    """

    def __init__(self, title: str, total: int, lines_s: float = 0.0, unit: str = "jobs") -> None:
        self._title, self._total, self._lines_s, self._unit = title, total, lines_s, unit
        self._began = self._said = time.monotonic()
        self._progress = Progress(
            TextColumn(title),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} " + unit),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

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
