# SPDX-License-Identifier: Apache-2.0
"""The port map: the file in which the agent gives the verbs shim the source ports of queue pairs.

It has lines `srcIP,dstIP=port,port,...`, an existing format, and comments after #. The agent's first line is
a comment with the number of entries, so that the shim can detect an incomplete file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from hostagent.clock import EventClock

log = logging.getLogger(__name__)

PortMap = Mapping[tuple[str, str], tuple[int, ...]]
"""(source, destination) address -> the source ports for the queue pairs between them, in their order."""

HEADER = "# polyrhythm 1 entries="
_GATHER_NS = 1_000_000
"""Changes of the map are written together after this time. Chosen: a plan moves many flows at once."""


def format_port_map(entries: PortMap) -> str:
    """The map as text."""
    lines = [f"{src},{dst}={','.join(map(str, ports))}" for (src, dst), ports in sorted(entries.items())]
    return "\n".join([f"{HEADER}{len(lines)}", *lines]) + "\n"


def write_port_map(path: Path, entries: PortMap) -> None:
    """Replace the map at `path` atomically: a reader sees either the old map or the new one.

    Raises OSError if it cannot be written.
    """
    replace_file(path, format_port_map(entries))


def replace_file(path: Path, text: str) -> None:
    """Replace the file at `path` atomically. Raises OSError if it cannot be written."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


class PortMapFile:
    """The port map of a host, with the queue pairs of all its NICs.

    Raises nothing: a map that cannot be written is logged, and the flows keep the ports that they have.
    """

    def __init__(self, path: Path, clock: EventClock) -> None:
        self._path = path
        self._clock = clock
        self._sources: list[Callable[[], PortMap]] = []
        self._due = False

    def add(self, source: Callable[[], PortMap]) -> None:
        """Write what `source` says too: the ports of one NIC's queue pairs."""
        self._sources.append(source)
        self.changed()

    def changed(self) -> None:
        """Write the map soon."""
        if not self._due:
            self._due = True
            self._clock.call_at(self._clock.now + _GATHER_NS, self.write)

    def write(self) -> None:
        """Write the map now."""
        self._due = False
        entries = {pair: ports for source in self._sources for pair, ports in source().items()}
        try:
            write_port_map(self._path, entries)
        except OSError as error:
            log.error("port map %s cannot be written: %s", self._path, error.strerror)
