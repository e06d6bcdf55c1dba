# SPDX-License-Identifier: Apache-2.0
"""The files of a Mininet fabric: the logs of its processes, and its folder of sockets.

The folder's path is short, for a UNIX socket's has at most 107 characters.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "polyrhythm-mininet-"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that is gone afterwards. Folders of runs that were killed are removed first.

    Processes, namespaces and cables of a killed run need no cleaning: the kernel ends them with it.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def last_line(log: Path) -> str:
    """What a process said last, for a person who is told that it ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
