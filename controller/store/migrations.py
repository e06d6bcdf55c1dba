# SPDX-License-Identifier: Apache-2.0
"""The tables of the SQLite store, and the steps from each version of them to the next."""

from __future__ import annotations

import sqlite3

from controller.store.interface import SCHEMA, StoreRefusedError
from controller.store.transactions import transaction

# The version of a file is SQLite's `user_version`. Version 0 is an empty file, or one whose tables `plans`
# and `jobs` were a history that no controller read back. It counted plans from 1 again in each run, so of
# equal versions the last one stays. Its times were no Unix times, so they become that of this step.
_FROM_0 = """
CREATE TABLE records (
    kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE TABLE plan_history (
    version INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, policy TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ns INTEGER NOT NULL, what TEXT NOT NULL, subject TEXT NOT NULL, details TEXT NOT NULL
);
"""
_HISTORY_OF_VERSION_0 = """
INSERT OR REPLACE INTO plan_history SELECT version, unixepoch() * 1000000000, policy, CAST(body AS BLOB)
    FROM plans ORDER BY rowid;
INSERT INTO events (time_ns, what, subject, details) SELECT unixepoch() * 1000000000, 'job ' || event, job, ''
    FROM jobs ORDER BY rowid;
DROP TABLE plans;
DROP TABLE jobs;
"""


def migrate(db: sqlite3.Connection) -> None:
    """Bring a file to the version SCHEMA, in one transaction.

    Raises:
        StoreRefusedError: a newer version of Polyrhythm has written the file.
        sqlite3.Error: the file cannot be read or written.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise StoreRefusedError(
            f"its schema has version {version}, and this Polyrhythm knows versions up to {SCHEMA} only: "
            "use a newer Polyrhythm"
        )
    if version == SCHEMA:
        return
    with transaction(db):
        # Another process may have done it while this one waited for the lock.
        (version,) = db.execute("PRAGMA user_version").fetchone()
        for step in _STEPS[version:]:
            step(db)
        db.execute(f"PRAGMA user_version = {SCHEMA}")


def _from_0(db: sqlite3.Connection) -> None:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    _run(db, _FROM_0)
    if {"plans", "jobs"} <= tables:
        _run(db, _HISTORY_OF_VERSION_0)


def _from_1(db: sqlite3.Connection) -> None:
    """Version 2 has records of the kind `history`, which version 1 does not know, in the same tables."""


def _run(db: sqlite3.Connection, script: str) -> None:
    """Run statements within the open transaction; `executescript` would commit it first."""
    for statement in script.split(";"):
        if statement.strip():
            db.execute(statement)


# The step of each version to the next one.
_STEPS = (_from_0, _from_1)
assert len(_STEPS) == SCHEMA
