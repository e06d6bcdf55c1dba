# SPDX-License-Identifier: Apache-2.0
"""Where a Mininet fabric keeps its sockets: a short path, for a UNIX socket's has at most 107 characters."""

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
