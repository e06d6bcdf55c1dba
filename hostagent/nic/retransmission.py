# SPDX-License-Identifier: Apache-2.0
"""When a queue pair stops waiting for an acknowledgement and sends again."""

from __future__ import annotations

from collections.abc import Callable

from hostagent.clock import EventClock


class RetransmissionTimer:
    """Calls `on_timeout` when a sender has waited too long since its last packet or acknowledgement.

    Each time-out doubles the next one, from `first_ns` up to `longest_ns` (the queue pair's ack_timeout). It
    is halved when a packet that was first sent after the time-out is acknowledged, and again for each window
    after that. These are the steps of a ConnectX (NVIDIA, "Adaptive Retransmission: Parameters Control"); its
    ranges and its random first value are left out, and no error ends the queue pair. `activity`: when the
    last packet left or the last acknowledgement arrived, in ns.
    """

    __slots__ = (
        "_armed",
        "_clock",
        "_eased_at",
        "_first_ns",
        "_longest_ns",
        "_on_timeout",
        "_timeout_ns",
        "_token",
        "activity",
    )

    def __init__(
        self, clock: EventClock, first_ns: int, longest_ns: int, on_timeout: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._first_ns = self._timeout_ns = first_ns
        self._longest_ns = longest_ns
        self._on_timeout = on_timeout
        self.activity = 0
        self._armed = False
        self._eased_at = 0
        self._token = 0

    def sent(self, start: int) -> None:
        """A packet leaves at `start`."""
        self.activity = start
        if not self._armed:
            self._arm(self._clock.now + self._timeout_ns)

    def acknowledged(self, una: int, end: int) -> None:
        """All packets before `una` are acknowledged; `end` is the packet after the last one ever sent."""
        self.activity = self._clock.now
        if self._timeout_ns > self._first_ns and una > self._eased_at:
            self._eased_at = end
            self._set(max(self._timeout_ns // 2, self._first_ns))

    def reset(self) -> None:
        """The next time-out is the first one again. A new path may live where the old one was dead; and where
        a lost packet has arrived now, it had not waited in a starved queue."""
        if self._timeout_ns != self._first_ns:
            self._set(self._first_ns)

    def shorten(self, timeout_ns: int | None) -> None:
        """The next time-out comes after `timeout_ns` at the latest, until `reset` or None is given."""
        if timeout_ns is None and self._timeout_ns < self._first_ns:
            self._set(self._first_ns)
        elif timeout_ns is not None and timeout_ns < self._timeout_ns:
            self._set(timeout_ns)

    def due(self, end: int, *, waiting: bool) -> bool:
        """Whether the time is over now. `waiting`: an acknowledgement is missing; `end` as above.

        If so, the time-out has doubled, and the timer is off until the next packet is sent.
        """
        if not waiting:
            self._armed = False
            return False
        due = self.activity + self._timeout_ns
        if self._clock.now < due:
            self._arm(due)
            return False
        self._armed = False
        self._timeout_ns = min(2 * self._timeout_ns, self._longest_ns)
        self._eased_at = end
        return True

    def _set(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        if self._armed:
            self._arm(self.activity + timeout_ns)

    def _arm(self, due: int) -> None:
        self._armed = True
        self._token += 1
        self._clock.call_at(max(due, self._clock.now), self._ring, self._token)

    def _ring(self, token: int) -> None:
        if token == self._token:
            self._on_timeout()
