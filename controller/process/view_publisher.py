# SPDX-License-Identifier: Apache-2.0
"""What the engine shows: views for the API and the page, at most so often, and counters for whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from controller.live.core import Core
from controller.live.messages import CountersRead, Notice
from controller.live.views import build_view
from controller.model.view import View
from controller.northbound.source import ViewBoard
from controller.process.clock import EmbeddedClock, HostClock, PeriodicTimer
from controller.southbound.fleet import SwitchFleet

# Views are made at most so often, in host time; a new plan is shown at once.
VIEW_INTERVAL_S = 0.05


class WatchedBoard(ViewBoard):
    """A board that knows how many subscribers it has: counters are polled only for them, and a view is made
    for each change only while there are some."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers = 0
        self._make: Callable[[], View] | None = None

    def offer(self, make: Callable[[], View]) -> None:
        """There is something new, and `make()` gives the view of it."""
        self._make = make
        if self.watchers:
            self.snapshot()

    def snapshot(self) -> View | None:
        """The view as things stand; None before the first."""
        if self._make is not None:
            make, self._make = self._make, None
            self.publish(make())
        return super().snapshot()

    async def subscribe(self) -> AsyncGenerator[View]:
        """The current view, then the newest after each change."""
        self.watchers += 1
        self.snapshot()
        try:
            async for view in super().subscribe():
                yield view
        finally:
            self.watchers -= 1


class ViewPublisher:
    """The board, and when something goes onto it. `poll_always`: read counters also when nobody watches."""

    def __init__(
        self,
        core: Core,
        clock: EmbeddedClock | HostClock,
        publish: Callable[[Notice], None],
        *,
        scenario: str,
        poll_ns: int,
        poll_always: bool,
    ) -> None:
        self.board = WatchedBoard()
        self._core = core
        self._clock = clock
        self._publish = publish
        self._scenario = scenario
        self._poll_always = poll_always
        self._polls = PeriodicTimer(poll_ns, immediate=True)
        self._due: asyncio.TimerHandle | None = None
        self._fleet: SwitchFleet | None = None

    def connect(self, fleet: SwitchFleet) -> None:
        """Whose counters are read."""
        self._fleet = fleet

    @property
    def next_timer_ns(self) -> int | None:
        """When counters are to be read next."""
        return self._polls.next_ns

    async def poll_if_due(self) -> None:
        """Read counters if it is time, and somebody looks."""
        if not (self._poll_always or self.board.watchers):
            self._polls.stop()
        elif self._polls.due(self._clock.now_ns):
            await self.poll()

    async def poll(self) -> None:
        """Read counters now."""
        if self._fleet is None:
            return
        core = self._core
        core.counters.read(core.now_ns, await self._fleet.read_counters())
        self._publish(CountersRead(core.now_ns, core.counters.queues))

    def soon(self) -> None:
        """Something has changed: show it with what else changes within a moment."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(VIEW_INTERVAL_S, self.now)

    def now(self) -> None:
        """Show how things stand."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._fleet is not None:
            self.board.offer(partial(build_view, self._core, self._fleet, self._scenario))
