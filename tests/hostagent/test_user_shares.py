# SPDX-License-Identifier: Apache-2.0
"""UserShares of users, on a clock that the test moves."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from hostagent.user_shares import UserShares

MS = 1_000_000


class Clock:
    """The calls of a loop; work takes time by moving `now`."""

    def __init__(self) -> None:
        self.now = 0
        self._calls: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def present(self) -> int:
        return self.now

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._calls, (time_ns, len(self._calls), callback, args))

    def run(self, until_ns: int) -> None:
        while self._calls and self._calls[0][0] <= until_ns:
            due, _, callback, args = heapq.heappop(self._calls)
            self.now = max(self.now, due)
            callback(*args)
        self.now = max(self.now, until_ns)


def test_a_user_has_a_tenth_of_the_time_and_another_waits_for_nobody() -> None:
    clock = Clock()
    shares = UserShares(clock)  # type: ignore[arg-type]
    began: list[tuple[int, int]] = []

    def work(user: int) -> None:
        began.append((user, clock.now))
        clock.now += 10 * MS

    for _ in range(1_000):
        shares.take(7, lambda: work(7))
    shares.take(8, lambda: work(8))
    assert began == [(7, 0), (8, 10 * MS)]
    clock.run(999 * MS)
    mine = [at for user, at in began if user == 7]
    assert len(mine) == 10
    assert all(b - a >= 100 * MS for a, b in itertools.pairwise(mine))


def test_after_its_pause_a_user_is_forgotten_and_served_at_once() -> None:
    clock = Clock()
    shares = UserShares(clock)  # type: ignore[arg-type]
    done: list[int] = []
    shares.take(7, lambda: done.append(clock.now))
    clock.run(MS)
    assert not shares._waiting
    shares.take(7, lambda: done.append(clock.now))
    assert done == [0, MS]
