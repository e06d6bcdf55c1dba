# SPDX-License-Identifier: Apache-2.0
"""DCTCP (RFC 8257) as the congestion control of an emulated queue pair; see `hostagent.nic.reno`."""

from __future__ import annotations

from hostagent.nic.congestion import Acknowledgement
from hostagent.nic.reno import LEAST_WINDOW, Reno

GAIN = 1 / 16
"""g, the weight of a new window in the estimate (RFC 8257, section 4.1)."""


class Dctcp(Reno):
    """The congestion window of one queue pair, which marks reduce by the part of packets that are marked.

    `alpha` estimates that part. It grows as Reno does, and reacts to losses as Reno does.
    """

    __slots__ = ("_acked", "_marked", "_window_end", "alpha")

    def __init__(self, most: int, idle_ns: int) -> None:
        super().__init__(most, idle_ns)
        self.alpha = 1.0
        self._window_end = -1
        self._acked = self._marked = 0

    def on_ack(self, ack: Acknowledgement) -> None:
        """Count marks, update the estimate once a window (RFC 8257, section 3.3), then grow or shrink."""
        self._acked += ack.acked
        self._marked += ack.acked if ack.marked else 0
        if ack.una > self._window_end:
            self.alpha = (1 - GAIN) * self.alpha + GAIN * self._marked / self._acked
            self._window_end = ack.end
            self._acked = self._marked = 0
        super().on_ack(ack)

    def _on_mark(self, ack: Acknowledgement) -> None:
        """Reduce the window by alpha / 2 (RFC 8257, section 3.4)."""
        self.ssthresh = max(self.cwnd * (1 - self.alpha / 2), LEAST_WINDOW)
        self._set(self.ssthresh)
