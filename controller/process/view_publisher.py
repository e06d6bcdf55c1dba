# SPDX-License-Identifier: Apache-2.0
"""Publishes views for the API and the page, and polls the switches' counters while somebody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from controller.live.core import Core
from controller.live.notices import CountersRead, Notice
from controller.live.past_states import PastState
from controller.live.plan_reasons import PlanReasons
from controller.live.recorder import Recorder
from controller.live.views import Surroundings, ViewBuilder
from controller.model.view import Alarm, View
from controller.northbound.source import ViewBoard
from controller.process.clock import EmbeddedClock, HostClock, PeriodicTimer
from controller.process.durable_state import DurableState
from controller.process.loop_options import LoopOptions
from controller.southbound.fleet import SwitchFleet

# The least time between two views, in host time; a new plan is shown at once. Chosen: requests a second see
# what others have changed, and views of a large fabric take at most a part of the event loop's time.
VIEW_INTERVAL_S = 0.05
VIEW_PART = 0.05
# How often the counters are read for the history while nobody watches, on the host's clock. Chosen: a bucket
# of ten minutes has a value then.
HISTORY_POLL_NS = 10_000_000_000


class WatchedBoard(ViewBoard):
    """A board that counts its watchers.

    Counters are polled only while there are watchers. A view is made when it is asked for, and after each
    change only while there are subscribers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watchers = 0
        self._subscribers = 0
        self._make: Callable[[], View] | None = None

    def offer(self, make: Callable[[], View]) -> None:
        """The state has changed; `make()` returns the view of it."""
        self._make = make
        if self._subscribers:
            self.snapshot()

    def outdate(self, make: Callable[[], View]) -> None:
        """The state has changed: who asks next has `make()`. Subscribers have it with the next view."""
        self._make = make

    def snapshot(self) -> View | None:
        """The view of the present state; None before the first."""
        if self._make is not None:
            make, self._make = self._make, None
            self.publish(make())
        return super().snapshot()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it, counters are polled."""
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1

    @property
    def published(self) -> View | None:
        """The view that was published last, if nothing has changed since. Any thread may ask."""
        return super().published if self._make is None else None

    @property
    def watched(self) -> bool:
        """Whether there are watchers."""
        return self.watchers > 0

    async def subscribe(self) -> AsyncGenerator[View]:
        """The current view, then the newest after each change."""
        with self.watching():
            self._subscribers += 1
            self.snapshot()
            try:
                async for view in super().subscribe():
                    yield view
            finally:
                self._subscribers -= 1


class ViewPublisher:
    """Decides when a view is published, and when counters are read for views and for the history."""

    def __init__(
        self,
        core: Core,
        clock: EmbeddedClock | HostClock,
        publish: Callable[[Notice], None],
        options: LoopOptions,
        state: DurableState | None,
    ) -> None:
        self.board = WatchedBoard()
        self.recorder = Recorder(core.topology)
        self._core = core
        self._clock = clock
        self._publish = publish
        self._poll_always = options.poll_always
        self._polls = PeriodicTimer(options.poll_ns, immediate=True)
        self._seldom_polls = PeriodicTimer(HISTORY_POLL_NS)
        if state is not None:
            self.recorder.history.restore(state.restored_history)
        self.reasons = PlanReasons(core)
        embedded = isinstance(clock, EmbeddedClock)
        self._builder = ViewBuilder(core, options.scenario, emulated=embedded, reasons=self.reasons)
        self._alarms: tuple[Alarm, ...] = ()
        self._made_s = 0.0
        self._due: asyncio.TimerHandle | None = None
        self._fleet: SwitchFleet | None = None
        self._surroundings: Surroundings | None = None

    def connect(self, fleet: SwitchFleet, surroundings: Surroundings | None = None) -> None:
        """Set the fleet whose counters are read, and what else alarms are derived from."""
        self._fleet, self._surroundings = fleet, surroundings

    @property
    def next_timer_ns(self) -> int | None:
        """When to read the counters next; None: not before a client watches."""
        times = (self._polls.next_ns, self._seldom_polls.next_ns)
        return min((t for t in times if t is not None), default=None)

    def poll_due(self) -> bool:
        """Whether the counters are to be read now: a poll is due, and somebody watches. On the host's clock
        they are also read for the history, seldom.
        """
        now_ns = self._clock.now_ns
        seldom = isinstance(self._clock, HostClock) and self._seldom_polls.due(now_ns)
        if not (self._poll_always or self.board.watchers):
            self._polls.stop()
            return seldom
        return self._polls.due(now_ns)

    async def poll(self) -> None:
        """Read the counters of all switches now."""
        if self._fleet is None:
            return
        core = self._core
        values = await self._fleet.read_counters()
        for _ in core.counters.steps(core.now_ns, values):
            # On the host's clock agents are answered in between.
            await asyncio.sleep(0)
        self.recorder.loads_read(core.now_ns, *self._builder.figures())
        self._publish(CountersRead(core.now_ns, core.counters.queues))

    def noticed(self, notice: Notice) -> None:
        """Something has happened that views may show."""
        self._builder.noticed(notice)
        self.recorder.noticed(notice)

    def soon(self) -> None:
        """The state has changed: publish a view within `VIEW_INTERVAL_S`, together with further changes. A
        view that takes long to make comes later.
        """
        if self._due is None:
            after_s = max(VIEW_INTERVAL_S, self._made_s / VIEW_PART)
            self._due = asyncio.get_running_loop().call_later(after_s, self.now)

    def now(self) -> None:
        """Publish a view of the present state at once."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self.reasons.look()
        self._record()
        if self._fleet is not None:
            self.board.offer(partial(self._make, self._fleet))

    def outdate(self) -> None:
        """A request has changed the state: who has its answer sees the change in the next one."""
        if self._fleet is not None:
            self.board.outdate(partial(self._make, self._fleet))

    def _record(self) -> None:
        """Record the present state, for those who look back."""
        core = self._core
        plan = core.plan
        state = PastState(
            core.now_ns,
            None if plan is None else plan.version,
            "" if plan is None else plan.policy.name,
            tuple(job.name for job in core.registry.jobs),
            core.condition.failed_names,
            self._alarms,
        )
        self.recorder.states.add(state)

    def _make(self, fleet: SwitchFleet) -> View:
        began_s = time.perf_counter()
        view = self._builder.view(fleet, self._surroundings)
        self._made_s = time.perf_counter() - began_s
        self._alarms = view.alarms
        return view
