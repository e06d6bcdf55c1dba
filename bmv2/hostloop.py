# SPDX-License-Identifier: Apache-2.0
"""The data plane on the host's clock: one thread with timed events, work from server threads, and sockets."""

from __future__ import annotations

import heapq
import itertools
import queue
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

# Chosen: select() takes no more than 2^31 ms, and an event may be due much later than that.
_LONGEST_WAIT_S = 3600.0


class HostLoop:
    """A Clock and a Boundary on the host's clock. `run` makes the calling thread the data-plane thread.

    `now` is in nanoseconds since the epoch, monotonic, and stands still within one callback. A timed
    event sees the time it was due at, even if it runs late: a transmitter keeps its rate on average.
    """

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self.now = self._host_ns()
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._signals_wake = False
        self.watch(self._wake_out, self._drain_wakes)
        self._stopping = threading.Event()
        # Held while the loop stops and while work is handed to it: what comes later finds it stopped. A
        # signal handler may stop the loop while its own thread hands work over.
        self._handing_over = threading.RLock()

    def _host_ns(self) -> int:
        return self._epoch_ns + time.monotonic_ns()

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` at `time_ns` (data-plane thread, or before `run`)."""
        heapq.heappush(self._events, (time_ns, next(self._order), callback, args))

    def watch(self, source: socket.socket, readable: Callable[[], None]) -> None:
        """Run `readable` whenever the socket has something to read (call before `run`)."""
        self._selector.register(source, selectors.EVENT_READ, readable)

    def deliver(self, node: str, effect: Callable[[], None]) -> None:
        """Run `effect` on the data-plane thread as soon as it is free, in the order of delivery.

        Once the loop has stopped nothing runs: a client may talk for as long as its connection lasts.
        """
        with self._handing_over:
            if not self._stopping.is_set():
                self._inbox.put(effect)
                self._wake()

    def call(self, node: str, function: Callable[[], T]) -> T:
        """Run `function` on the data-plane thread and wait for its result.

        Raises ConnectionError when the loop has stopped.
        """
        result: Future[T] = Future()

        def answer() -> None:
            result.set_result(function())

        self.deliver(node, answer)
        while not self._stopping.is_set():
            try:
                return result.result(timeout=0.5)
            except TimeoutError:
                continue
        raise ConnectionError(f"{node}: the data plane has stopped")

    def depart(self, node: str, channel: str, send: Callable[[], None]) -> None:
        """Send at once."""
        send()

    def arrived(self, channel: str) -> None:
        """Do nothing: on the host's clock no part waits for arrivals."""

    def stop(self) -> None:
        """Make `run` return. May be called from any thread or a signal handler."""
        with self._handing_over:
            if not self._stopping.is_set():
                self._stopping.set()
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
        """Live until `stop`, or until a callback raises."""
        try:
            while not self._stopping.is_set():
                self._run_due()
                for key, _ in self._selector.select(self._patience_s()):
                    self._run_due()
                    key.data()
                self._run_inbox()
        finally:
            # A thread that waits in `call` must not wait for a loop that has ended.
            with self._handing_over:
                self._stopping.set()

    def close(self) -> None:
        """Give back the loop's own sockets, after `run` has returned."""
        self._selector.close()
        if self._signals_wake:
            signal.set_wakeup_fd(-1)
        self._wake_in.close()
        self._wake_out.close()

    def _patience_s(self) -> float | None:
        if not self._inbox.empty():
            return 0.0
        if not self._events:
            return None
        return min(max(0, self._events[0][0] - self._host_ns()) / 1e9, _LONGEST_WAIT_S)

    def _run_due(self) -> None:
        present = self._host_ns()
        while self._events and self._events[0][0] <= present:
            due, _, callback, args = heapq.heappop(self._events)
            self.now = max(self.now, due)
            callback(*args)
        self.now = max(self.now, present)

    def _run_inbox(self) -> None:
        for _ in range(self._inbox.qsize()):
            self._run_due()
            self._inbox.get()()

    def _wake(self) -> None:
        try:
            self._wake_in.send(b"\0")
        except BlockingIOError:
            # The pipe is full of wakes already: the loop cannot miss this one.
            return

    def _drain_wakes(self) -> None:
        self._wake_out.recv(4096)
