# SPDX-License-Identifier: Apache-2.0
"""A folder of results belongs to one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 10.0
"""How long a folder may stay in use before it is refused. Chosen: an experiment of a killed `paper all` ends
within this time."""
_AGAIN_S = 0.05
_HELD = {errno.EWOULDBLOCK, errno.EACCES}


class FolderInUseError(ValueError):
    """Another process writes results into the folder. The message is for a person."""


@contextmanager
def alone_in(folder: Path | None, patience_s: float | None = None) -> Iterator[None]:
    """Hold the lock of a folder that exists, if one is given; the end of the process releases it too.

    On a file system that cannot lock folders there is no lock.

    Raises:
        FolderInUseError: another process holds it for longer than `patience_s` (None: PATIENCE_S).
        OSError: the folder cannot be opened.
    """
    if folder is None:
        yield
        return
    # Processes that are started later do not inherit it.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        while not _locked(descriptor):
            if time.monotonic() >= until:
                raise FolderInUseError(
                    f"--out: {folder}: another process writes results there; legal: another folder, or this "
                    "one when that process has ended"
                )
            time.sleep(_AGAIN_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Anything else says that this file system has no such locks.
        return error.errno not in _HELD
    return True
