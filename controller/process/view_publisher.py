# SPDX-License-Identifier: Apache-2.0
"""Publishes views for the API and the page, and polls the switches' counters while somebody watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from controller.live.core import Core
from controller.live.notices import CountersRead, Notice
from controller.live.views import build_view
from controller.model.view import View
from controller.northbound.source import ViewBoard
from controller.process.clock import EmbeddedClock, HostClock, PeriodicTimer
from controller.southbound.fleet import SwitchFleet

# The least time between two views, in host time; a new plan is shown at once. Chosen: the page takes ten a
# second.
VIEW_INTERVAL_S = 0.05


class WatchedBoard(ViewBoard):
    """A board that counts its subscribers.

    Counters are polled only while there are subscribers. Without subscribers a view is made only when it is
    asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watchers = 0
        self._make: Callable[[], View] | None = None

    def offer(self, make: Callable[[], View]) -> None:
        """The state has changed; `make()` returns the view of it."""
        self._make = make
        if self.watchers:
            self.snapshot()

    def snapshot(self) -> View | None:
        """The view of the present state; None before the first."""
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
    """Decides when a view is published. `poll_always`: read counters also while no client watches."""

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
        """Set the fleet whose counters are read."""
        self._fleet = fleet

    @property
    def next_timer_ns(self) -> int | None:
        """When to read the counters next; None while no client watches."""
        return self._polls.next_ns

    def poll_due(self) -> bool:
        """Whether the counters are to be read now: a poll is due, and somebody watches."""
        if not (self._poll_always or self.board.watchers):
            self._polls.stop()
            return False
        return self._polls.due(self._clock.now_ns)

    async def poll(self) -> None:
        """Read the counters of all switches now."""
        if self._fleet is None:
            return
        core = self._core
        core.counters.read(core.now_ns, await self._fleet.read_counters())
        self._publish(CountersRead(core.now_ns, core.counters.queues))

    def soon(self) -> None:
        """The state has changed: publish a view within `VIEW_INTERVAL_S`, together with further changes."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(VIEW_INTERVAL_S, self.now)

    def now(self) -> None:
        """Publish a view of the present state at once."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._fleet is not None:
            self.board.offer(partial(build_view, self._core, self._fleet, self._scenario))
