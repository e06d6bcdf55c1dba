# SPDX-License-Identifier: Apache-2.0
"""Bounded queues of messages to clients that may read slowly or not at all."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

# Chosen: far more than one burst of probes or digests of a fabric brings, some megabytes at most.
_MAX_MESSAGES = 16_384
_MAX_BYTES = 16 << 20


@dataclass(slots=True)
class _Waiting(Generic[T]):
    item: T
    size: int
    lossy: bool
    lost: bool = False


class Outbox(Generic[T]):
    """A queue between threads. `put` never blocks.

    Of the lossy items at most `max_messages`, and `max_bytes` of their sizes, wait at a time: the oldest are
    lost, and counted in `lost`. The others are never lost. `crowded` tells that too many of them wait.
    """

    def __init__(self, max_messages: int = _MAX_MESSAGES, max_bytes: int = _MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting[T]] = deque()
        self._lossy: deque[_Waiting[T]] = deque()
        self._bytes = 0
        self.lost = 0

    def put(self, item: T, *, lossy: bool = False, size: int = 0) -> int:
        """Add an item of `size` bytes; gives how many older ones were lost for it."""
        with self._changed:
            waiting = _Waiting(item, size, lossy)
            self._waiting.append(waiting)
            losses = 0
            if lossy:
                self._lossy.append(waiting)
                self._bytes += size
                while len(self._lossy) > self._max_messages or (
                    self._bytes > self._max_bytes and len(self._lossy) > 1
                ):
                    oldest = self._lossy.popleft()
                    oldest.lost = True
                    self._bytes -= oldest.size
                    losses += 1
                self.lost += losses
            if len(self._waiting) > 2 * (len(self._lossy) + self._max_messages):
                self._waiting = deque(item for item in self._waiting if not item.lost)
            self._changed.notify()
            return losses

    def crowded(self) -> bool:
        """Whether more items wait that cannot be lost than a reader at work would leave."""
        with self._changed:
            firm = len(self._waiting) - len(self._lossy)
            if firm <= self._max_messages:
                return False
            return sum(not item.lossy for item in self._waiting) > self._max_messages

    def get(self) -> T:
        """Take the oldest item; waits until there is one."""
        with self._changed:
            while True:
                while not self._waiting:
                    self._changed.wait()
                first = self._waiting.popleft()
                if first.lost:
                    continue
                if first.lossy:
                    self._lossy.popleft()
                    self._bytes -= first.size
                return first.item
