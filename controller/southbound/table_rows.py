# SPDX-License-Identifier: Apache-2.0
"""The table entries of a switch as text, as they should be and as they were read. Runs in the worker process.

It uses the fabric and the P4 program that `table_writes.set_fabric` has set for the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from controller.southbound.desired import Entry, Match
from controller.southbound.table_writes import DesiredState, current_codec, entries_of, held_entries


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A table entry in words. `wanted` and `held`: whether the switch should have it, and whether it has;
    None: its tables were not read. An entry with another action than it should have is there twice. A default
    action or a cell of a meter that the controller leaves alone `differs` from nothing."""

    match: Mapping[str, str]
    action: str
    params: Mapping[str, str]
    priority: int
    wanted: bool
    held: bool | None
    differs: bool


def table_sizes(
    switch: str, wanted: DesiredState, read: Sequence[bytes] | None
) -> Mapping[str, tuple[int, int | None]]:
    """How many entries each table should have, and how many it has; default actions and cells of meters
    count."""
    should = Counter(entry.table for entry in entries_of(switch, wanted))
    has = None if read is None else Counter(entry.table for entry in held_entries(read))
    return {name: (should[name], None if has is None else has[name]) for name in current_codec().table_names}


def entry_rows(
    switch: str, wanted: DesiredState, read: Sequence[bytes] | None, table: str
) -> tuple[EntryRow, ...] | None:
    """The entries of one table, sorted by match and priority; None: the program has no such table."""
    if table not in current_codec().table_names:
        return None
    should = {entry for entry in entries_of(switch, wanted) if entry.table == table}
    has = None if read is None else {entry for entry in held_entries(read) if entry.table == table}
    keys = {entry.key for entry in should}
    rows = []
    for entry in sorted(
        should | (has or set()), key=lambda e: (str(e.match), e.priority, e.action, e.params)
    ):
        due = entry in should
        held = None if has is None else entry in has
        left_alone = entry.exists_always and entry.key not in keys
        rows.append(_row(entry, due, held, held not in (None, due) and not left_alone))
    return tuple(rows)


def _row(entry: Entry, wanted: bool, held: bool | None, differs: bool) -> EntryRow:
    names = current_codec().parameters(entry)
    return EntryRow(
        {name: _field(name, value) for name, value in entry.match},
        entry.action,
        {name: _value(name, value) for name, value in zip(names, entry.params, strict=False)},
        entry.priority,
        wanted,
        held,
        differs,
    )


def _field(name: str, value: Match) -> str:
    if isinstance(value, int):
        return _value(name, value)
    first, second = value
    if name.startswith(("ipv4", "ipv6")):
        return f"{_value(name, first)}/{second}"
    return f"{first} to {second}"


def _value(name: str, value: int) -> str:
    if name.startswith("ipv4"):
        return str(IPv4Address(value))
    if name.startswith("ipv6"):
        return str(IPv6Address(value))
    if name.endswith("_mac"):
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    return str(value)
