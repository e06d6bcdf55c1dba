# SPDX-License-Identifier: Apache-2.0
"""What the writing of a table's entry does to the data plane."""

from __future__ import annotations

from dataclasses import dataclass

from finsy.proto import p4r

from bmv2.entries import MeterConfig, TableEntry
from bmv2.server.dataplane import DataPlane, Effect
from bmv2.server.profiles import OneShot
from bmv2.server.schema import TableInfo


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a table as a client wrote it, with what the client wants back on a read.

    `const` says that it is the program's own, and that clients cannot change it.
    """

    entry: TableEntry
    metadata: bytes = b""
    controller_metadata: int = 0
    const: bool = False
    meter: p4r.MeterConfig | None = None
    one_shot: OneShot | None = None


@dataclass(frozen=True, slots=True)
class DirectResources:
    """What a write gives the direct resources of an entry. No `counts` leave the counter as it is."""

    meter: MeterConfig | None = None
    counts: tuple[int, int] | None = None


def placement(
    table: TableInfo,
    stored: StoredEntry,
    present: StoredEntry | None,
    direct: DirectResources,
    notice: p4r.TableEntry | None,
) -> Effect:
    """Make the effect of an insertion, or of a modification where there was an entry before.

    `notice` is what clients are told when the entry has been idle; None: the table has no time-outs.
    """
    entry = stored.entry
    replaced = None if present is None else present.one_shot

    def land(plane: DataPlane) -> None:
        switch = plane.switch
        if stored.one_shot is not None and stored.one_shot is not replaced:
            _add_group(plane, table, stored.one_shot)
        (switch.insert if present is None else switch.modify)(table.name, entry)
        if replaced is not None and replaced is not stored.one_shot:
            _remove_group(plane, table, replaced)
        _write_direct(plane, table, entry, direct)
        if notice is not None:
            plane.ageing.watch(table.name, entry, notice)

    return land


def direct_write(table: TableInfo, entry: TableEntry, direct: DirectResources) -> Effect:
    """Make the effect of a write that reaches nothing but an entry's direct resources."""
    return lambda plane: _write_direct(plane, table, entry, direct)


def _write_direct(plane: DataPlane, table: TableInfo, entry: TableEntry, direct: DirectResources) -> None:
    if direct.counts is not None:
        plane.switch.write_direct_counter(table.name, entry, *direct.counts)
    if table.direct_meter is not None:
        plane.switch.set_direct_meter(table.name, entry, direct.meter)


def deletion(table: TableInfo, stored: StoredEntry) -> Effect:
    """Make the effect of a deletion."""

    def land(plane: DataPlane) -> None:
        plane.switch.delete(table.name, stored.entry)
        if stored.one_shot is not None:
            _remove_group(plane, table, stored.one_shot)
        if table.idle_timeout:
            plane.ageing.forget(table.name, stored.entry)

    return land


def _add_group(plane: DataPlane, table: TableInfo, one_shot: OneShot) -> None:
    assert table.profile is not None
    for member, (action, params) in one_shot.members:
        plane.switch.add_member(table.profile.name, member, action, params)
    plane.switch.add_group(table.profile.name, one_shot.group, one_shot.parts)


def _remove_group(plane: DataPlane, table: TableInfo, one_shot: OneShot) -> None:
    assert table.profile is not None
    plane.switch.delete_group(table.profile.name, one_shot.group)
    for member, _ in one_shot.members:
        plane.switch.delete_member(table.profile.name, member)
