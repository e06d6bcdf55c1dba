# SPDX-License-Identifier: Apache-2.0
"""Which packets a sender sends again when its receiver takes packets in any order."""

from __future__ import annotations

from collections import deque

WAIT_ROUND_TRIPS = 2
"""A packet that is missing is lost if it left longer ago than this: a round trip, and the widest reordering
window that RACK-TLP allows, another one (RFC 8985, 6.2)."""


class SelectiveRepeat:
    """The packets in flight of one queue pair, and those of them to be sent again.

    A receiver that has later packets says which ones are missing before them. That they are missing does not
    show that they are lost, because packets that are sprayed over several paths overtake one another. So the
    time since they left decides. After a time-out all packets in flight are sent again, one window at a time:
    the receiver cannot say that the last packets are missing. Packets have numbers that do not wrap; times
    are in ns.
    """

    __slots__ = ("_left_at", "again")

    def __init__(self) -> None:
        self._left_at: dict[int, int] = {}
        self.again: deque[int] = deque()

    def sent(self, position: int, now: int) -> None:
        """A packet leaves. If it was to be sent again, that is done."""
        self._left_at[position] = now
        if self.again and self.again[0] == position:
            self.again.popleft()

    def acknowledged(self, una: int, acked: int) -> None:
        """The last `acked` packets before `una` have arrived, with all before them."""
        for position in range(una - acked, una):
            self._left_at.pop(position, None)
        while self.again and self.again[0] < una:
            self.again.popleft()

    def missing(self, una: int, end: int, now: int, round_trip_ns: int) -> bool:
        """The receiver lacks the packets `una` to `end` - 1, and has `end`. Returns whether one of them was
        lost; the lost ones are sent again before all that wait already."""
        latest = now - WAIT_ROUND_TRIPS * round_trip_ns
        lost = [p for p in range(una, end) if self._left_at.get(p, now) <= latest]
        first = set(lost)
        self.again = deque([*lost, *(p for p in self.again if p not in first and p >= end)])
        for position in lost:
            self._left_at[position] = now
        return bool(lost)

    def all_again(self, una: int, end: int) -> None:
        """Nothing was heard for a whole time-out: send all from `una` to `end` - 1 again."""
        self.again = deque(range(una, end))

    def clear(self) -> None:
        """Nothing is in flight any more."""
        self._left_at.clear()
        self.again.clear()
