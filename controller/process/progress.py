# SPDX-License-Identifier: Apache-2.0
"""How the control loop gets on: how long its present step has run, and why there is no new plan."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator


class Progress:
    """The progress of the control loop. `clock` gives seconds of the host's monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self.plan_failure = ""
        """Why the last plan could not be made; empty if it was."""

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step runs within this context."""
        self._began_s = self._clock()
        yield
        self._began_s = None

    def no_plan(self, error: Exception) -> str:
        """A plan could not be made; returns the reason in words."""
        self.plan_failure = str(error) or type(error).__name__
        return self.plan_failure

    @property
    def step_s(self) -> float:
        """How long the present step has run, in seconds; 0 between two steps."""
        return 0.0 if self._began_s is None else self._clock() - self._began_s
