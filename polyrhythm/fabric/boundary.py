# SPDX-License-Identifier: Apache-2.0
"""The boundary between fabric time and host time.

The rule of time: when messages leave the fabric at time t, the event heap stops. The messages are sent in the
order (node, order of departure). A tick tells the controller how many there were. The controller answers
`settled` when it has received all of them and answered all. Effects that arrived meanwhile land at t plus the
control delay, in the order (node, order of arrival). The fabric waits for a controller as long as that lives
and speaks: host time decides only when the fabric says so, and when it gives up.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from polyrhythm.fabric.heap import EventHeap

log = logging.getLogger(__name__)

T = TypeVar("T")

# Host time, both chosen: when the fabric says that it waits for its controller, and when it gives up a
# controller that has said nothing at all. A busy controller says every few seconds that it lives
# (controller/agents/server.py: ALIVE_S).
NOTICE_S = 5.0
SILENCE_S = 120.0

# How often the heap's thread looks at the time while it waits. Chosen.
_LOOK_S = 0.05

# How often a waiting server thread checks whether the fabric has ended. Chosen.
CLOSED_CHECK_S = 0.2


class ControllerLostError(RuntimeError):
    """The controller is gone, or it is silent. The message is for a person."""


@dataclass(frozen=True, slots=True)
class CableOrder:
    """Cut the cable at a port of a switch, or mend it."""

    switch: str
    port: int
    cut: bool


@dataclass(frozen=True, slots=True)
class Settlement:
    """The controller's answer to a tick; with sequence 0 it says only that it lives.

    `sent` is the number of messages that the controller has sent so far, by channel. `next_timer_ns` is the
    fabric time of its next timer; 0: none. `orders` are what an operator asks of cables.
    """

    sequence: int
    sent: Mapping[str, int]
    next_timer_ns: int
    orders: tuple[CableOrder, ...] = ()


TickSender = Callable[[int, int, Mapping[str, int], bool, bool], None]
"""Sends (sequence, time_ns, sent, timer, last) to the controller as a tick. The answer arrives by
`FabricBoundary.settled`."""


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    done: threading.Event
    result: Any = None
    error: BaseException | None = None


class FabricBoundary:
    """The boundary of an embedded fabric.

    Server threads may call `deliver`, `call`, `arrived`, `settled` and `controller_lost`. All other methods
    belong to the thread of the event heap, and `on_order`, which carries out an order, is called there. While
    it waits for the controller it calls `waiting` with the seconds of host time so far, every `notice_s`. It
    gives up after `silence_s` without a word.
    """

    def __init__(
        self,
        heap: EventHeap,
        control_delay_ns: int,
        *,
        waiting: Callable[[float], None] | None = None,
        notice_s: float = NOTICE_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._heap = heap
        self._control_delay_ns = control_delay_ns
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._departures: list[tuple[str, int, str, Callable[[], object]]] = []
        self._sent: dict[str, int] = defaultdict(int)
        self._announced: dict[str, int] = {}
        self._received: dict[str, int] = defaultdict(int)
        self._effects: list[tuple[str, int, Callable[[], None]]] = []
        self._tick: TickSender | None = None
        self._sequence = 0
        self._settlement: Settlement | None = None
        self._timer_generation = 0
        self._timer_due = False
        self._closed = False
        self._waiting = waiting or (lambda seconds: None)
        self._notice_s = notice_s
        self._silence_s = silence_s
        self._heard_s = time.monotonic()
        self._lost = False
        self.notes: list[str] = []
        self.on_order: Callable[[CableOrder], None] = lambda order: None

    # From server threads.

    def deliver(self, node: str, effect: Callable[[], None]) -> None:
        """Hand over `effect`. It takes effect one control delay after the present stop."""
        self._heard_s = time.monotonic()
        self._inbox.put(lambda: self._effects.append((node, len(self._effects), effect)))

    def call(self, node: str, function: Callable[[], T]) -> T:
        """Run `function` on the heap's thread now, and wait for its result.

        Raises:
            ConnectionAbortedError: the fabric ended meanwhile.
        """
        self._heard_s = time.monotonic()
        call = _Call(function, threading.Event())
        self._inbox.put(lambda: _answer(call))
        while not call.done.wait(CLOSED_CHECK_S):
            if self._closed:
                raise ConnectionAbortedError("the fabric has ended")
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def arrived(self, channel: str) -> None:
        """Count a message of the controller on `channel`. Its effect has been delivered already."""
        self._heard_s = time.monotonic()
        self._inbox.put(lambda: self._count(channel))

    def settled(self, settlement: Settlement) -> None:
        """Take the controller's answer to a tick."""
        self._heard_s = time.monotonic()
        self._inbox.put(lambda: self._settle(settlement))

    def controller_lost(self) -> None:
        """The clock stream has ended."""
        self._inbox.put(self._lose)

    # On the heap's thread.

    def depart(self, node: str, channel: str, send: Callable[[], object]) -> None:
        """Queue a message that leaves at the present time. The heap will stop."""
        self._departures.append((node, len(self._departures), channel, send))
        self._heap.stop = True

    def attach(self, tick: TickSender) -> None:
        """Announce stops through `tick` from now on, and wait for the controller at each."""
        self._tick = tick

    @property
    def attached(self) -> bool:
        """Whether a controller follows the clock of this fabric."""
        return self._tick is not None

    def stop(self, *, last: bool = False) -> None:
        """Send the messages that leave at the present time, and wait until the controller has settled.

        Raises:
            ControllerLostError: the controller is gone, or has been silent for too long.
        """
        for _, _, channel, send in sorted(self._departures, key=lambda d: d[:2]):
            # A sender without a session drops the message and says so: nobody will wait for it.
            if send() is not False:
                self._sent[channel] += 1
        self._departures.clear()
        self._drain()
        if self._tick is not None:
            changed = {c: n for c, n in self._sent.items() if self._announced.get(c) != n}
            self._announced.update(changed)
            self._sequence += 1
            self._settlement = None
            self._tick(self._sequence, self._heap.now, changed, self._timer_due, last)
            self.wait_for(self._complete)
        self._timer_due = False
        self._land()

    def close(self) -> None:
        """Release the server threads that wait for the heap. The heap will not run again."""
        self._closed = True

    def service(self) -> None:
        """Do what server threads have asked for, without a stop. For a fabric without a controller."""
        self._drain()
        self._land()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Serve requests of other threads until `condition()` holds.

        Raises:
            ControllerLostError: the controller is gone, or has been silent for too long.
        """
        begun_s = self._heard_s = time.monotonic()
        notice_s = begun_s + self._notice_s
        while not condition():
            with suppress(queue.Empty):
                self._inbox.get(timeout=_LOOK_S)()
                if condition():
                    return
            now = time.monotonic()
            if self._lost or self._closed:
                raise ControllerLostError(f"the controller was lost at {self._heap.now / 1e9:.1f} s")
            if now - self._heard_s > self._silence_s:
                raise ControllerLostError(
                    f"the controller has been silent for {self._silence_s:g} s "
                    f"(at {self._heap.now / 1e9:.1f} s of fabric time)"
                )
            if now >= notice_s:
                notice_s = now + self._notice_s
                self._waiting(now - begun_s)

    def _drain(self) -> None:
        while True:
            try:
                self._inbox.get_nowait()()
            except queue.Empty:
                return

    def _complete(self) -> bool:
        settlement = self._settlement
        return settlement is not None and all(self._received[c] >= n for c, n in settlement.sent.items())

    def _land(self) -> None:
        at = self._heap.now + self._control_delay_ns
        for _, _, effect in sorted(self._effects, key=lambda e: e[:2]):
            self._heap.call_at(at, effect)
        self._effects.clear()
        if self._settlement is not None:
            for order in self._settlement.orders:
                self._heap.call_at(at, self.on_order, order)
        if self._settlement is not None and self._settlement.next_timer_ns:
            self._timer_generation += 1
            self._heap.call_at(self._settlement.next_timer_ns, self._timer, self._timer_generation)
        self._settlement = None

    def _timer(self, generation: int) -> None:
        if generation == self._timer_generation:
            self._timer_due = True
            self._heap.stop = True

    def _count(self, channel: str) -> None:
        self._received[channel] += 1

    def _settle(self, settlement: Settlement) -> None:
        if settlement.sequence == self._sequence:
            self._settlement = settlement

    def _lose(self) -> None:
        self._lost = True

    def note(self, what: str) -> None:
        """Record an event that the reader of the figures must know, and log it."""
        self.notes.append(f"at {self._heap.now / 1e9:.1f} s {what}")
        log.warning("%s", self.notes[-1])


def _answer(call: _Call) -> None:
    try:
        call.result = call.function()
    except Exception as error:  # raised in the thread that called
        call.error = error
    call.done.set()
