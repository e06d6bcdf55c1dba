# SPDX-License-Identifier: Apache-2.0
"""How the control loop gets on: how long its present step has run, what plans take, and why one failed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from controller.live.notices import JobArrived, JobLeft, Notice
from controller.model.durations import Durations
from controller.process.latency import PAUSE_BUCKETS

# Seconds. Chosen: a small fabric's plan takes tens of milliseconds, a large one's up to minutes.
PLAN_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# Seconds. Chosen: around the 150 ms in which a job shall have its plan.
JOB_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.3, 1.0, 3.0, 10.0)


class Progress:
    """The progress of the control loop. `clock` gives seconds of the host's monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self.plan_failure = ""
        """Why the last plan could not be made; empty if it was."""
        self.plan_failures = 0
        self.plans = Durations(PLAN_BUCKETS)
        self.writes = Durations(JOB_BUCKETS)
        """How long switches took for the tables of a plan or of another condition of the fabric."""
        self.jobs = Durations(JOB_BUCKETS)
        """From a job's arrival until a plan with it was in force."""
        self.pauses = Durations(PAUSE_BUCKETS)
        """How late the event loop came to what was due (`latency.watch_pauses`)."""
        self._arrived_s: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step runs within this context."""
        self._began_s = self._clock()
        yield
        self._began_s = None

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """A plan is made within this context; its time counts if it was made."""
        began_s = self._clock()
        yield
        self.plans.add(self._clock() - began_s)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Tables are written within this context."""
        began_s = self._clock()
        yield
        self.writes.add(self._clock() - began_s)

    def noticed(self, notices: Iterable[Notice]) -> None:
        """Jobs may have come or gone."""
        for notice in notices:
            match notice:
                case JobArrived(_, job):
                    self._arrived_s[job.name] = self._clock()
                case JobLeft(_, job):
                    self._arrived_s.pop(job.name, None)

    def in_force(self, jobs: Iterable[str]) -> None:
        """A plan with these jobs is in force."""
        now_s = self._clock()
        for job in self._arrived_s.keys() & set(jobs):
            self.jobs.add(now_s - self._arrived_s.pop(job))

    def no_plan(self, error: Exception) -> str:
        """A plan could not be made; returns the reason in words."""
        self.plan_failures += 1
        self.plan_failure = str(error) or type(error).__name__
        return self.plan_failure

    @property
    def step_s(self) -> float:
        """How long the present step has run, in seconds; 0 between two steps."""
        return 0.0 if self._began_s is None else self._clock() - self._began_s
