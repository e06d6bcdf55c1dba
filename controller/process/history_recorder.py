# SPDX-License-Identifier: Apache-2.0
"""Writes the history in a thread of its own: no disk, however slow or full, holds up the controller."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque

from controller.live.messages import JobArrived, JobLeft, Notice, PlanApplied
from controller.store.history import History

log = logging.getLogger(__name__)

# Chosen, in seconds of host time: the pause before a failed write is tried again, and how long the end of the
# controller waits for the last records.
RETRY_S = 2.0
CLOSE_TIMEOUT_S = 2.0
# Chosen: records that wait for the disk; when there are more, the oldest are dropped.
MOST_WAITING = 10_000
# Chosen: after so many records the oldest ones are removed from the file.
PRUNE_EVERY = 500


class HistoryRecorder:
    """Records notices in a history. If that fails, the controller goes on without it, the log says so, and
    the records wait until the file can be written again.
    """

    def __init__(self, history: History, *, retry_s: float = RETRY_S) -> None:
        self._history = history
        self._retry_s = retry_s
        self._waiting: deque[Notice] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def record(self, notice: Notice) -> None:
        """Record a plan, or the arrival or departure of a job; other notices are no part of the history.

        Returns at once.
        """
        if not isinstance(notice, PlanApplied | JobArrived | JobLeft):
            return
        with self._changed:
            if len(self._waiting) == MOST_WAITING:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(notice)
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, and close the file. Records that cannot be written within CLOSE_TIMEOUT_S are
        lost.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        written, failing = 0, False
        while (notice := self._next()) is not None:
            try:
                self._write(notice)
                written += 1
                if written % PRUNE_EVERY == 0:
                    self._history.prune()
            except sqlite3.Error as error:
                if not failing:
                    log.error(
                        "the history is not written: %s; the controller goes on without it and tries again "
                        "every %g s",
                        error,
                        self._retry_s,
                    )
                failing = True
                if not self._put_back(notice):
                    break
                continue
            if failing:
                failing = False
                with self._changed:
                    dropped, self._dropped = self._dropped, 0
                log.warning("the history is written again; %d records were dropped", dropped)
        with self._changed:
            lost = len(self._waiting) + self._dropped
        if lost:
            log.error("the history lacks the last %d records", lost)
        self._history.close()

    def _next(self) -> Notice | None:
        """The oldest record, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _put_back(self, notice: Notice) -> bool:
        """Put a record back that could not be written, and wait before the next attempt.

        False at the end, when there is no further attempt.
        """
        with self._changed:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.appendleft(notice)
            else:
                self._dropped += 1
            return not self._changed.wait_for(lambda: self._closing, self._retry_s)

    def _write(self, notice: Notice) -> None:
        match notice:
            case PlanApplied(time_ns, applied):
                self._history.record_plan(time_ns, applied)
            case JobArrived(time_ns, job):
                self._history.record_job(time_ns, job.name, "arrived")
            case JobLeft(time_ns, job):
                self._history.record_job(time_ns, job.name, "left")
