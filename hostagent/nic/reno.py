# SPDX-License-Identifier: Apache-2.0
"""Reno (RFC 5681, with ECN as in RFC 3168) as the congestion control of an emulated queue pair.

RoCE NICs do not run Reno, CUBIC or DCTCP. The MLTCP chapter of the CASSINI thesis uses these three, and the
emulated NIC runs them over its own reliable transport. So a NAK stands for three duplicate acknowledgements,
and go-back-N for fast retransmit: what follows the lost packet is sent again too. Windows count packets of
the NIC's MTU.

ECN: the sender sets a reserved bit of the BTH (`roce.ECHO_REQUEST`). The receiver then sends no CNPs. It
echoes CE in the BECN bit of its acknowledgements, where InfiniBand's own congestion control has it (annex
A10), and acknowledges at once when CE changes between two packets (RFC 8257, section 3.2). So each
acknowledgement says of all packets that it acknowledges whether they were marked.
"""

from __future__ import annotations

from math import inf

from hostagent.nic.congestion import Acknowledgement

INITIAL_WINDOW = 10
"""Packets; RFC 6928, and the window to which MLTCP goes back at the start of an iteration (thesis, 1.2)."""
LEAST_WINDOW = 2
"""Packets; the least slow-start threshold of RFC 5681, equation 4."""
LOSS_WINDOW = 1
"""Packets, after a time-out (RFC 5681, section 3.1)."""
ACK_EVERY = 2
"""A TCP receiver acknowledges at least every second packet (RFC 5681, section 4.2)."""


class Reno:
    """The congestion window of one queue pair.

    `cwnd` and `ssthresh` are in packets. At most `most` packets are in flight, whatever `cwnd` is: the NIC's
    own bound. An idle time of `idle_ns` restarts the window (RFC 5681, section 4.1).
    """

    __slots__ = (
        "_idle_ns",
        "_last_peak",
        "_most",
        "_peak",
        "_recover",
        "_round_end",
        "cwnd",
        "limited",
        "rate",
        "ssthresh",
        "weight",
        "window",
    )

    echoes = True
    ack_every = ACK_EVERY

    def __init__(self, most: int, idle_ns: int) -> None:
        self._most = most
        self._idle_ns = idle_ns
        self.cwnd = float(INITIAL_WINDOW)
        self.ssthresh = inf
        self.weight = 1.0
        self.limited = False
        self.rate = inf
        self.window = min(INITIAL_WINDOW, most)
        self._recover = -1
        self._round_end = -1
        self._peak = self._last_peak = 0

    def weigh(self, weight: float, height: float | None) -> None:
        """Scale the increase in congestion avoidance by `weight`."""
        self.weight = weight

    def restart(self, idle_ns: int, *, iteration: bool) -> None:
        """Go back to 10 packets at the start of an iteration, and at most to them after an idle time."""
        if iteration:
            self._set(float(INITIAL_WINDOW))
        elif idle_ns > self._idle_ns:
            self._set(min(self.cwnd, float(INITIAL_WINDOW)))

    def advance(self, now: int, sent_bytes: int = 0) -> None:
        """Nothing: only the window limits."""

    def on_cnp(self, now: int) -> None:
        """Nothing: marks come back in acknowledgements."""

    def on_ack(self, ack: Acknowledgement) -> None:
        """Grow, or shrink once a round trip if the receiver echoes marks."""
        full = self._is_full(ack)
        if ack.marked:
            if ack.una > self._recover:
                self._recover = ack.end
                self._on_mark(ack)
        elif not full:
            return
        elif self.cwnd < self.ssthresh:
            # Byte counting with L = 2 (RFC 3465): with an acknowledgement for two packets the window still
            # doubles in a round trip.
            self._set(self.cwnd + min(ack.acked, ACK_EVERY))
        else:
            self._grow(ack)

    def on_loss(self, now: int, una: int, end: int, flight: int) -> None:
        """Halve the window, once for all losses of a window (RFC 5681, section 3.2)."""
        # `una` itself is lost: it is the packet after `_recover` if the window was reduced before it was
        # sent.
        if una >= self._recover:
            self._recover = end
            self._on_lost(flight)

    def on_timeout(self, now: int, una: int, end: int, flight: int) -> None:
        """Start again from one packet (RFC 5681, section 3.1)."""
        # Of several time-outs for the same packet only the first sets the threshold.
        if una >= self._recover or self.cwnd > LOSS_WINDOW:
            self._on_lost(flight)
        self._recover = end
        self._set(float(LOSS_WINDOW))

    def _grow(self, ack: Acknowledgement) -> None:
        """Congestion avoidance: one packet a round trip (RFC 5681, equation 3)."""
        self._set(self.cwnd + self.weight * ack.acked / self.cwnd)

    def _on_mark(self, ack: Acknowledgement) -> None:
        """The reaction to marks, once a round trip: as to a loss (RFC 3168, section 6.1.2)."""
        self.ssthresh = max(self.cwnd / 2, LEAST_WINDOW)
        self._set(self.ssthresh)

    def _on_lost(self, flight: int) -> None:
        """The reaction to a loss (RFC 5681, equation 4)."""
        self.ssthresh = max(flight / 2, LEAST_WINDOW)
        self._set(self.ssthresh)

    def _is_full(self, ack: Acknowledgement) -> bool:
        """Whether the window limited the sender in this or the last round trip; if not, it must not grow.

        The rule of RFC 7661, section 4.1, with its factor of two in slow start. Elsewhere up to ACK_EVERY
        packets may be missing: those that the acknowledgement before this one released and the NIC still
        paces.
        """
        self._peak = max(self._peak, ack.flight)
        if ack.una > self._round_end:
            self._round_end = ack.end
            self._last_peak, self._peak = self._peak, ack.flight
        peak = max(self._peak, self._last_peak)
        return self.cwnd < 2 * peak if self.cwnd < self.ssthresh else int(self.cwnd) <= peak + ACK_EVERY

    def _set(self, cwnd: float) -> None:
        self.cwnd = min(cwnd, float(self._most))
        self.window = int(self.cwnd)
