# SPDX-License-Identifier: Apache-2.0
"""How long something took, counted in buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Durations:
    """Counts durations. `buckets` are the upper bounds in seconds, ascending; a last one has no bound."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = tuple(buckets)
        self.total_s = 0.0
        self._counts = [0] * (len(self.buckets) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self.buckets, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """For each bucket its bound, as Prometheus writes it, and how many durations were not longer."""
        rows, total = [], 0
        for bound, count in zip((*map(str, self.buckets), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows
