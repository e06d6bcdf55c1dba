# SPDX-License-Identifier: Apache-2.0
"""What was on the fabric and in force at a time in the past: plan, jobs, failures and alarms."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace

from controller.model.view import Alarm

MOST_STATES = 5_000
"""Chosen: hours of a busy cluster, in a few megabytes."""


@dataclass(frozen=True, slots=True)
class PastState:
    """The state from `time_ns` on. `version`: the plan in force, None: none; `down`: cables and switches that
    do not work."""

    time_ns: int
    version: int | None
    policy: str
    jobs: tuple[str, ...]
    down: tuple[str, ...]
    alarms: tuple[Alarm, ...]


class PastStates:
    """The last MOST_STATES different states."""

    def __init__(self) -> None:
        self._states: deque[PastState] = deque(maxlen=MOST_STATES)

    def add(self, state: PastState) -> None:
        """The state now. One that is the last one again is not kept."""
        if not self._states or replace(state, time_ns=self._states[-1].time_ns) != self._states[-1]:
            self._states.append(state)

    def at(self, time_ns: int) -> PastState | None:
        """The state at a time; None: before the first that is kept."""
        place = bisect_right(self._states, time_ns, key=lambda state: state.time_ns)
        return self._states[place - 1] if place else None
