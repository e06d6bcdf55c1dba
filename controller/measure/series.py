# SPDX-License-Identifier: Apache-2.0
"""Byte counts of the flows of a job on one grid of bins. Agents report them piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KEPT = 24_000
"""The most bins kept of a flow: two minutes of 5 ms. Chosen: longer than any profiling window."""


class Series:
    """Bytes by flow and bin of `bin_ns`; bin k is [k, k + 1) * bin_ns of fabric time.

    Pieces may come in any order and twice (the last one counts). Bins more than `kept` before the newest bin
    of the same flow are dropped.
    """

    def __init__(self, bin_ns: int, kept: int = KEPT) -> None:
        if bin_ns <= 0:
            raise ValueError(f"the length of a bin must be positive, not {bin_ns} ns")
        self.bin_ns = bin_ns
        self._kept = kept
        self._pieces: dict[str, dict[int, Floats]] = {}
        self._ends: dict[str, int] = {}

    def add(self, flow: str, start_ns: int, sent: Sequence[int]) -> None:
        """Add a piece that begins at `start_ns`, rounded to the grid."""
        if not sent:
            return
        first = round(start_ns / self.bin_ns)
        pieces = self._pieces.setdefault(flow, {})
        pieces.pop(first, None)
        pieces[first] = np.array(sent, dtype=np.float64)
        self._ends[flow] = max(self._ends.get(flow, 0), first + len(sent))
        self._forget(flow, self._ends[flow] - self._kept)

    def forget(self, before_ns: int) -> None:
        """Drop the pieces that end before a time."""
        for flow in self._pieces:
            self._forget(flow, before_ns // self.bin_ns)

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows that have any bins, by name."""
        return tuple(sorted(self._pieces))

    def covered_until(self, sources: int) -> int:
        """The time (ns) up to which all flows are known; 0 while fewer than `sources` flows are known."""
        if len(self._ends) < max(1, sources):
            return 0
        return min(self._ends.values()) * self.bin_ns

    def window(self, start_ns: int, end_ns: int) -> tuple[Floats, int]:
        """The bins inside [start_ns, end_ns), shape (flows, bins), and the start of the first. Unknown bins
        are 0.
        """
        first = -(-start_ns // self.bin_ns)
        count = max(0, end_ns // self.bin_ns - first)
        table = np.zeros((len(self._pieces), count))
        for row, flow in enumerate(self.flows):
            for begin, piece in self._pieces[flow].items():
                low, high = max(begin, first), min(begin + len(piece), first + count)
                if low < high:
                    table[row, low - first : high - first] = piece[low - begin : high - begin]
        return table, first * self.bin_ns

    def _forget(self, flow: str, oldest: int) -> None:
        pieces = self._pieces[flow]
        for begin in [b for b, piece in pieces.items() if b + len(piece) <= oldest]:
            del pieces[begin]
        # A piece that begins before the limit keeps only its newer bins.
        for begin in [b for b in pieces if b < oldest]:
            piece = pieces.pop(begin)
            pieces[oldest] = piece[oldest - begin :]
