# SPDX-License-Identifier: Apache-2.0
"""The store of one controller: an SQLite file.

Every commit reaches the disk before it returns (write-ahead log, `synchronous=FULL`). A lock on FILE.lock
keeps a second controller out; the kernel releases it when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from controller.store.interface import (
    LIMITS,
    Batch,
    Change,
    Event,
    Kind,
    LoadedState,
    LoggedEvent,
    StoredPlan,
    StoreError,
    StoreLimits,
    StoreRefusedError,
)
from controller.store.migrations import migrate
from controller.store.transactions import transaction

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Chosen, host time: how long a call waits for another process that has locked the file.
LOCK_TIMEOUT_S = 1.0
# Chosen: rows that one statement removes, so that pruning holds up a commit only for a moment.
_PRUNED_AT_ONCE = 10_000


def _checked(
    method: Callable[Concatenate[SqliteStore, P], T],
) -> Callable[Concatenate[SqliteStore, P], T]:
    """Raise SQLite's errors as StoreError."""

    def call(store: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(store, *args, **kwargs)
        except sqlite3.Error as error:
            raise StoreError(f"{store.path}: {error}") from None

    return call


class SqliteStore:
    """One SQLite file; a `StateStore`."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and bring its schema up to date.

        Raises:
            StoreError: the file cannot be read or written.
            StoreRefusedError: another controller uses it, it is no SQLite file, or its schema is newer.
        """
        self.path = path
        self._lock = lock_state(path)
        try:
            self._db = open_database(path)
            self._files = self._present()
        except BaseException:
            os.close(self._lock)
            raise

    @_checked
    def load(self) -> LoadedState:
        """The present state."""
        records: dict[Kind, dict[str, bytes]] = {kind: {} for kind in Kind}
        with self._reader() as db:
            for kind, key, value in db.execute("SELECT kind, key, value FROM records ORDER BY kind, key"):
                records[Kind(kind)][key] = bytes(value)
            (last,) = db.execute("SELECT max(version) FROM plan_history").fetchone()
        return LoadedState(records, last or 0)

    @_checked
    def commit(self, batch: Batch) -> None:
        """Write a batch, and wait until it is on the disk."""
        with transaction(self._db) as db:
            for change in batch.changes:
                _write(db, change)
            db.executemany(
                "INSERT INTO plan_history VALUES (?, ?, ?, ?) ON CONFLICT (version) DO UPDATE "
                "SET policy = excluded.policy, body = excluded.body",
                [(p.version, p.time_ns, p.policy, p.body) for p in batch.plans],
            )
            db.executemany(
                "INSERT INTO events (time_ns, what, subject, details) VALUES (?, ?, ?, ?)",
                [(e.time_ns, e.what, e.subject, e.details) for e in batch.events],
            )
        if self._present() != self._files:
            # SQLite goes on with files that have no name any more: nobody would find this commit.
            raise StoreError(
                f"{self.path}: the file, or its -wal file, was removed or replaced; put it back, or start "
                "the controller again"
            )

    @_checked
    def plan(self, version: int) -> StoredPlan | None:
        """A plan of the history; None if it has none of that version."""
        with self._reader() as db:
            row = db.execute("SELECT * FROM plan_history WHERE version = ?", (version,)).fetchone()
        return StoredPlan(*row) if row is not None else None

    @_checked
    def plans(self, most: int, before: int | None = None) -> tuple[StoredPlan, ...]:
        """The last `most` plans of the history, the newest first; with `before`, those of a lower version."""
        with self._reader() as db:
            rows = db.execute(
                "SELECT * FROM plan_history WHERE ? IS NULL OR version < ? ORDER BY version DESC LIMIT ?",
                (before, before, most),
            ).fetchall()
        return tuple(StoredPlan(*row) for row in rows)

    @_checked
    def events(self, most: int, before: int | None = None) -> tuple[LoggedEvent, ...]:
        """The last `most` events, the newest first; with `before`, those of a lower number."""
        with self._reader() as db:
            rows = db.execute(
                "SELECT number, time_ns, what, subject, details FROM events "
                "WHERE ? IS NULL OR number < ? ORDER BY number DESC LIMIT ?",
                (before, before, most),
            ).fetchall()
        return tuple(LoggedEvent(number, Event(*rest)) for number, *rest in rows)

    @_checked
    def prune(self, now_ns: int, limits: StoreLimits = LIMITS) -> None:
        """Remove old plans and events."""
        oldest_ns = now_ns - round(limits.age_s * 1e9)
        with transaction(self._db) as db:
            # The newest plan stays whatever its age and size: it may be in force.
            db.execute(
                "DELETE FROM plan_history WHERE version < (SELECT max(version) FROM plan_history) AND ("
                "time_ns < ? OR version NOT IN (SELECT version FROM ("
                "SELECT version, row_number() OVER newest AS place, "
                "sum(length(body)) OVER newest AS bytes FROM plan_history "
                "WINDOW newest AS (ORDER BY version DESC)) WHERE place <= ? AND bytes <= ?))",
                (oldest_ns, limits.plans, limits.plan_bytes),
            )
        removed = _PRUNED_AT_ONCE
        while removed == _PRUNED_AT_ONCE:
            with transaction(self._db) as db:
                removed = db.execute(
                    "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE time_ns < ? OR "
                    "number <= (SELECT max(number) FROM events) - ? ORDER BY number LIMIT ?)",
                    (oldest_ns, limits.events, _PRUNED_AT_ONCE),
                ).rowcount

    def close(self) -> None:
        """Close the file and release its lock."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        os.close(self._lock)

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for one read, which any thread may make beside a commit."""
        # It makes no file where the state's was removed.
        where = f"{self.path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(where, timeout=LOCK_TIMEOUT_S, isolation_level=None, uri=True)) as db:
            yield db

    def _present(self) -> tuple[tuple[int, int], ...]:
        """Device and inode of the state's file and of its write-ahead log; nothing for one that is gone."""
        found = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_dev, status.st_ino))
        return tuple(found)


def lock_state(path: Path) -> int:
    """Take the lock of a state file; returns its file descriptor, and closing that releases the lock.

    Raises:
        StoreRefusedError: another process has the lock, or the lock's file cannot be written.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreRefusedError(f"{lock}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreRefusedError(f"{path}: another controller uses this file") from None
    return descriptor


def open_database(path: Path) -> sqlite3.Connection:
    """Open or create a state file and bring its schema up to date. Raises StoreError or StoreRefusedError."""
    db: sqlite3.Connection | None = None
    _close_to_others(path)
    try:
        db = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        migrate(db)
    except (sqlite3.Error, StoreError) as error:
        if db is not None:
            db.close()
        busy = isinstance(error, sqlite3.OperationalError)
        raise (StoreError if busy else StoreRefusedError)(
            f"{path}: not usable as an SQLite file: {error}"
        ) from None
    return db


def _close_to_others(path: Path) -> None:
    """Make a state file that its owner alone may read, or make a present one so, and the files beside it.

    It holds what agents have announced. What is wrong with the path is left to SQLite to say.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # SQLite gives these files the mode of the state file when it makes them, not later.
    for file in (path, *(path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-shm"))):
        with contextlib.suppress(FileNotFoundError):
            mode = file.stat().st_mode
            if not stat.S_ISREG(mode) or not mode & 0o077:
                continue
            try:
                file.chmod(mode & 0o700)
            except OSError as error:
                log.warning("%s: others may read it (mode %04o): %s", file, mode & 0o777, error.strerror)
            else:
                words = "%s: others could read it (mode %04o); now its owner alone may"
                log.warning(words, file, mode & 0o777)


def _write(db: sqlite3.Connection, change: Change) -> None:
    if change.value is None:
        db.execute("DELETE FROM records WHERE kind = ? AND key = ?", (change.kind, change.key))
    else:
        db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (change.kind, change.key, change.value))
