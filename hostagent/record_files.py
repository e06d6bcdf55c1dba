# SPDX-License-Identifier: Apache-2.0
"""Files that grow: one file, or all files of a folder, which may be rotated, replaced, truncated or
removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

_MOST_AT_ONCE = 1 << 18
_MOST_UNREAD = 4 << 20
_MOST_FILES = 256

T = TypeVar("T")


class _GrowingFile(Generic[T]):
    """One open file. It is still read after its name belongs to another file."""

    def __init__(self, path: Path, make: Callable[[Path], T]) -> None:
        self._path = path
        self._make = make
        self.reader = make(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self._inode = (status.st_dev, status.st_ino)
        self._at = 0

    def read(self) -> bytes:
        """The bytes added since the last call, 256 KiB at most. A truncated file is read from its start by a
        new reader.
        """
        size = os.fstat(self._descriptor).st_size
        if size < self._at:
            self._at, self.reader = 0, self._make(self._path)
        fresh = os.pread(self._descriptor, _MOST_AT_ONCE, self._at)
        self._at += len(fresh)
        return fresh

    @property
    def behind(self) -> int:
        """The number of bytes that are not read yet."""
        return os.fstat(self._descriptor).st_size - self._at

    def skip_to_whole_line(self, left: int) -> None:
        """Skip all but about the last `left` bytes, to the start of a line."""
        if self.behind > left:
            end = os.fstat(self._descriptor).st_size
            cut = os.pread(self._descriptor, _MOST_AT_ONCE, end - left)
            self._at = end - left + cut.find(b"\n") + 1

    def is_at(self, path: Path) -> bool:
        """Whether the path still names this file."""
        try:
            status = path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._inode

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class GrowingFiles(Generic[T]):
    """A file, or the files of a folder. `make(path)` creates the reader for the bytes of one file."""

    def __init__(self, path: Path, make: Callable[[Path], T]) -> None:
        self._path = path
        self._make = make
        self._files: dict[Path, _GrowingFile[T]] = {}
        self._begun = False

    def poll(self) -> list[tuple[T, bytes]]:
        """Each reader with the bytes added to its file since the last call, at most 256 KiB of each file."""
        found = []
        paths = self._paths()
        for path in [p for p in self._files if p not in paths or not self._files[p].is_at(p)]:
            # The rest of a file that was renamed or removed.
            file = self._files.pop(path)
            found += self._added(file, to_end=True)
            file.close()
        for path in paths:
            if path not in self._files:
                with contextlib.suppress(OSError):
                    self._files[path] = self._open(path)
        for file in self._files.values():
            found += self._added(file, to_end=False)
        self._begun = True
        return found

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self, path: Path) -> _GrowingFile[T]:
        file = _GrowingFile(path, self._make)
        if not self._begun and file.behind > _MOST_UNREAD:
            # Data from long before the agent started does not describe the present.
            file.skip_to_whole_line(_MOST_UNREAD)
        return file

    def _added(self, file: _GrowingFile[T], *, to_end: bool) -> list[tuple[T, bytes]]:
        found = []
        with contextlib.suppress(OSError):
            while fresh := file.read():
                found.append((file.reader, fresh))
                if not to_end or len(found) * _MOST_AT_ONCE >= _MOST_UNREAD:
                    break
        return found

    def _paths(self) -> list[Path]:
        try:
            if not self._path.is_dir():
                return [self._path] if self._path.is_file() else []
            inside = sorted(p for p in self._path.iterdir() if not p.name.startswith(".") and p.is_file())
        except OSError:
            return []
        return inside[:_MOST_FILES]
