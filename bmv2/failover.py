# SPDX-License-Identifier: Apache-2.0
"""The software on the switch that writes the state of a port into a table of the program at once.

v1model gives a program no port states. A real switch has software beside the chip, or an interrupt of the
chip, that writes them before any controller learns of them. This module takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .boundary import DataPlaneClock
from .entries import Exact, TableEntry
from .tables import MatchTable


@dataclass(frozen=True, slots=True)
class PortTable:
    """A table keyed by an egress port alone, the action without parameters that means "down" in it, and
    how long after the port the entry comes or goes, in ns of the clock."""

    table: str
    action: str
    delay_ns: int = 0


class PortWatch:
    """Keeps a port table consistent with the states of the ports.

    Entries that clients write stay theirs. If both the watch and a client want an entry, it stays while one
    of them wants it. Clients never see the entries of the watch. Runs on the data-plane thread.
    """

    def __init__(self, clock: DataPlaneClock, kept: PortTable) -> None:
        self.kept = kept
        self._clock = clock
        self._table: MatchTable | None = None
        self._down: set[int] = set()
        self._clients: set[int] = set()
        self._changes: dict[int, int] = {}

    def load(self, table: MatchTable | None, down: Iterable[int]) -> bool:
        """Start with a new program. `table` is its table of that name (None: it has none), `down` are the
        ports to enter. Returns False, and keeps nothing, if the table has another key or lacks the action.
        """
        self._table = table if table is not None and _fits(table, self.kept.action) else None
        self._down, self._clients, self._changes = set(), set(), {}
        for port in sorted(down):
            self._enter(port, False)
        return self._table is not None

    def port_changed(self, port: int, up: bool) -> None:
        """Handle a port that went up or down."""
        change = self._changes[port] = self._changes.get(port, 0) + 1
        if self.kept.delay_ns:
            due = self._clock.now + self.kept.delay_ns
            self._clock.call_at(due, self._noticed, self._table, port, up, change)
        else:
            self._enter(port, up)

    def insert(self, entry: TableEntry) -> None:
        """Insert the entry of a client. It replaces the entry of the watch."""
        assert self._table is not None
        port = _port(entry)
        if port in self._down and port not in self._clients:
            self._table.modify(entry)
        else:
            self._table.insert(entry)
        self._clients.add(port)

    def delete(self, entry: TableEntry) -> None:
        """Delete the entry of a client. The entry of the watch stays while the port is down."""
        assert self._table is not None
        port = _port(entry)
        self._clients.discard(port)
        if port in self._down:
            self._table.modify(self._own(port))
        else:
            self._table.delete(entry)

    def _noticed(self, table: MatchTable | None, port: int, up: bool, change: int) -> None:
        # A port that flaps faster than it is noticed is not written back and forth.
        if table is self._table and self._changes.get(port) == change:
            self._enter(port, up)

    def _enter(self, port: int, up: bool) -> None:
        table = self._table
        if table is None or up == (port not in self._down):
            return
        (self._down.discard if up else self._down.add)(port)
        if port not in self._clients:
            (table.delete if up else table.insert)(self._own(port))

    def _own(self, port: int) -> TableEntry:
        return TableEntry((Exact(port),), 0, self.kept.action)


def _fits(table: MatchTable, action: str) -> bool:
    key, actions = table.table.key, table.table.actions
    keyed = len(key) == 1 and key[0].kind == "exact" and not table.constant
    return keyed and table.table.profile is None and action in actions and not actions[action].params


def _port(entry: TableEntry) -> int:
    match = entry.match[0]
    assert isinstance(match, Exact)
    return match.value
