# SPDX-License-Identifier: Apache-2.0
"""The agent's event loop on the host's clock: timers, sockets and calls from other threads, in one thread.

The callback of a timer sees the time at which it was due, even if it runs late, so an emulated NIC keeps its
rate on average. asyncio has no such rule, and its timers are coarser than the NIC needs.
"""

from __future__ import annotations

import heapq
import itertools
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_MOST_AT_ONCE = 64
"""The most timers that run before the sockets are served again, even if the NIC is late. Chosen."""


class Timer:
    """A timer that can be cancelled."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the timer."""
        self.cancelled = True


class AgentLoop:
    """An EventClock on the host's monotonic clock, which all processes of a machine share.

    `now` is in nanoseconds and stands still within a callback. All methods but `call` and `stop` are for the
    thread that runs the loop, or for the time before `run`.
    """

    def __init__(self) -> None:
        self.now = time.monotonic_ns()
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._watched = select.epoll()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._signals_wake = False
        self._awake = False
        self._lock = threading.Lock()
        self._stopping = False
        self.watch(self._wake_out.fileno(), self._drain)

    def present(self) -> int:
        """The host's monotonic clock now; `now` is the time at which the present callback was due."""
        return time.monotonic_ns()

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` at `time_ns`, or at once if that is past."""
        heapq.heappush(self._events, (time_ns, next(self._order), callback, args))

    def timer(self, delay_ns: int, callback: Callable[..., None], *args: Any) -> Timer:
        """Run `callback(*args)` after a delay. The result can cancel it."""
        handle = Timer()
        self.call_at(self.now + delay_ns, _unless_cancelled, handle, callback, args)
        return handle

    def every(self, interval_ns: int, callback: Callable[[], None]) -> None:
        """Run `callback()` each interval until the loop ends. Missed rounds are skipped."""

        def due() -> None:
            callback()
            self.call_at(max(self.now, time.monotonic_ns()) + interval_ns, due)

        self.call_at(self.now + interval_ns, due)

    def watch(self, descriptor: int, readable: Callable[[], None]) -> None:
        """Run `readable` whenever the descriptor has data to read."""
        self._readers[descriptor] = readable
        self._watch(descriptor)

    def watch_write(self, descriptor: int, writable: Callable[[], None] | None) -> None:
        """Run `writable` whenever the descriptor can be written to; None ends that."""
        if writable is None:
            if self._writers.pop(descriptor, None) is None:
                return
        else:
            self._writers[descriptor] = writable
        self._watch(descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching the descriptor."""
        self._readers.pop(descriptor, None)
        self._writers.pop(descriptor, None)
        self._watch(descriptor)

    def call(self, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` on the loop's thread soon. May be called from any thread; calls run in
        order."""
        self._calls.append((callback, args))
        self._wake()

    def stop(self) -> None:
        """Make `run` return. May be called from any thread or a signal handler."""
        self._stopping = True
        self._wake()

    def stop_on_signals(self, *numbers: int) -> None:
        """Let these signals stop the loop. Only for the main thread, which then runs the loop.

        Python runs their handlers between two steps of the program, so a signal may come just before the
        loop waits: the system itself wakes it.
        """
        signal.set_wakeup_fd(self._wake_in.fileno(), warn_on_full_buffer=False)
        self._signals_wake = True
        for number in numbers:
            signal.signal(number, lambda *_: self.stop())

    def run(self) -> None:
        """Run until `stop`, or until a callback raises."""
        while not self._stopping:
            self._run_due()
            # epoll counts its time-out in milliseconds, too coarse for the NIC's timers; select counts in
            # microseconds, but takes no descriptor beyond 1,023. So select waits for epoll's own descriptor,
            # which is low, because it is opened at the start of the process.
            select.select((self._watched,), (), (), self._patience_s())
            ready = self._watched.poll(0)
            # Timers that were due before the sockets became ready run first, each at its own time.
            self._run_due()
            for descriptor, event in ready:
                # Also an error or the end of the connection: reading tells which.
                if event & ~select.EPOLLOUT and (reader := self._readers.get(descriptor)) is not None:
                    reader()
            for descriptor, event in ready:
                if event & ~select.EPOLLIN and (writer := self._writers.get(descriptor)) is not None:
                    writer()
            for _ in range(len(self._calls)):
                callback, args = self._calls.popleft()
                callback(*args)

    def close(self) -> None:
        """Close the loop's own sockets, after `run` has returned."""
        if self._signals_wake:
            signal.set_wakeup_fd(-1)
        self._watched.close()
        self._wake_in.close()
        self._wake_out.close()

    def _watch(self, descriptor: int) -> None:
        """Tell epoll what is watched of a descriptor."""
        wanted = (select.EPOLLIN if descriptor in self._readers else 0) | (
            select.EPOLLOUT if descriptor in self._writers else 0
        )
        try:
            if wanted:
                self._watched.modify(descriptor, wanted)
            else:
                # Errors would be told as long as the descriptor is registered.
                self._watched.unregister(descriptor)
        except FileNotFoundError:
            if wanted:
                self._watched.register(descriptor, wanted)

    def _patience_s(self) -> float | None:
        if self._calls or self._stopping:
            return 0.0
        if not self._events:
            return None
        return max(0, self._events[0][0] - time.monotonic_ns()) / 1e9

    def _run_due(self) -> None:
        present = time.monotonic_ns()
        for _ in range(_MOST_AT_ONCE):
            if not self._events or self._events[0][0] > present:
                self.now = max(self.now, present)
                return
            due, _, callback, args = heapq.heappop(self._events)
            self.now = max(self.now, due)
            callback(*args)

    def _wake(self) -> None:
        with self._lock:
            if self._awake:
                return
            self._awake = True
        self._wake_in.send(b"\0")

    def _drain(self) -> None:
        self._wake_out.recv(16)
        with self._lock:
            self._awake = False


def _unless_cancelled(handle: Timer, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
    if not handle.cancelled:
        callback(*args)
