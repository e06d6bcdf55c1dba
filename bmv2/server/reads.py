# SPDX-License-Identifier: Apache-2.0
"""Read requests: one entity, or a wildcard, to the entities that answer it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from finsy.proto import p4r

from bmv2.entries import TableEntry
from bmv2.server.codec import decode_match
from bmv2.server.errors import NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, StatusError, invalid
from bmv2.server.externs import ArraySource, counter_data
from bmv2.server.schema import TableInfo
from bmv2.server.store import EntityStore, StoredEntry

# Entities that one read answers. Chosen: more than any table set of ours holds, some hundred megabytes.
MAX_ANSWERS = 1_000_000
# Requests in one read: nothing is written meanwhile. Chosen: more than a controller reads cells at a time.
MAX_REQUESTS = 16_384


class DataPlaneSource(ArraySource, Protocol):
    """Where counts, registers and ages come from: the data plane, asked by a server thread."""

    def direct(self, table: str, entries: Sequence[TableEntry]) -> Sequence[tuple[int, int]]:
        """Give (packets, bytes) of each of the entries."""

    def idle_ns(self, table: str, entries: Sequence[TableEntry]) -> Sequence[int]:
        """Give the nanoseconds since each of the entries was last hit."""


def read_batch(
    store: EntityStore, requests: Sequence[p4r.Entity], source: DataPlaneSource
) -> tuple[list[p4r.Entity], list[StatusError | None]]:
    """Answer the requests of a read: the entities of those that are legal, and the error of each, or None.

    Raises StatusError (RESOURCE_EXHAUSTED) for more requests or entities than are answered at a time.
    """
    if len(requests) > MAX_REQUESTS:
        raise StatusError(
            RESOURCE_EXHAUSTED,
            f"read: {len(requests)} requests; at most {MAX_REQUESTS} are answered at a time",
        )
    answers: list[p4r.Entity] = []
    outcomes: list[StatusError | None] = []
    for request in requests:
        before = len(answers)
        try:
            answers.extend(islice(read(store, request, source), MAX_ANSWERS + 1 - before))
            outcomes.append(None)
        except StatusError as error:
            del answers[before:]
            outcomes.append(error)
        finally:
            store.schema.settle_strings(keep=False)
        if len(answers) > MAX_ANSWERS:
            said = f"read: more than {MAX_ANSWERS} entities; name tables, or cells by their index"
            raise StatusError(RESOURCE_EXHAUSTED, said)
    return answers, outcomes


def read(store: EntityStore, entity: p4r.Entity, source: DataPlaneSource) -> Iterator[p4r.Entity]:
    """Answer one entity of a ReadRequest. An id of 0 and an absent key or index are wildcards.

    Raises StatusError: NOT_FOUND for an unknown id or a named entity that does not exist, UNIMPLEMENTED
    for kinds that the switch has not.
    """
    match entity.WhichOneof("entity"):
        case "table_entry":
            yield from _read_tables(store, entity.table_entry, source)
        case "counter_entry":
            yield from store.externs.read_counters(entity.counter_entry, source)
        case "direct_counter_entry":
            yield from _read_direct_counters(store, entity.direct_counter_entry.table_entry, source)
        case "direct_meter_entry":
            yield from _read_direct_meters(store, entity.direct_meter_entry)
        case "packet_replication_engine_entry":
            yield from store.replication.read(entity.packet_replication_engine_entry)
        case "action_profile_member":
            member = entity.action_profile_member
            yield from store.profiles.read_members(member.action_profile_id, member.member_id)
        case "action_profile_group":
            group = entity.action_profile_group
            yield from store.profiles.read_groups(group.action_profile_id, group.group_id)
        case "meter_entry":
            yield from store.externs.read_meters(entity.meter_entry)
        case "value_set_entry":
            yield from store.externs.read_value_sets(entity.value_set_entry)
        case "digest_entry":
            yield from store.externs.read_digests(entity.digest_entry)
        case "register_entry":
            yield from store.externs.read_registers(entity.register_entry, source)
        case None:
            raise invalid("read: an entity of no kind; name one, for there is no wildcard over all kinds")
        case kind:
            raise StatusError(UNIMPLEMENTED, f"{kind}: cannot be read")


def _read_tables(
    store: EntityStore, message: p4r.TableEntry, source: DataPlaneSource
) -> Iterator[p4r.Entity]:
    for table in _tables(store, message.table_id):
        if message.is_default_action:
            yield p4r.Entity(table_entry=store.tables.encode_default(table))
            continue
        if message.HasField("time_since_last_hit") and not table.idle_timeout:
            if message.table_id:
                raise invalid(f"table {table.name}: its entries do not age")
            continue
        chosen = _select(store, table, message)
        entries = [stored.entry for stored in chosen]
        counts = ages = None
        if message.HasField("counter_data") and table.direct_counter is not None:
            counts = source.direct(table.name, entries)
        if message.HasField("time_since_last_hit"):
            ages = source.idle_ns(table.name, entries)
        for position, stored in enumerate(chosen):
            answer = store.tables.encode(table, stored)
            if counts is not None and table.direct_counter is not None:
                answer.counter_data.CopyFrom(counter_data(table.direct_counter, counts[position]))
            if ages is not None:
                answer.time_since_last_hit.elapsed_ns = ages[position]
            if message.HasField("meter_config") and stored.meter is not None:
                answer.meter_config.CopyFrom(stored.meter)
            yield p4r.Entity(table_entry=answer)


def _tables(store: EntityStore, table_id: int) -> list[TableInfo]:
    return [store.tables.table(table_id)] if table_id else list(store.schema.tables.values())


def _select(store: EntityStore, table: TableInfo, message: p4r.TableEntry) -> list[StoredEntry]:
    """Pick the entries that a (table_id known) filter asks for: by key, priority, action and metadata."""
    if message.match:
        chosen = store.tables.matching(table, decode_match(table, message), message.priority)
    else:
        chosen = store.tables.entries(table)
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


def _chosen_keys(
    store: EntityStore, table: TableInfo, message: p4r.TableEntry
) -> Iterator[tuple[StoredEntry, p4r.TableEntry]]:
    chosen = _select(store, table, message)
    if message.match and not chosen:
        # Of a direct resource, unlike of an entry, a key that is not there is an error (9.3.1, 9.4.1).
        raise StatusError(NOT_FOUND, f"table {table.name}: no entry with that key and priority")
    for stored in chosen:
        key = store.tables.encode(table, stored)
        key.ClearField("action")
        yield stored, key


def _read_direct_counters(
    store: EntityStore, message: p4r.TableEntry, source: DataPlaneSource
) -> Iterator[p4r.Entity]:
    for table in _tables(store, message.table_id):
        if table.direct_counter is None:
            if message.table_id:
                raise StatusError(NOT_FOUND, f"table {table.name}: has no direct counter")
            continue
        if message.is_default_action:
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: its default entry has no direct counter")
        chosen = list(_chosen_keys(store, table, message))
        counts = source.direct(table.name, [stored.entry for stored, _ in chosen])
        for (_, key), count in zip(chosen, counts, strict=True):
            entry = p4r.DirectCounterEntry(table_entry=key, data=counter_data(table.direct_counter, count))
            yield p4r.Entity(direct_counter_entry=entry)


def _read_direct_meters(store: EntityStore, message: p4r.DirectMeterEntry) -> Iterator[p4r.Entity]:
    wanted = message.table_entry
    for table in _tables(store, wanted.table_id):
        if table.direct_meter is None:
            if wanted.table_id:
                raise StatusError(NOT_FOUND, f"table {table.name}: has no direct meter")
            continue
        if message.HasField("counter_data"):
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: there are no counters per colour")
        if wanted.is_default_action:
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: its default entry has no direct meter")
        for stored, key in _chosen_keys(store, table, wanted):
            entry = p4r.DirectMeterEntry(table_entry=key, config=stored.meter)
            yield p4r.Entity(direct_meter_entry=entry)
