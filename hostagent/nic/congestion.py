# SPDX-License-Identifier: Apache-2.0
"""The protocol of a queue pair's congestion control: a bound on packets in flight, and a rate."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Acknowledgement(NamedTuple):
    """New data was acknowledged.

    `now` in ns. `acked` packets are new. `marked`: the receiver echoes that they arrived with CE set. `una`
    is the first packet that is not acknowledged, `end` the packet after the last one ever sent, and `flight`
    the number of packets that were in flight before. `rtt_ns` is the last measured round trip, 0: not known.
    """

    now: int
    acked: int
    marked: bool
    una: int
    end: int
    flight: int
    rtt_ns: int


class CongestionControl(Protocol):
    """What limits a queue pair. The requester reports what happens, and reads `window` and `rate`.

    `window` is the greatest number of packets in flight, and never below 1. `limited` says whether `rate`
    (bit/s on the wire) is below line rate; only then does the requester call `advance`. `weight` scales every
    increase (MLTCP's F); 1 is the plain congestion control. With `echoes` the receiver echoes marks in its
    acknowledgements; without, it sends CNPs. Every `ack_every` packets one requests an acknowledgement.
    """

    window: int
    limited: bool
    rate: float
    weight: float

    @property
    def echoes(self) -> bool:
        """Whether marks come back in acknowledgements instead of CNPs."""

    @property
    def ack_every(self) -> int:
        """The number of packets between two that request an acknowledgement."""

    def weigh(self, weight: float, height: float | None) -> None:
        """Scale the increase by `weight`, F(r) of MLTCP. `height` is F between its least (0) and its greatest
        value (1); None: without MLTCP.
        """

    def restart(self, idle_ns: int, *, iteration: bool) -> None:
        """Something is sent with nothing in flight, `idle_ns` after the last acknowledgement. `iteration`: it
        begins an iteration (MLTCP).
        """

    def advance(self, now: int, sent_bytes: int = 0) -> None:
        """`sent_bytes` leave at `now` (ns). Called only while `limited`."""

    def on_cnp(self, now: int) -> None:
        """A congestion notification has arrived at `now` (ns)."""

    def on_ack(self, ack: Acknowledgement) -> None:
        """New data was acknowledged."""

    def on_loss(self, now: int, una: int, end: int, flight: int) -> None:
        """A NAK at `now` (ns) says that packet `una` was lost; `end` and `flight` as in Acknowledgement."""

    def on_timeout(self, now: int, una: int, end: int, flight: int) -> None:
        """No acknowledgement arrived in time."""
