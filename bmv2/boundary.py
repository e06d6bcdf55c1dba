# SPDX-License-Identifier: Apache-2.0
"""Where a switch's time begins and ends: the clock it lives by, and the border its messages cross.

A switch runs on one data-plane thread. In the stand-alone switch that thread follows the host's
clock; in the embedded fabric it is the event heap. Server threads never touch the data plane: they
hand work over through a Boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class DataPlaneClock(Protocol):
    """Nanoseconds of the time the data plane lives in, and events at a time."""

    now: int

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` on the data-plane thread at `time_ns` (>= now). Cannot be cancelled."""


class Boundary(Protocol):
    """The border between the data plane and the servers' threads."""

    def deliver(self, node: str, effect: Callable[[], None]) -> None:
        """From a server thread: run `effect` on the data-plane thread.

        On the host's clock that is at once; in the embedded fabric it is one control delay after the
        present stop, in the order (node, order of delivery).
        """

    def call(self, node: str, function: Callable[[], T]) -> T:
        """From a server thread: run `function` on the data-plane thread now, and wait for its result."""

    def depart(self, node: str, channel: str, send: Callable[[], None]) -> None:
        """From the data-plane thread: a message leaves on `channel` ("packet_in:leaf1", ...).

        The embedded fabric stops its heap here, and calls the `send`s of one time sorted by
        (node, order of departure). On the host's clock `send` runs at once.
        """

    def arrived(self, channel: str) -> None:
        """From a server thread: a message came in on `channel` ("packet_out:leaf1"), and its effect
        has been handed to `deliver`. Lets the fabric know that all that the controller sent is here."""
