# SPDX-License-Identifier: Apache-2.0
"""The history of a controller in SQLite: its plans, and the arrivals and departures of jobs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.model.plan import Plan, PolicyReference

_SCHEMA = """
CREATE TABLE IF NOT EXISTS plans (
    run INTEGER NOT NULL, version INTEGER NOT NULL, time_ns INTEGER NOT NULL,
    policy TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS jobs (
    run INTEGER NOT NULL, time_ns INTEGER NOT NULL, job TEXT NOT NULL, event TEXT NOT NULL
);
"""


# Chosen: a plan of a hundred jobs takes about 200 KB, so the file stays below some hundred MB.
MOST_PLANS = 1_000
MOST_JOB_EVENTS = 100_000
# Chosen, host time: how long a write waits for another process that has locked the file.
LOCK_TIMEOUT_S = 1.0


class HistoryError(ValueError):
    """The file cannot be used as a history; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan that was applied. `body` is the whole plan as plain dictionaries.

    `controller.planner.registry.resolve` imports the policy from its reference.
    """

    run: int
    version: int
    time_ns: int
    policy: PolicyReference
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The arrival or departure of a job: `event` is "arrived" or "left"."""

    run: int
    time_ns: int
    job: str
    event: str


class History:
    """One SQLite file. Use it from one thread at a time. Each time it is opened counts as a new run, from 1
    on.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            HistoryError: the file cannot be read or written, or is no SQLite database.
        """
        try:
            self._db = sqlite3.connect(
                path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            # There is one writer, and after a power cut the last records may be missing: speed counts more.
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self.prune()
            newest = "SELECT max(run) FROM (SELECT run FROM plans UNION ALL SELECT run FROM jobs)"
            (last,) = self._db.execute(newest).fetchone()
        except sqlite3.Error as error:
            raise HistoryError(f"--state {path}: not usable as an SQLite file: {error}") from None
        self._run = (last or 0) + 1

    def prune(self) -> None:
        """Remove the oldest records, so that MOST_PLANS plans and MOST_JOB_EVENTS events of jobs are left."""
        for table, most in (("plans", MOST_PLANS), ("jobs", MOST_JOB_EVENTS)):
            self._db.execute(f"DELETE FROM {table} WHERE rowid <= (SELECT max(rowid) FROM {table}) - {most}")

    def record_plan(self, time_ns: int, plan: Plan) -> None:
        """Record a plan that has been applied."""
        body = json.dumps(asdict(plan))
        row = (self._run, plan.version, time_ns, plan.policy.name, body)
        self._db.execute("INSERT INTO plans VALUES (?, ?, ?, ?, ?)", row)

    def record_job(self, time_ns: int, job: str, event: str) -> None:
        """Record that a job arrived or left."""
        self._db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", (self._run, time_ns, job, event))

    def plans(self) -> tuple[PlanRecord, ...]:
        """All plans, oldest first."""
        rows = self._db.execute("SELECT run, version, time_ns, body FROM plans ORDER BY rowid")
        return tuple(_plan_record(*row) for row in rows)

    def jobs(self) -> tuple[JobRecord, ...]:
        """All arrivals and departures, oldest first."""
        rows = self._db.execute("SELECT run, time_ns, job, event FROM jobs ORDER BY rowid")
        return tuple(JobRecord(*row) for row in rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _plan_record(run: int, version: int, time_ns: int, text: str) -> PlanRecord:
    body = json.loads(text)
    policy = body["policy"]
    options = tuple((name, value) for name, value in policy["options"])
    reference = PolicyReference(policy["name"], policy["distribution"], policy["version"], options)
    return PlanRecord(run, version, time_ns, reference, body)
