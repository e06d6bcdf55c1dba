# SPDX-License-Identifier: Apache-2.0
"""How long agents wait for the controller's answer about a new flow."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.model.durations import Durations

# Seconds. Chosen: around the deadline of an answer, which is 10 ms.
ANSWER_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
# Chosen: questions without an answer (for flows of no job) that are remembered; beyond it the oldest go.
MOST_OPEN = 10_000


class AnswerTimes:
    """The times from a question that has arrived to the answer that is sent. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.durations = Durations(ANSWER_BUCKETS)
        self._clock = clock
        self._asked: dict[tuple[str, str], float] = {}

    def asked(self, host: str, flow: str) -> None:
        """The agent of `host` has asked for a flow."""
        self._asked.setdefault((host, flow), self._clock())
        if len(self._asked) > MOST_OPEN:
            del self._asked[next(iter(self._asked))]

    def answered(self, host: str, flow: str) -> None:
        """An assignment of a flow goes to a host, perhaps without a question."""
        began_s = self._asked.pop((host, flow), None)
        if began_s is not None:
            self.durations.add(self._clock() - began_s)
