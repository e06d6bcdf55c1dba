# SPDX-License-Identifier: Apache-2.0
"""Copies of a state file: a backup, also while a controller uses the file, and its restoration."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from controller.store.interface import SCHEMA, LoadedState, StoreError, StoreRefusedError
from controller.store.migrations import migrate
from controller.store.sqlite import LOCK_TIMEOUT_S, SqliteStore, lock_state, open_database


def backup(state: Path, target: Path) -> None:
    """Copy a state file as it is at one moment. `target` has a name only once the copy is whole.

    Raises:
        StoreError: a file cannot be read or written, or `target` exists.
        StoreRefusedError: `state` is no state file.
    """
    if target.exists():
        raise StoreRefusedError(f"{target}: the file exists; legal: the name of a new file")
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        # A copy holds what agents have announced: nobody else may read it.
        os.close(os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with closing(_existing(state)) as source, closing(sqlite3.connect(unfinished)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
        _sync(unfinished)
        unfinished.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise StoreError(f"{unfinished}: {error.strerror}") from None
    except sqlite3.Error as error:
        raise StoreError(f"{state}: no backup: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def restore_backup(copy: Path, state: Path) -> LoadedState:
    """Replace the content of a state file, which need not exist, by that of a backup; returns it.

    The replacement is one transaction: after a power cut the file holds either content whole.

    Raises:
        StoreError: a file cannot be read or written.
        StoreRefusedError: a controller uses `state`, or `copy` is no state file, damaged, or of a newer
            version.
    """
    lock = lock_state(state)
    try:
        with closing(_existing(copy)) as source:
            try:
                _check(source)
            except StoreRefusedError as error:
                raise StoreRefusedError(f"{copy}: {error}") from None
            with closing(open_database(state)) as held:
                source.backup(held)
                # The backup may be of an earlier version.
                migrate(held)
    except sqlite3.Error as error:
        raise StoreError(f"{copy}: not restored: {error}") from None
    finally:
        os.close(lock)
    with closing(SqliteStore(state)) as store:
        return store.load()


def _existing(path: Path) -> sqlite3.Connection:
    """Open a state file that exists, to read it."""
    if not path.is_file():
        raise StoreRefusedError(f"{path}: there is no such file")
    return sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)


def _check(db: sqlite3.Connection) -> None:
    """Raise StoreRefusedError unless a file is whole and a state file."""
    try:
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        raise StoreRefusedError(f"it is no SQLite file: {error}") from None
    if verdict != "ok":
        raise StoreRefusedError(f"it is damaged: {verdict}")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise StoreRefusedError(f"its schema has version {version}, above {SCHEMA}: use a newer Polyrhythm")
    if not {"records", "plan_history", "events"} <= tables:
        raise StoreRefusedError(f"it is no state file of a controller; its tables: {sorted(tables)}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
