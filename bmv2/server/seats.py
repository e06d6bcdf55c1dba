# SPDX-License-Identifier: Apache-2.0
"""The streams that a server holds open: a bounded number, for each takes a thread."""

from __future__ import annotations

import threading
from typing import Protocol

from bmv2.server.errors import RESOURCE_EXHAUSTED, StatusError


class Seated(Protocol):
    """An open stream, as far as its seat is concerned."""

    def evict(self, error: StatusError) -> None:
        """End the stream soon. Never blocks."""


class Seats:
    """At most `limit` streams at a time. Thread-safe.

    When all seats are taken, a new stream gets that of the oldest one that has not said yet what it is for.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._taken: dict[Seated, None] = {}
        self._silent: dict[Seated, None] = {}

    def take(self, stream: Seated) -> None:
        """Seat a stream. Raises StatusError (RESOURCE_EXHAUSTED) if all others have spoken."""
        with self._lock:
            evicted = None
            if len(self._taken) >= self._limit:
                evicted = next(iter(self._silent), None)
                if evicted is None:
                    raise StatusError(
                        RESOURCE_EXHAUSTED, f"stream: {self._limit} are open, which is all; close one first"
                    )
                del self._silent[evicted], self._taken[evicted]
            self._taken[stream] = self._silent[stream] = None
        if evicted is not None:
            said = "stream: silent since it was opened, and others need its place"
            evicted.evict(StatusError(RESOURCE_EXHAUSTED, said))

    def spoke(self, stream: Seated) -> None:
        """Keep the seat of a stream that has told what it is for."""
        with self._lock:
            self._silent.pop(stream, None)

    def leave(self, stream: Seated) -> None:
        """Free the seat of a stream that has ended."""
        with self._lock:
            self._taken.pop(stream, None)
            self._silent.pop(stream, None)
