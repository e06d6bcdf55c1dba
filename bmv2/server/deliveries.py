# SPDX-License-Identifier: Apache-2.0
"""The answers of reads on their way to clients that may take them slowly: each holds a thread and memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bmv2.server.errors import RESOURCE_EXHAUSTED, StatusError


class Call(Protocol):
    """A call whose answer is being delivered, as gRPC has it."""

    def cancel(self) -> object:
        """End the call. Never blocks."""


@dataclass(slots=True)
class _Delivery:
    """`since` is when the client last took something, in seconds of the host; `entities` are yet to go."""

    since: float
    entities: int = 0


class Deliveries:
    """At most `calls` answers at a time, which hold at most `entities` together. Thread-safe.

    Where there is no room for one more, those end whose clients have taken nothing for `patience_s` seconds,
    the longest first.
    """

    def __init__(
        self, calls: int, entities: int, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls = calls
        self._entities = entities
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: dict[Call, _Delivery] = {}
        self._held = 0

    def begin(self, call: Call) -> None:
        """Take a call in. Raises StatusError (RESOURCE_EXHAUSTED) while there is no room for it."""
        with self._lock:
            self._make_room(
                lambda: len(self._under_way) < self._calls, f"{self._calls} answers are under way"
            )
            self._under_way[call] = _Delivery(self._clock())

    def hold(self, call: Call, entities: int) -> None:
        """Note how many entities a call's answer has. Raises StatusError as `begin` does."""
        with self._lock:
            delivery = self._under_way.get(call)
            if delivery is None:
                return
            delivery.since = self._clock()
            self._make_room(
                lambda: self._held + entities <= self._entities,
                f"{self._held} entities are under way, of {self._entities} that can be",
            )
            delivery.entities = entities
            self._held += entities

    def taken(self, call: Call, entities: int) -> None:
        """Note that the client has taken so many entities."""
        with self._lock:
            delivery = self._under_way.get(call)
            if delivery is not None:
                delivery.since = self._clock()
                delivery.entities -= entities
                self._held -= entities

    def end(self, call: Call) -> None:
        """Forget a call that has ended."""
        with self._lock:
            delivery = self._under_way.pop(call, None)
            if delivery is not None:
                self._held -= delivery.entities

    def _make_room(self, enough: Callable[[], bool], said: str) -> None:
        """End the calls that stand still until there is room. Raises StatusError where that is not enough."""
        latest = self._clock() - self._patience_s
        while not enough():
            call = min(self._under_way, key=lambda call: self._under_way[call].since, default=None)
            if call is None or self._under_way[call].since > latest:
                raise StatusError(RESOURCE_EXHAUSTED, f"read: {said}; try again when clients have taken them")
            self._held -= self._under_way.pop(call).entities
            call.cancel()
