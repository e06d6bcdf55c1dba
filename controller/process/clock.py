# SPDX-License-Identifier: Apache-2.0
"""The controller's clock: the host's, or the embedded fabric's as its ticks tell it.

Everything that enters a plan or a figure takes its time from here. Beside the fabric's clock stand
the channels: how many messages the fabric says have left on each, and how many have come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol


class Clock(Protocol):
    """Tells the time in nanoseconds."""

    @property
    def now_ns(self) -> int:
        """The present time."""


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


class Channels:
    """How many messages have come in on each channel, against how many were announced.

    A channel whose session is lost counts as complete: its messages will not come any more.
    """

    def __init__(self) -> None:
        self._came: dict[str, int] = {}
        self._lost: set[str] = set()
        self._news = asyncio.Event()

    def arrived(self, channel: str, count: int | None = None) -> None:
        """A message came in; `count` is its own number where messages are numbered."""
        came = self._came.get(channel, 0)
        self._came[channel] = came + 1 if count is None else max(came, count)
        self._news.set()

    def opened(self, channel: str) -> None:
        """A session that carries the channel is there."""
        self._lost.discard(channel)

    def lost(self, channel: str) -> None:
        """The session that carried the channel is gone."""
        self._lost.add(channel)
        self._news.set()

    async def wait(self, announced: Mapping[str, int], timeout_s: float) -> tuple[str, ...]:
        """Wait until all that was announced is here; the channels given up after `timeout_s` of host time.

        What was given up, or lost with its session, is not waited for again.
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
