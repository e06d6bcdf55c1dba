# SPDX-License-Identifier: Apache-2.0
"""Read requests: one entity, or a wildcard, to the entities that answer it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from finsy.proto import p4r

from bmv2.entries import TableEntry
from bmv2.server.codec import decode_match
from bmv2.server.errors import NOT_FOUND, UNIMPLEMENTED, StatusError
from bmv2.server.schema import Counter, Table
from bmv2.server.store import EntityStore, StoredEntry, check_index

# Entities that the embedded switch never holds: a wildcard read of them answers with nothing.
_EMPTY_KINDS = {
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "meter_entry": "meter_id",
    "value_set_entry": "value_set_id",
    "digest_entry": "digest_id",
}


class CounterSource(Protocol):
    """Where counts come from: the data plane, asked by a server thread."""

    def indirect(self, name: str, size: int) -> Sequence[tuple[int, int]]:
        """Give (packets, bytes) of each of `size` indices of the counter."""

    def direct(self, table: str, entries: Sequence[TableEntry]) -> Sequence[tuple[int, int]]:
        """Give (packets, bytes) of each of the entries."""


def read(store: EntityStore, entity: p4r.Entity, counters: CounterSource) -> Iterator[p4r.Entity]:
    """Answer one entity of a ReadRequest. An id of 0 and an absent key or index are wildcards.

    Raises StatusError: NOT_FOUND for an unknown id or a named entity that does not exist, UNIMPLEMENTED
    for kinds that the switch has not.
    """
    kind = entity.WhichOneof("entity")
    if kind == "table_entry":
        yield from _read_tables(store, entity.table_entry, counters)
    elif kind == "counter_entry":
        yield from _read_counters(store, entity.counter_entry, counters)
    elif kind == "direct_counter_entry":
        yield from _read_direct_counters(store, entity.direct_counter_entry.table_entry, counters)
    elif kind == "packet_replication_engine_entry":
        yield from _read_groups(store, entity.packet_replication_engine_entry)
    elif kind in _EMPTY_KINDS:
        key = getattr(getattr(entity, kind), _EMPTY_KINDS[kind])
        if key:
            raise StatusError(NOT_FOUND, f"{kind}: id {key:#x} is unknown; the program has none")
    else:
        raise StatusError(UNIMPLEMENTED, f"{kind or 'an empty entity'}: cannot be read")


def _read_tables(
    store: EntityStore, message: p4r.TableEntry, counters: CounterSource
) -> Iterator[p4r.Entity]:
    for table in _tables(store, message.table_id):
        if message.is_default_action:
            yield p4r.Entity(table_entry=store.encode_default(table))
            continue
        chosen = _select(store, table, message)
        counts = _counts(table, chosen, counters) if message.HasField("counter_data") else None
        for position, stored in enumerate(chosen):
            answer = store.encode(table, stored)
            if counts is not None and table.direct_counter is not None:
                answer.counter_data.CopyFrom(_data(table.direct_counter, counts[position]))
            yield p4r.Entity(table_entry=answer)


def _tables(store: EntityStore, table_id: int) -> list[Table]:
    return [store.table(table_id)] if table_id else list(store.schema.tables.values())


def _select(store: EntityStore, table: Table, message: p4r.TableEntry) -> list[StoredEntry]:
    """Pick the entries that a (table_id known) filter asks for: by key, priority, action and metadata."""
    chosen = store.entries(table)
    if message.match:
        match = decode_match(table, message)
        chosen = [stored for stored in chosen if stored.entry.match == match]
    if message.priority:
        chosen = [stored for stored in chosen if stored.entry.priority == message.priority]
    if message.HasField("action"):
        wanted = store.schema.actions.get(message.action.action.action_id)
        chosen = [stored for stored in chosen if wanted is not None and stored.entry.action == wanted.name]
    if message.metadata:
        chosen = [stored for stored in chosen if stored.metadata == message.metadata]
    if message.controller_metadata:
        chosen = [stored for stored in chosen if stored.controller_metadata == message.controller_metadata]
    return chosen


def _counts(
    table: Table, chosen: Sequence[StoredEntry], counters: CounterSource
) -> Sequence[tuple[int, int]] | None:
    if table.direct_counter is None:
        return None
    return counters.direct(table.name, [stored.entry for stored in chosen])


def _data(counter: Counter, count: tuple[int, int]) -> p4r.CounterData:
    data = p4r.CounterData()
    if counter.counts_packets:
        data.packet_count = count[0]
    if counter.counts_bytes:
        data.byte_count = count[1]
    return data


def _read_counters(
    store: EntityStore, message: p4r.CounterEntry, counters: CounterSource
) -> Iterator[p4r.Entity]:
    wanted = (
        [store.counter(message.counter_id)] if message.counter_id else list(store.schema.counters.values())
    )
    for counter in wanted:
        indices: Sequence[int] = range(counter.size)
        if message.HasField("index"):
            indices = [check_index(counter, message.index.index)]
        values = counters.indirect(counter.name, counter.size)
        for index in indices:
            entry = p4r.CounterEntry(counter_id=counter.id, data=_data(counter, values[index]))
            entry.index.index = index
            yield p4r.Entity(counter_entry=entry)


def _read_direct_counters(
    store: EntityStore, message: p4r.TableEntry, counters: CounterSource
) -> Iterator[p4r.Entity]:
    for table in _tables(store, message.table_id):
        if table.direct_counter is None:
            if message.table_id:
                raise StatusError(NOT_FOUND, f"table {table.name}: has no direct counter")
            continue
        if message.is_default_action:
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: its default entry has no direct counter")
        chosen = _select(store, table, message)
        counts = counters.direct(table.name, [stored.entry for stored in chosen])
        for stored, count in zip(chosen, counts, strict=True):
            key = store.encode(table, stored)
            key.ClearField("action")
            entry = p4r.DirectCounterEntry(table_entry=key, data=_data(table.direct_counter, count))
            yield p4r.Entity(direct_counter_entry=entry)


def _read_groups(store: EntityStore, engine: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
    if engine.WhichOneof("type") == "clone_session_entry":
        if engine.clone_session_entry.session_id:
            raise StatusError(NOT_FOUND, "clone sessions: the embedded switch has none")
        return
    group_id = engine.multicast_group_entry.multicast_group_id
    found = list(store.groups(group_id))
    if group_id and not found:
        raise StatusError(NOT_FOUND, f"multicast group {group_id} does not exist")
    for group in found:
        answer = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
        yield p4r.Entity(packet_replication_engine_entry=answer)
