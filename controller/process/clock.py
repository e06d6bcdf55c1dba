# SPDX-License-Identifier: Apache-2.0
"""The controller's clock: the host's clock, or the embedded fabric's clock as its ticks report it.

Every time that enters a plan or a figure comes from this clock. Periodic timers follow it too.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HostClock:
    """The host's monotonic clock. All processes of one machine share it."""

    @property
    def now_ns(self) -> int:
        """The time in ns since an arbitrary start, for instance since boot."""
        return time.monotonic_ns()

    @property
    def boot(self) -> str:
        """What names this start of the host: times of another one count by another clock."""
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            # Where the system does not tell, no earlier time is comparable with those of this process.
            return f"process {os.getpid()} at {time.time_ns()}"


class EmbeddedClock:
    """The embedded fabric's clock. It stands still at the time of the last tick."""

    def __init__(self) -> None:
        self._now_ns = 0

    @property
    def boot(self) -> str:
        """Empty: each run of the embedded fabric is another fabric."""
        return ""

    @property
    def now_ns(self) -> int:
        """The time of the last tick, in ns."""
        return self._now_ns

    def advance(self, time_ns: int) -> None:
        """Set the clock to the time of a new tick; the clock never goes back."""
        self._now_ns = max(self._now_ns, time_ns)


@dataclass(slots=True)
class PeriodicTimer:
    """A timer that is due at the multiples of an interval.

    `immediate`: the first call of `due` returns True. `next_ns` is when it is due next; None: not started.
    """

    interval_ns: int
    immediate: bool = False
    next_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        """Whether the timer is due at `now_ns`; if so, it is set to the next multiple of the interval."""
        first = self.next_ns is None
        due = self.immediate if first else now_ns >= (self.next_ns or 0)
        if due or first:
            self.next_ns = (now_ns // self.interval_ns + 1) * self.interval_ns
        return due

    def stop(self) -> None:
        """Stop the timer; the next call of `due` starts it again."""
        self.next_ns = None
