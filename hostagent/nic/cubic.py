# SPDX-License-Identifier: Apache-2.0
"""CUBIC (RFC 9438) as the congestion control of an emulated queue pair; see `hostagent.nic.reno`."""

from __future__ import annotations

from hostagent.nic.congestion import Acknowledgement
from hostagent.nic.reno import LEAST_WINDOW, Reno

SCALE = 0.4
"""C, in packets per cubic second (RFC 9438, section 5)."""
DECREASE = 0.7
"""Beta: the window after a loss or marks, as a part of the window before (RFC 9438, section 4.6)."""
FRIENDLY_INCREASE = 3 * (1 - DECREASE) / (1 + DECREASE)
"""Alpha: the increase a round trip of the estimate of Reno's window (RFC 9438, section 4.3)."""


class Cubic(Reno):
    """The congestion window of one queue pair: a cubic function of the time since the last decrease, but
    never below an estimate of Reno's window.

    On links of this scale and round trips of some ms that estimate is nearly always the greater one: C counts
    seconds, and phases last a tenth of one.
    """

    __slots__ = ("_before", "_began", "_estimate", "_k", "_most_window")

    def __init__(self, most: int, idle_ns: int) -> None:
        super().__init__(most, idle_ns)
        self._most_window = 0.0
        self._before = 0.0
        self._began = -1
        self._k = 0.0
        self._estimate = 0.0

    def restart(self, idle_ns: int, *, iteration: bool) -> None:
        """As Reno. Idle time does not count for the cubic function (RFC 9438, section 5.8)."""
        super().restart(idle_ns, iteration=iteration)
        self._began = -1

    def _grow(self, ack: Acknowledgement) -> None:
        """Congestion avoidance (RFC 9438, sections 4.2 to 4.5)."""
        if self._began < 0:
            self._begin(ack.now)
        alpha = FRIENDLY_INCREASE if self._estimate < self._before else 1.0
        self._estimate += self.weight * alpha * ack.acked / self.cwnd
        since = (ack.now - self._began) / 1e9
        if self._cubic(since) < self._estimate:
            self._set(max(self.cwnd, self._estimate))
            return
        target = min(max(self._cubic(since + ack.rtt_ns / 1e9), self.cwnd), 1.5 * self.cwnd)
        self._set(self.cwnd + self.weight * ack.acked * (target - self.cwnd) / self.cwnd)

    def _begin(self, now: int) -> None:
        """A stage of congestion avoidance begins (RFC 9438, section 4.2)."""
        self._began = now
        self._estimate = self.cwnd
        if self.cwnd < self._most_window:
            self._k = float(((self._most_window - self.cwnd) / SCALE) ** (1 / 3))
        else:
            self._k = 0.0
            self._most_window = self.cwnd

    def _cubic(self, since_s: float) -> float:
        """RFC 9438, equation 1."""
        return SCALE * (since_s - self._k) ** 3 + self._most_window

    def _on_mark(self, ack: Acknowledgement) -> None:
        """Marks reduce the window as a loss does (RFC 9438, section 4.6)."""
        self._on_lost(ack.flight)

    def _on_lost(self, flight: int) -> None:
        """Multiplicative decrease (RFC 9438, section 4.6), with fast convergence (section 4.7)."""
        self._before = self.cwnd
        converging = self.cwnd < self._most_window
        self._most_window = self.cwnd * (1 + DECREASE) / 2 if converging else self.cwnd
        self.ssthresh = max(flight * DECREASE, LEAST_WINDOW)
        self._began = -1
        self._set(self.ssthresh)
