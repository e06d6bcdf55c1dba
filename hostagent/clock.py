# SPDX-License-Identifier: Apache-2.0
"""The clock a host lives by: the fabric's event heap, or the host's own time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """Nanoseconds of the time the data plane lives in, and events at a time."""

    now: int

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` on the data-plane thread at `time_ns` (>= now). Cannot be cancelled."""
