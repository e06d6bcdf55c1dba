# SPDX-License-Identifier: Apache-2.0
"""Bounds how fast the messages of one agent are read: an agent that floods delays itself only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from controller.wire.limits import MAX_MESSAGES_PER_S


class MessageRate:
    """A token bucket that holds as many messages as may come in a second. `clock` is in seconds."""

    def __init__(self, per_s: int = MAX_MESSAGES_PER_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = float(per_s)
        self._at_s = clock()

    def delay_s(self) -> float:
        """Count a message; returns how long to wait before the next one is read."""
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at_s) * self._per_s) - 1
        self._at_s = now
        return max(0.0, -self._left / self._per_s)

    async def wait(self) -> None:
        """Count a message, and wait if there were too many."""
        delay = self.delay_s()
        if delay:
            await asyncio.sleep(delay)
