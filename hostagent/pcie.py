# SPDX-License-Identifier: Apache-2.0
"""Who uses a PCIe link of this host: a semaphore in shared memory that serves the higher priority first.

CRUX (section 5): lower-priority jobs are blocked on a PCIe link while higher ones use it. The processes that
move data (one for each job) share a small table in a file under /dev/shm, one line for each of them. The
kernel knows who is alive: a line belongs to whoever holds a lock on its byte of the file (Linux' open file
description locks), and a process that dies, however it dies, loses its locks and is swept away by the next
one that looks. Nobody polls: who has to wait, waits for the lock of the one that it waits for.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

CLIENTS = 64
"""Processes that can share a link at once."""

_LINE = struct.Struct("=IIQ")
"""State, level, ticket."""
_FLOCK = struct.Struct("hhqqi4x")
_TABLE_BYTES = _LINE.size * (CLIENTS + 1)
_FREE, _IDLE, _WAITING, _USING = range(4)
# The bytes that are locked lie behind the table: the table's own, then three of each client.
_TABLE = 1 << 20
_ALIVE, _WAIT, _USE = (_TABLE + 1 + kind * CLIENTS for kind in range(3))
_LEGAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,100}")


class PcieLink:
    """One process' access to a PCIe link that it shares with others on this host.

    `name` is the link's, the same for all its clients (a PCI address, say); `folder` is where the shared
    file lives, for all of them too. Between levels the link is exclusive, within one it is shared: jobs of
    one level have no order. Level 0 goes first. Not for several threads at once, nor across a fork: each
    opens its own. Raises ValueError for a name that is none, OSError where the file cannot be had, and
    when CLIENTS others are there already.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        check_link_name(name)
        self.path = (folder or shared_folder()) / f"pcie-{name}"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if "POLYRHYTHM_SHARED" in os.environ and os.fstat(self._file).st_uid == os.getuid():
                os.fchmod(self._file, 0o666)
            os.ftruncate(self._file, _TABLE_BYTES)
            self._table = mmap.mmap(self._file, _TABLE_BYTES)
            self._me = self._enter()
        except BaseException:
            os.close(self._file)
            raise
        self._held: int | None = None

    def __enter__(self) -> PcieLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave: what is held is let go."""
        if self._file >= 0:
            with self._locked():
                self._write(self._me, _FREE, 0, 0)
            self._table.close()
            os.close(self._file)
            self._file = -1

    @contextmanager
    def turn(self, level: int, patience_s: float | None = None) -> Iterator[bool]:
        """Use the link for a while: a message, or a piece of one. The lower the level, the sooner.

        Waits until nobody of another level uses it and nobody of a higher one waits. False, and no
        turn, if that takes longer than `patience_s` (a process that hangs with the link in hand): whoever
        would rather go ahead than stand still does so then.
        """
        got = self.acquire(level, patience_s)
        try:
            yield got
        finally:
            if got:
                self.release()

    def acquire(self, level: int, patience_s: float | None = None) -> bool:
        """Take the link; see `turn`."""
        if level < 0 or level >= 1 << 32:
            raise ValueError(f"PCIe link {self.path.name}: level {level} is not in 0-{(1 << 32) - 1}")
        if self._held is not None:
            raise RuntimeError(f"PCIe link {self.path.name} is held already")
        until = None if patience_s is None else time.monotonic() + patience_s
        with self._locked():
            _, _, ticket = self._read(CLIENTS)
            self._write(CLIENTS, 0, 0, ticket + 1)
            _lock(self._file, _WAIT + self._me)
            self._write(self._me, _WAITING, level, ticket)
        while True:
            with self._locked():
                ahead = self._ahead(level, ticket)
                if ahead is None:
                    _lock(self._file, _USE + self._me)
                    self._write(self._me, _USING, level, ticket)
                    _unlock(self._file, _WAIT + self._me)
                    self._held = level
                    return True
            if not self._outlast(ahead, until):
                with self._locked():
                    self._write(self._me, _IDLE, 0, 0)
                    _unlock(self._file, _WAIT + self._me)
                return False

    def users(self) -> int:
        """How many use the link now, this process among them if it does; the dead may still count."""
        with self._locked():
            return sum(self._read(line)[0] == _USING for line in range(CLIENTS))

    def release(self) -> None:
        """Let the link go."""
        if self._held is None:
            raise RuntimeError(f"PCIe link {self.path.name} is not held")
        with self._locked():
            self._write(self._me, _IDLE, 0, 0)
            _unlock(self._file, _USE + self._me)
        self._held = None

    # Inside.

    def _enter(self) -> int:
        with self._locked():
            for line in range(CLIENTS):
                if _lock(self._file, _ALIVE + line, wait=False):
                    self._write(line, _IDLE, 0, 0)
                    return line
        raise OSError(errno.EUSERS, f"{CLIENTS} processes share it already", str(self.path))

    def _ahead(self, level: int, ticket: int) -> int | None:
        """The byte whose lock is to be outlasted: of a user of another level, else of a waiter of a higher
        one, else of one of another level that came before; None if it is our turn."""
        users, waiters = [], []
        for line in range(CLIENTS):
            state, its_level, its_ticket = self._read(line)
            if line == self._me or state not in (_WAITING, _USING):
                continue
            if _lock(self._file, _ALIVE + line, wait=False):
                # Its process is dead.
                self._write(line, _FREE, 0, 0)
                _unlock(self._file, _ALIVE + line)
            elif state == _USING:
                users += [_USE + line] if its_level != level else []
            elif (its_level, its_ticket) < (level, ticket) and its_level != level:
                waiters.append((its_level, its_ticket, _WAIT + line))
        if users:
            return users[0]
        return min(waiters)[2] if waiters else None

    def _outlast(self, byte: int, until: float | None) -> bool:
        """Wait until nobody holds the lock of a byte; False if that takes too long."""
        if until is None:
            _outlast(self.path, byte)
            return True
        # A lock cannot be waited for with a time limit: a thread of its own waits, and is left behind.
        waiter = threading.Thread(target=_outlast, args=(self.path, byte), daemon=True)
        waiter.start()
        waiter.join(max(0.0, until - time.monotonic()))
        return not waiter.is_alive()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else reads or writes the table meanwhile."""
        _lock(self._file, _TABLE)
        try:
            yield
        finally:
            _unlock(self._file, _TABLE)

    def _read(self, line: int) -> tuple[int, int, int]:
        state, level, ticket = _LINE.unpack_from(self._table, line * _LINE.size)
        return state, level, ticket

    def _write(self, line: int, state: int, level: int, ticket: int) -> None:
        _LINE.pack_into(self._table, line * _LINE.size, state, level, ticket)


def check_link_name(name: str) -> None:
    """Raises ValueError for a name that no link can have."""
    if not _LEGAL_NAME.fullmatch(name):
        raise ValueError(f"PCIe link {name!r}: letters, digits and . : _ - are needed")


def shared_folder() -> Path:
    """Where the files of this user's links live: in memory, where the host has a place for that.

    Processes of several users, or in containers, share a folder that all see: POLYRHYTHM_SHARED names it.
    """
    named = os.environ.get("POLYRHYTHM_SHARED")
    if named:
        return Path(named)
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() else Path(tempfile.gettempdir())
    folder = base / f"polyrhythm-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _outlast(path: Path, byte: int) -> None:
    """Return when nobody holds the lock of a byte. With a file description of its own, so that what others
    hold through the caller's is not touched."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0))
    finally:
        os.close(file)


def _lock(file: int, byte: int, *, wait: bool = True) -> bool:
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    try:
        fcntl.fcntl(file, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _unlock(file: int, byte: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
