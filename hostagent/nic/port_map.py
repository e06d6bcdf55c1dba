# SPDX-License-Identifier: Apache-2.0
"""The port map: the file in which the agent gives the verbs shim the source ports of queue pairs.

It has lines `srcIP,dstIP=port,port,...`, an existing format, and comments after #. The agent's first line is
a comment with the number of entries, so that the shim can detect an incomplete file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PortMap = Mapping[tuple[str, str], tuple[int, ...]]
"""(source, destination) address -> the source ports for the queue pairs between them, in their order."""

HEADER = "# polyrhythm 1 entries="


def format_port_map(entries: PortMap) -> str:
    """The map as text."""
    lines = [f"{src},{dst}={','.join(map(str, ports))}" for (src, dst), ports in sorted(entries.items())]
    return "\n".join([f"{HEADER}{len(lines)}", *lines]) + "\n"


def write_port_map(path: Path, entries: PortMap) -> None:
    """Replace the map at `path` atomically: a reader sees either the old map or the new one.

    Raises OSError if it cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="ascii") as file:
            file.write(format_port_map(entries))
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
