# SPDX-License-Identifier: Apache-2.0
"""Views whose counters were polled just now, for requests that nobody else's watching has prepared."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from controller.model.view import View
from controller.northbound.source import ViewSource, current_view

# Host time that a request waits at most for its own polls of the counters. Chosen.
READING_S = 2.0
# A view shows figures of now if they were read so many ns before it, in the controller's time, and if the
# counters are polled all the time. Chosen: some polls.
_FRESH_NS = 1_000_000_000


class FreshViews:
    """Views of a source with figures of now. A request waits for `reading_s` of host time at most."""

    def __init__(self, source: ViewSource, reading_s: float = READING_S) -> None:
        self._source = source
        self._reading_s = reading_s

    def now(self) -> View:
        """The newest view, whatever its figures. Raises OperationError before the first."""
        return current_view(self._source)

    async def after_polls(self, times: int) -> View:
        """The view after `times` polls of the counters, which are polled only while somebody watches.

        Raises OperationError before the first view.
        """
        last = self.now()
        read_ns = last.measured_ns
        if self._source.watched and read_ns is not None and last.time_ns - read_ns < _FRESH_NS:
            return last
        with suppress(TimeoutError):
            async with asyncio.timeout(self._reading_s), aclosing(self._source.subscribe()) as views:
                async for view in views:
                    times -= view.counters is not last.counters
                    last = view
                    if times <= 0:
                        break
        return self.now()
