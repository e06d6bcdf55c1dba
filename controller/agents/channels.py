# SPDX-License-Identifier: Apache-2.0
"""Message counts of each channel between the embedded fabric and the controller.

A tick of the fabric's clock announces how many messages have left the fabric on each channel
("agent:HOST", "packet_in:SWITCH", "gnmi:SWITCH"). The controller waits until it has received them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


class ChannelCounts:
    """How many messages have arrived on each channel, compared with how many were announced.

    A channel whose session is lost counts as complete, because its messages will never arrive.
    """

    def __init__(self) -> None:
        self._came: dict[str, int] = {}
        self._lost: set[str] = set()
        self._news = asyncio.Event()

    def arrived(self, channel: str, count: int | None = None) -> None:
        """A message arrived; `count` is its sequence number where messages have one."""
        came = self._came.get(channel, 0)
        self._came[channel] = came + 1 if count is None else max(came, count)
        self._news.set()

    def opened(self, channel: str) -> None:
        """The session that carries the channel has begun."""
        self._lost.discard(channel)

    def lost(self, channel: str) -> None:
        """The session that carried the channel is lost."""
        self._lost.add(channel)
        self._news.set()

    async def wait(self, announced: Mapping[str, int], timeout_s: float) -> tuple[str, ...]:
        """Wait until all announced messages have arrived, for `timeout_s` of host time at most.

        Returns the channels that still miss messages. Missing messages, also those lost with their session,
        are not waited for again.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._missing(announced):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        late = self._missing(announced)
        for channel, count in announced.items():
            self._came[channel] = max(count, self._came.get(channel, 0))
        return late

    def _missing(self, announced: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(
            channel
            for channel, count in announced.items()
            if self._came.get(channel, 0) < count and channel not in self._lost
        )
