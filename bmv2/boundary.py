# SPDX-License-Identifier: Apache-2.0
"""The clock of a switch, and the boundary between its data-plane thread and the threads of its servers.

A switch runs on one data-plane thread. In the stand-alone switch this thread follows the host's clock. In the
embedded fabric it is the event heap. Server threads never touch the data plane: they pass work through a
Boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class DataPlaneClock(Protocol):
    """The time of the data plane in nanoseconds, and timed events."""

    now: int

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` on the data-plane thread at `time_ns` (>= now). Cannot be cancelled."""


class Boundary(Protocol):
    """The boundary between the data plane and the threads of the servers."""

    def deliver(self, node: str, effect: Callable[[], None]) -> None:
        """From a server thread: run `effect` on the data-plane thread. On the host's clock it runs at once.
        In the embedded fabric it runs one control delay after the present stop, ordered by (node, order of
        delivery).
        """

    def call(self, node: str, function: Callable[[], T]) -> T:
        """From a server thread: run `function` on the data-plane thread now, and wait for its result."""

    def depart(self, node: str, channel: str, send: Callable[[], None]) -> None:
        """From the data-plane thread: send a message on `channel` ("packet_in:leaf1", ...). The embedded
        fabric stops its heap here. It calls the `send` functions of one time ordered by (node, order of
        departure). On the host's clock `send` runs at once.
        """

    def arrived(self, channel: str) -> None:
        """From a server thread: a message arrived on `channel` ("packet_out:leaf1"), and its effect was given
        to `deliver`. The fabric then knows that everything that the controller sent is here.
        """
