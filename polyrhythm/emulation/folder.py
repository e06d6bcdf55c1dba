# SPDX-License-Identifier: Apache-2.0
"""The folder of a Mininet fabric, with the sockets and logs of its processes.

The folder's path is short, because the path of a UNIX socket has at most 107 characters.
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
    """A temporary folder. Folders of runs that were killed are removed first.

    Nothing else of a killed run needs removal: the kernel ends its processes, namespaces and cables.
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
    """The last line of a process's log, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
