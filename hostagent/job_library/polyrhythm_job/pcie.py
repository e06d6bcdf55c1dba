# SPDX-License-Identifier: Apache-2.0
"""Sharing a PCIe link of a host by priority level: a semaphore in shared memory.

CRUX (section 5): jobs of a lower priority are blocked on a PCIe link while jobs of a higher priority use it.
The processes that move data, one for each job, share a small table in a file under /dev/shm, with one row for
each process. A process holds a lock on one byte of the file for its row (Linux' open file description locks),
so the kernel knows which processes are alive: a process that dies, for whatever reason, loses its locks, and
the next process that reads the table clears its row. No process polls. A process that has to wait for another
waits for a lock of that other process.
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

MAX_PROCESSES = 64
"""Processes that can share a link at once. Chosen: more than a host has GPUs."""

_ROW = struct.Struct("=IIQ")
"""State, level and ticket of a process. The row after the last process holds the next ticket."""
_FLOCK = struct.Struct("hhqqi4x")
_TABLE_BYTES = _ROW.size * (MAX_PROCESSES + 1)
_FREE, _IDLE, _WAITING, _USING = range(4)
# The locked bytes lie behind the table: one for the table, then three for each process.
_TABLE = 1 << 20
_ALIVE, _WAIT, _USE = (_TABLE + 1 + kind * MAX_PROCESSES for kind in range(3))
_LEGAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,100}")


class PcieLink:
    """The access of one process to a PCIe link that several processes of this host share.

    `name` identifies the link, for instance by its PCI address; `folder` is where the shared file is. Both
    are the same for all processes. Level 0 is the highest. Jobs of different levels exclude one another, jobs
    of one level use the link together. An object is for one thread, and not for use after a fork. Raises
    ValueError for an illegal name, OSError if the file cannot be opened or MAX_PROCESSES others share the
    link.
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
        self._acquired_level: int | None = None

    def __enter__(self) -> PcieLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop sharing the link; releases it if it is acquired."""
        if self._file >= 0:
            with self._locked():
                self._write(self._me, _FREE, 0, 0)
            self._table.close()
            os.close(self._file)
            self._file = -1

    @contextmanager
    def acquired(self, level: int, timeout_s: float | None = None) -> Iterator[bool]:
        """Use the link inside this context, for one message or a piece of one; see `acquire`.

        Gives whether the link was acquired. After a time-out it was not, and the caller decides whether to
        send all the same.
        """
        got = self.acquire(level, timeout_s)
        try:
            yield got
        finally:
            if got:
                self.release()

    def acquire(self, level: int, timeout_s: float | None = None) -> bool:
        """Wait until no process of another level uses the link and none of a higher level waits for it.

        Returns False, without the link, if that takes longer than `timeout_s` (a process may hang while it
        has the link). Raises ValueError for an illegal level, RuntimeError if the link is acquired already.
        """
        if level < 0 or level >= 1 << 32:
            raise ValueError(f"PCIe link {self.path.name}: level {level} is not in 0-{(1 << 32) - 1}")
        if self._acquired_level is not None:
            raise RuntimeError(f"PCIe link {self.path.name} is acquired already")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._locked():
            _, _, ticket = self._read(MAX_PROCESSES)
            self._write(MAX_PROCESSES, 0, 0, ticket + 1)
            _lock(self._file, _WAIT + self._me)
            self._write(self._me, _WAITING, level, ticket)
        while True:
            with self._locked():
                lock = self._lock_in_the_way(level, ticket)
                if lock is None:
                    _lock(self._file, _USE + self._me)
                    self._write(self._me, _USING, level, ticket)
                    _unlock(self._file, _WAIT + self._me)
                    self._acquired_level = level
                    return True
            if not self._wait_for(lock, deadline):
                with self._locked():
                    self._write(self._me, _IDLE, 0, 0)
                    _unlock(self._file, _WAIT + self._me)
                return False

    def users(self) -> int:
        """The number of processes that use the link, this one included. May count one that has just died."""
        with self._locked():
            return sum(self._read(row)[0] == _USING for row in range(MAX_PROCESSES))

    def release(self) -> None:
        """Release the link. Raises RuntimeError if it is not acquired."""
        if self._acquired_level is None:
            raise RuntimeError(f"PCIe link {self.path.name} is not acquired")
        with self._locked():
            self._write(self._me, _IDLE, 0, 0)
            _unlock(self._file, _USE + self._me)
        self._acquired_level = None

    def _enter(self) -> int:
        with self._locked():
            for row in range(MAX_PROCESSES):
                if _lock(self._file, _ALIVE + row, wait=False):
                    self._write(row, _IDLE, 0, 0)
                    return row
        raise OSError(errno.EUSERS, f"{MAX_PROCESSES} processes share it already", str(self.path))

    def _lock_in_the_way(self, level: int, ticket: int) -> int | None:
        """The byte whose lock has to be free first; None if this process may use the link now.

        It belongs to a process of another level that uses the link, else to the first that waits for it at a
        higher level.
        """
        users, waiters = [], []
        for row in range(MAX_PROCESSES):
            state, its_level, its_ticket = self._read(row)
            if row == self._me or state not in (_WAITING, _USING):
                continue
            if _lock(self._file, _ALIVE + row, wait=False):
                # Its process is dead.
                self._write(row, _FREE, 0, 0)
                _unlock(self._file, _ALIVE + row)
            elif state == _USING:
                users += [_USE + row] if its_level != level else []
            elif (its_level, its_ticket) < (level, ticket) and its_level != level:
                waiters.append((its_level, its_ticket, _WAIT + row))
        if users:
            return users[0]
        return min(waiters)[2] if waiters else None

    def _wait_for(self, byte: int, deadline: float | None) -> bool:
        """Wait until no process holds the lock of a byte; False if the deadline passes first."""
        if deadline is None:
            _wait_for_lock(self.path, byte)
            return True
        # fcntl has no time limit for a lock: another thread waits, and is left alone after the deadline.
        waiter = threading.Thread(target=_wait_for_lock, args=(self.path, byte), daemon=True)
        waiter.start()
        waiter.join(max(0.0, deadline - time.monotonic()))
        return not waiter.is_alive()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Only this process reads or writes the table inside this context."""
        _lock(self._file, _TABLE)
        try:
            yield
        finally:
            _unlock(self._file, _TABLE)

    def _read(self, row: int) -> tuple[int, int, int]:
        state, level, ticket = _ROW.unpack_from(self._table, row * _ROW.size)
        return state, level, ticket

    def _write(self, row: int, state: int, level: int, ticket: int) -> None:
        _ROW.pack_into(self._table, row * _ROW.size, state, level, ticket)


def check_link_name(name: str) -> None:
    """Raises ValueError for an illegal name of a link."""
    if not _LEGAL_NAME.fullmatch(name):
        raise ValueError(
            f"PCIe link {name!r}: legal are 1-101 letters, digits and . : _ -, a letter or digit first"
        )


def shared_folder() -> Path:
    """The folder of the shared files: POLYRHYTHM_SHARED, else one of this user in memory (/dev/shm).

    Processes of several users, or of several containers, need a folder that all of them can write to, named
    by POLYRHYTHM_SHARED.
    """
    named = os.environ.get("POLYRHYTHM_SHARED")
    if named:
        return Path(named)
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() else Path(tempfile.gettempdir())
    folder = base / f"polyrhythm-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _wait_for_lock(path: Path, byte: int) -> None:
    """Return when no process holds the lock of a byte. Opens the file anew: a lock taken through the caller's
    file description would count as the caller's."""
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
