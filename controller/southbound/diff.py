# SPDX-License-Identifier: Apache-2.0
"""The smallest ordered set of updates that turns a switch's entries into the entries it should have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from controller.southbound.desired import OWN_TABLES, RIGHTS, STAGES, Entry


class UpdateType(StrEnum):
    """P4Runtime's update types."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class EntryUpdate:
    """One update of one entry."""

    operation: UpdateType
    entry: Entry


def difference(held: Iterable[Entry], wanted: Iterable[Entry]) -> tuple[tuple[EntryUpdate, ...], ...]:
    """The updates that turn the entries `held` into `wanted`, in stages.

    P4Runtime promises no order within a batch, so updates that depend on one another are in different
    stages: an entry is written before the entries that refer to it, and deleted after them. A packet never
    meets a reference to a missing entry. Entries in tables that the controller does not write stay. RIGHTS
    are deleted with what is written in their stage: a job that comes while another leaves then takes one
    round trip and not two.
    """
    before = {entry.key: entry for entry in held if entry.table in OWN_TABLES}
    after = {entry.key: entry for entry in wanted}
    writes: list[list[EntryUpdate]] = [[] for _ in STAGES]
    deletes: list[list[EntryUpdate]] = [[] for _ in STAGES]
    for key, entry in after.items():
        old = before.get(key)
        if old == entry:
            continue
        if entry.exists_always or old is not None:
            change = EntryUpdate(UpdateType.MODIFY, entry)
        else:
            change = EntryUpdate(UpdateType.INSERT, entry)
        writes[_stage(entry)].append(change)
    for key, entry in before.items():
        if key not in after and not entry.exists_always:
            stage = (writes if entry.table in RIGHTS else deletes)[_stage(entry)]
            stage.append(EntryUpdate(UpdateType.DELETE, entry))
    return tuple(tuple(stage) for stage in (*writes, *reversed(deletes)) if stage)


def _stage(entry: Entry) -> int:
    return next(i for i, tables in enumerate(STAGES) if entry.table in tables)
