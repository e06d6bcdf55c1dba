# SPDX-License-Identifier: Apache-2.0
"""The clock a host lives by: the fabric's event heap, the host's own time, or an emulated one that is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class EventClock(Protocol):
    """Nanoseconds of the time the data plane lives in, and events at a time."""

    @property
    def now(self) -> int:
        """The present time."""

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` on the data-plane thread at `time_ns` (>= now). Cannot be cancelled."""


class SkewedClock:
    """A clock that shows another time than the one beneath it: `offset_ns` ahead of it at 0, and gaining
    `drift_ppm` millionths of what has passed since (negative: losing)."""

    def __init__(self, base: EventClock, offset_ns: int, drift_ppm: float) -> None:
        if drift_ppm <= -1e6:
            raise ValueError(f"a clock does not run backwards: drift {drift_ppm} ppm")
        self._base = base
        self._offset_ns = offset_ns
        self._gain = drift_ppm / 1e6

    @property
    def now(self) -> int:
        """What the clock shows now."""
        return self.reading(self._base.now)

    def reading(self, base_ns: int) -> int:
        """What it shows when the one beneath shows `base_ns`."""
        return base_ns + self._offset_ns + round(base_ns * self._gain)

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` when this clock shows `time_ns`; at once if that is past."""
        at = round((time_ns - self._offset_ns) / (1 + self._gain))
        self._base.call_at(max(at, self._base.now), callback, *args)
