# SPDX-License-Identifier: Apache-2.0
"""How busy the cores of this machine are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

_STAT = Path("/proc/stat")

Ticks = tuple[int, int]
"""The busy ticks of all cores since the machine started, and all their ticks (proc(5))."""


def cpu_ticks() -> Ticks:
    """The ticks so far. Those that the host of a virtual machine took away are busy ones."""
    user, nice, system, idle, iowait, *others = map(int, _STAT.read_text().split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + sum(others)
    return busy, busy + idle + iowait


def load_between(before: Ticks, after: Ticks) -> float:
    """The busy part of the cores' time between two readings, 0 to 1. No tick has passed: 1."""
    busy, every = (b - a for a, b in zip(before, after, strict=True))
    return busy / every if every else 1.0


def load_together(idle: Sequence[float], busy: Sequence[float]) -> float:
    """The load of all jobs together, by the load before each alone begins and while it runs.

    Agents, switches and controller have work to do without any job: this counts once.
    """
    return fmean(idle) + sum(max(0.0, b - i) for i, b in zip(idle, busy, strict=True))
