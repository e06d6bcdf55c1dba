# SPDX-License-Identifier: Apache-2.0
"""The controller's clock: the host's, or the embedded fabric's as its ticks tell it.

Everything that enters a plan or a figure takes its time from here. Beside the fabric's clock stand
the channels: how many messages the fabric says have left on each, and how many have come.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


class HostClock:
    """The host's monotonic clock, which all processes of one machine share."""

    @property
    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary start, for instance boot."""
        return time.monotonic_ns()


class EmbeddedClock:
    """The embedded fabric's clock: it stands at the time of the last tick."""

    def __init__(self) -> None:
        self._now_ns = 0

    @property
    def now_ns(self) -> int:
        """The time of the tick being handled."""
        return self._now_ns

    def advance(self, time_ns: int) -> None:
        """A tick has come; time never goes back."""
        self._now_ns = max(self._now_ns, time_ns)


@dataclass(slots=True)
class PeriodicTimer:
    """A repeated deadline. `immediate`: the first time it is asked for is a time to do it."""

    interval_ns: int
    immediate: bool = False
    next_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        """Whether it is time; if so, the next time is the next multiple of the interval."""
        first = self.next_ns is None
        due = self.immediate if first else now_ns >= (self.next_ns or 0)
        if due or first:
            self.next_ns = (now_ns // self.interval_ns + 1) * self.interval_ns
        return due

    def stop(self) -> None:
        """Not until it is asked for again."""
        self.next_ns = None
