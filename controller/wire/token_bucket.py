# SPDX-License-Identifier: Apache-2.0
"""Bounds how much one peer may ask for: a peer that floods delays itself only."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """A token bucket that holds as many tokens as come in a second. `clock` is in seconds."""

    def __init__(self, per_s: int, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = float(per_s)
        self._at_s = clock()

    def delay_s(self, tokens: int = 1) -> float:
        """Take tokens, also such as are still to come; returns how long the next one must wait for them."""
        self._fill()
        self._left -= tokens
        return max(0.0, -self._left / self._per_s)

    def refusal_s(self) -> float:
        """Take a token and return 0; or take none, and return how long there will be none."""
        self._fill()
        if self._left < 1:
            return (1 - self._left) / self._per_s
        self._left -= 1
        return 0.0

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at_s) * self._per_s)
        self._at_s = now
