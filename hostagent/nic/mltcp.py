# SPDX-License-Identifier: Apache-2.0
"""MLTCP (CASSINI thesis, 1.2): a sender increases its rate faster, the more of its iteration it has sent.

Without it, jobs that communicate at the same time on a link stay so. With it the job that is slightly ahead
gets more bandwidth, ends earlier and starts its next iteration earlier, until the jobs communicate one after
the other. No coordination between them is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

Shape = Callable[[float], float]
"""F: the part of an iteration's bytes that are sent (0 to 1) -> the weight of the rate increase."""

SLOPE, INTERCEPT = 1.75, 0.25


def linear(ratio: float) -> float:
    """F of the thesis: SLOPE * r + INTERCEPT."""
    return SLOPE * ratio + INTERCEPT


def _square(ratio: float) -> float:
    return 1.75 * ratio * ratio + 0.25


def _inverse(ratio: float) -> float:
    return 1.0 / (4.0 - 3.5 * ratio)


def _concave(ratio: float) -> float:
    return -1.75 * ratio * ratio + 3.5 * ratio + 0.25


def _falling(ratio: float) -> float:
    return 2.0 - 1.75 * ratio


def _falling_square(ratio: float) -> float:
    return 2.0 - 1.75 * ratio * ratio


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "1.75r+0.25": linear,
        "1.75r^2+0.25": _square,
        "1/(4-3.5r)": _inverse,
        "-1.75r^2+3.5r+0.25": _concave,
        "2-1.75r": _falling,
        "2-1.75r^2": _falling_square,
    }
)
"""The six shapes of the thesis, from 0.25 to 2 or back. Rising ones separate jobs in time, falling ones do
not."""


@dataclass(frozen=True, slots=True)
class Mltcp:
    """The settings of an MLTCP sender.

    `bytes_per_iteration` and `compute_ns` of 0 are learnt from the traffic. Only a gap of at least
    `least_gap_ns` between acknowledgements can separate two iterations.
    """

    shape: Shape = linear
    bytes_per_iteration: int = 0
    compute_ns: int = 0
    least_gap_ns: int = 20_000_000


class MltcpProgress:
    """The position of a sender in its iteration, from acknowledgements alone.

    A gap above 0.9 times the compute time ends an iteration (thesis 1.2). Unknown settings are learnt: the
    compute time as the longest of the last eight gaps, the bytes of an iteration as the median of the last
    eight iterations. Until one whole iteration has been seen, the ratio is 0.
    """

    __slots__ = ("_gaps", "_last", "_settings", "_totals", "iterations", "sent")

    def __init__(self, settings: Mltcp) -> None:
        self._settings = settings
        self._last = -1
        self._gaps: deque[int] = deque(maxlen=8)
        self._totals: deque[int] = deque(maxlen=8)
        self.sent = 0
        self.iterations = 0

    def on_send(self, now: int) -> bool:
        """Something is sent at `now` (ns) with nothing in flight. Returns whether it begins an iteration."""
        settings = self._settings
        gap = now - self._last if self._last >= 0 else 0
        if gap < settings.least_gap_ns:
            return False
        compute = settings.compute_ns or max(self._gaps, default=0)
        self._gaps.append(gap)
        total = self.bytes_per_iteration
        # A shorter gap ends the iteration too if all its bytes are acknowledged: compute time varies.
        if gap <= 0.9 * compute and not (total and self.sent >= 0.95 * total):
            return False
        self._totals.append(self.sent)
        self.sent = 0
        self.iterations += 1
        return True

    def on_ack(self, now: int, acked_bytes: int) -> None:
        """Bytes were acknowledged at `now` (ns)."""
        self._last = now
        self.sent += acked_bytes

    @property
    def bytes_per_iteration(self) -> int:
        """As configured, or learnt; 0 while unknown."""
        if self._settings.bytes_per_iteration:
            return self._settings.bytes_per_iteration
        totals = sorted(self._totals)
        return totals[len(totals) // 2] if totals else 0

    @property
    def ratio(self) -> float:
        """The part of the iteration's bytes that are acknowledged, at most 1."""
        total = self.bytes_per_iteration
        return min(1.0, self.sent / total) if total else 0.0

    @property
    def weight(self) -> float:
        """F of the ratio; 1, which is plain congestion control, while an iteration's bytes are unknown."""
        return self._settings.shape(self.ratio) if self.bytes_per_iteration else 1.0

    @property
    def height(self) -> float:
        """F of the ratio between its least (0) and its greatest value (1); 0.5 while an iteration's bytes are
        unknown.
        """
        if not self.bytes_per_iteration:
            return 0.5
        return min(1.0, max(0.0, (self.weight - INTERCEPT) / SLOPE))
