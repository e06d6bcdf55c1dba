# SPDX-License-Identifier: Apache-2.0
"""The event heap of the embedded fabric: the one clock of all its switches, NICs and agents."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventHeap:
    """Runs events in the order (time, insertion). `now` is fabric time in nanoseconds."""

    __slots__ = ("_count", "_events", "now", "stop")

    def __init__(self) -> None:
        self.now = 0
        self.stop = False
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` at `time_ns`. A time in the past means now.

        Events of the same time run in the order in which they were added.
        """
        self._count += 1
        heappush(self._events, (max(time_ns, self.now), self._count, callback, args))

    def run(self) -> bool:
        """Run events until none is left (returns False) or until `stop` is set (returns True).

        When `stop` is set at time t, the other events of t still run, because messages that leave the fabric
        at the same time leave together.
        """
        events = self._events
        while events:
            time_ns = events[0][0]
            if time_ns != self.now:
                if self.stop:
                    break
                self.now = time_ns
            _, _, callback, args = heappop(events)
            callback(*args)
        stopped, self.stop = self.stop, False
        return stopped
