# SPDX-License-Identifier: Apache-2.0
"""Counts, register cells and ages of the data plane, for a thread of the server."""

from __future__ import annotations

from collections.abc import Sequence

from bmv2.boundary import Boundary
from bmv2.entries import TableEntry, TableEntryError
from bmv2.switch import EmbeddedSwitch


class DataPlaneReader:
    """Reads on the data-plane thread; what a write has not reached yet counts 0."""

    def __init__(self, switch: EmbeddedSwitch, boundary: Boundary, landed: bool) -> None:
        self._switch = switch
        self._boundary = boundary
        self._landed = landed

    def indirect(self, name: str, cells: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Give (packets, bytes) of each of the counter's cells."""
        if not self._landed:
            return [(0, 0)] * len(cells)
        return self._boundary.call(self._switch.name, lambda: self._switch.read_counter(name, cells))

    def direct(self, table: str, entries: Sequence[TableEntry]) -> Sequence[tuple[int, int]]:
        """Give (packets, bytes) of each of the entries."""
        if not self._landed:
            return [(0, 0)] * len(entries)
        return self._boundary.call(self._switch.name, lambda: [self._one(table, entry) for entry in entries])

    def register(self, name: str, cells: Sequence[int]) -> Sequence[int]:
        """Give the values of the register's cells."""
        if not self._landed:
            return [0] * len(cells)
        return self._boundary.call(self._switch.name, lambda: self._switch.read_register(name, cells))

    def idle_ns(self, table: str, entries: Sequence[TableEntry]) -> Sequence[int]:
        """Give the nanoseconds since each of the entries was last hit."""
        if not self._landed:
            return [0] * len(entries)
        return self._boundary.call(self._switch.name, lambda: [self._age(table, entry) for entry in entries])

    def _one(self, table: str, entry: TableEntry) -> tuple[int, int]:
        try:
            return self._switch.read_direct_counter(table, entry)
        except TableEntryError:
            # Written, but its effect is still on its way to the data plane.
            return 0, 0

    def _age(self, table: str, entry: TableEntry) -> int:
        try:
            return self._switch.clock.now - self._switch.entry_hit_time(table, entry)
        except TableEntryError:
            return 0
