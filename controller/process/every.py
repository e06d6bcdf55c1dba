# SPDX-License-Identifier: Apache-2.0
"""What is to be done every so often, at multiples of an interval of the controller's clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Every:
    """A repeated deadline. `at_once`: the first time it is asked for is a time to do it."""

    interval_ns: int
    at_once: bool = False
    next_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        """Whether it is time; if so, the next time is the next multiple of the interval."""
        first = self.next_ns is None
        due = self.at_once if first else now_ns >= (self.next_ns or 0)
        if due or first:
            self.next_ns = (now_ns // self.interval_ns + 1) * self.interval_ns
        return due

    def stop(self) -> None:
        """Not until it is asked for again."""
        self.next_ns = None
