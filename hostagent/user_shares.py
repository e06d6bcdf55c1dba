# SPDX-License-Identifier: Apache-2.0
"""Shares of users in the agent's time, for work that costs much: no user takes all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hostagent.loop import AgentLoop

_PAUSE = 9
"""The pause after a piece of work, in times of what it took. Chosen: a user has a tenth of the time."""


class UserShares:
    """Work of users, one piece of a user at a time, and after each a pause as long as the work deserves."""

    def __init__(self, loop: AgentLoop) -> None:
        self._loop = loop
        # The work that waits, of each user whose pause is not over.
        self._waiting: dict[int, deque[Callable[[], None]]] = {}

    def take(self, user: int, work: Callable[[], None]) -> None:
        """Do the work now, or when the user's earlier work is done and its pause is over."""
        if user in self._waiting:
            self._waiting[user].append(work)
        else:
            self._waiting[user] = deque()
            self._do(user, work)

    def _do(self, user: int, work: Callable[[], None]) -> None:
        began_ns = self._loop.present()
        try:
            work()
        finally:
            ended_ns = self._loop.present()
            self._loop.call_at(ended_ns + _PAUSE * (ended_ns - began_ns), self._next, user)

    def _next(self, user: int) -> None:
        if self._waiting[user]:
            self._do(user, self._waiting[user].popleft())
        else:
            del self._waiting[user]
