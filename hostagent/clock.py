# SPDX-License-Identifier: Apache-2.0
"""The clock of a host: the fabric's event heap, the host's own time, or an emulated clock that is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class EventClock(Protocol):
    """Nanoseconds of data-plane time, and callbacks at given times."""

    @property
    def now(self) -> int:
        """The present time."""

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` on the data-plane thread at `time_ns` (>= now). Cannot be cancelled."""


class SkewedClock:
    """A clock that is off: `offset_ns` ahead of the clock `base` at time 0, and gaining `drift_ppm`
    millionths of the time since (negative: losing). Raises ValueError for a drift that makes time run
    backwards.
    """

    def __init__(self, base: EventClock, offset_ns: int, drift_ppm: float) -> None:
        if drift_ppm <= -1e6:
            raise ValueError(f"a clock does not run backwards: drift {drift_ppm} ppm")
        self._base = base
        self._offset_ns = offset_ns
        self._gain = drift_ppm / 1e6

    @property
    def now(self) -> int:
        """What this clock shows now."""
        return self.reading(self._base.now)

    def reading(self, base_ns: int) -> int:
        """What this clock shows when `base` shows `base_ns`."""
        return base_ns + self._offset_ns + round(base_ns * self._gain)

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` when this clock shows `time_ns`, or at once if that is past."""
        at = round((time_ns - self._offset_ns) / (1 + self._gain))
        self._base.call_at(max(at, self._base.now), callback, *args)
