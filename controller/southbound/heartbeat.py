# SPDX-License-Identifier: Apache-2.0
"""How a silent switch is noticed: one whose connection stands, but which answers nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import random


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When a switch counts as silent, in seconds of host time.

    `interval_s` after each answer the controller asks the switch for a sign of life. The switch is silent if
    it does not answer within `deadline_s`. `deadline_s` also bounds the wait for the values of counters.

    Chosen: a silent switch loses its session within 2 s, and after a grace of 1 s plans avoid it. A switch
    that was only slow has a new session within the grace. gRPC's own keepalive pings are no alternative: a
    default server ends a connection that pings so often.
    """

    interval_s: float = 1.0
    deadline_s: float = 1.0

    async def silence(self, ask: Callable[[], Awaitable[None]], hurry: asyncio.Event) -> str:
        """Call `ask` again and again until the switch is silent; returns what happened, in words.

        `hurry` ends the interval that passes. The first one has a random length, so that the requests to many
        switches do not come all at once: an answer to an agent would wait for them.
        """
        interval_s = self.interval_s * random()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await hurry.wait()
            interval_s = self.interval_s
            hurry.clear()
            try:
                async with asyncio.timeout(self.deadline_s):
                    await ask()
            except TimeoutError:
                return f"silent: no answer within {self.deadline_s:g} s"
