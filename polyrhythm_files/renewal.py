# SPDX-License-Identifier: Apache-2.0
"""A value made of files that may be replaced while a process runs, as certificates are."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_Stamp = tuple[int, int, int] | None


class FromFiles(Generic[T]):
    """What `make` returns from `paths`, made again when one of them was replaced or written.

    While the files cannot be used (one of a pair is new, the other is not yet), the former value stays. This
    is logged once for each state of the files. Thread-safe.

    Raises, when it is made, what `make` raises.
    """

    def __init__(self, paths: Iterable[str | Path], make: Callable[[], T]) -> None:
        self._paths = tuple(Path(path) for path in paths)
        self._make = make
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._value = self._told = make()

    def get(self) -> T:
        """The value of the files as they are now, or the last one that could be used."""
        with self._lock:
            seen = self._stamps()
            if seen != self._seen:
                # Set first: files that change while they are read are then read again.
                self._seen = seen
                self._renew()
            return self._value

    def newer(self) -> T | None:
        """What `get` returns if it was made again since the last call of this method; None if it was not."""
        value = self.get()
        with self._lock:
            before, self._told = self._told, value
        return None if value is before else value

    def _renew(self) -> None:
        names = ", ".join(map(str, self._paths))
        try:
            self._value = self._make()
        except (OSError, ValueError) as error:
            log.error("%s: changed, but not usable: %s; what was read before stays in use", names, error)
        else:
            log.info("%s: read again, for connections from now on", names)

    def _stamps(self) -> tuple[_Stamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: Path) -> _Stamp:
    """What changes with the file's content. None: there is no such file now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
