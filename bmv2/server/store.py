# SPDX-License-Identifier: Apache-2.0
"""The authoritative store of what clients wrote: checks an update, keeps it, and names its effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from finsy.proto import p4r

from bmv2.entries import MatchValue, TableEntry
from bmv2.ir import Ir
from bmv2.server.codec import (
    decode_action,
    decode_match,
    decode_priority,
    decode_uint,
    encode_action,
    encode_entry,
)
from bmv2.server.errors import (
    ALREADY_EXISTS,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    StatusError,
    invalid,
)
from bmv2.server.schema import Counter, Schema, Table
from bmv2.switch import EmbeddedSwitch

Effect: TypeAlias = Callable[[EmbeddedSwitch], None]
_Key: TypeAlias = tuple[tuple[MatchValue, ...], int]

_PORT_BITS = 9
_TYPE_NAMES: dict[int, str] = {
    p4r.Update.INSERT: "INSERT",
    p4r.Update.MODIFY: "MODIFY",
    p4r.Update.DELETE: "DELETE",
}


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a table as a client wrote it, with what the client wants back on a read."""

    entry: TableEntry
    metadata: bytes = b""
    controller_metadata: int = 0
    const: bool = False


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its parameters, by its full name."""

    action: str
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A multicast group: replicas as (port, instance), ports from 1."""

    replicas: tuple[tuple[int, int], ...]
    metadata: bytes


class EntityStore:
    """All entities of one committed pipeline. Not thread-safe: its owner holds a lock."""

    def __init__(self, schema: Schema, ir: Ir) -> None:
        """Start with what the program itself contains: its default actions and its constant entries.

        Raises StatusError (INVALID_ARGUMENT) when P4Info names objects that the program has not.
        """
        self.schema = schema
        self._entries: dict[int, dict[_Key, StoredEntry]] = {table_id: {} for table_id in schema.tables}
        self._defaults: dict[int, ActionCall] = {}
        self._program_defaults: dict[int, ActionCall | None] = {}
        self._groups: dict[int, Group] = {}
        _check_against_program(schema, ir)
        program_tables = {table.name: table for table in ir.tables()}
        for table in schema.tables.values():
            program_table = program_tables[table.name]
            default = program_table.default
            self._program_defaults[table.id] = (
                None if default is None else ActionCall(default.action, default.params)
            )
            for entry in program_table.const_entries or ():
                self._entries[table.id][(entry.match, entry.priority)] = StoredEntry(entry, const=True)

    def apply(self, update: p4r.Update) -> Effect:
        """Check an update, keep its outcome, and return what it does to the switch.

        Raises StatusError, the store unchanged, when the update is not acceptable.
        """
        if update.type not in _TYPE_NAMES:
            raise invalid("update: the type is unspecified; legal: INSERT, MODIFY, DELETE")
        kind = update.entity.WhichOneof("entity")
        if kind == "table_entry":
            message = update.entity.table_entry
            if message.is_default_action:
                return self._apply_default(update.type, message)
            return self._apply_entry(update.type, message)
        if kind == "counter_entry":
            return self._apply_counter(update.type, update.entity.counter_entry)
        if kind == "direct_counter_entry":
            return self._apply_direct_counter(update.type, update.entity.direct_counter_entry)
        if kind == "packet_replication_engine_entry":
            engine = update.entity.packet_replication_engine_entry
            if engine.WhichOneof("type") == "multicast_group_entry":
                return self._apply_group(update.type, engine.multicast_group_entry)
            raise StatusError(UNIMPLEMENTED, "clone sessions: the embedded switch has none")
        if kind is None:
            raise invalid("update: it holds no entity")
        raise StatusError(
            UNIMPLEMENTED,
            f"{kind}: cannot be written; legal: table_entry, counter_entry, direct_counter_entry, "
            "multicast_group_entry",
        )

    def table(self, table_id: int) -> Table:
        """Find a table by id; StatusError (NOT_FOUND) with the known ones if there is none."""
        table = self.schema.tables.get(table_id)
        if table is None:
            legal = ", ".join(f"{known.id:#x} ({known.name})" for known in self.schema.tables.values())
            raise StatusError(NOT_FOUND, f"table id {table_id:#x} is unknown; known: {legal}")
        return table

    def entries(self, table: Table) -> list[StoredEntry]:
        """All entries of a table but the default one, in the order of their insertion."""
        return list(self._entries[table.id].values())

    def default(self, table: Table) -> ActionCall | None:
        """Tell what the table does on a miss; None where neither program nor client said."""
        return self._defaults.get(table.id, self._program_defaults[table.id])

    def encode(self, table: Table, stored: StoredEntry) -> p4r.TableEntry:
        """Write an entry for a read."""
        message = encode_entry(self.schema, table, stored.entry)
        message.metadata = stored.metadata
        message.controller_metadata = stored.controller_metadata
        message.is_const = stored.const
        return message

    def encode_default(self, table: Table) -> p4r.TableEntry:
        """Write a table's default entry for a read."""
        message = p4r.TableEntry(table_id=table.id, is_default_action=True)
        call = self.default(table)
        if call is not None:
            message.action.CopyFrom(encode_action(self.schema, call.action, call.params))
        return message

    def groups(self, group_id: int) -> Iterator[p4r.MulticastGroupEntry]:
        """Write one multicast group, or all of them for id 0."""
        for key, group in self._groups.items():
            if group_id in (0, key):
                message = p4r.MulticastGroupEntry(multicast_group_id=key, metadata=group.metadata)
                for port, instance in group.replicas:
                    message.replicas.add(egress_port=port, instance=instance)
                yield message

    def replay(self, source: EntityStore) -> list[Effect]:
        """Take over another store's entities, and return the effects that give them to a fresh pipeline.

        Raises StatusError when something of it does not fit this schema.
        """
        effects: list[Effect] = []
        for table in source.schema.tables.values():
            for stored in source.entries(table):
                if not stored.const:
                    entity = p4r.Entity(table_entry=source.encode(table, stored))
                    effects.append(self.apply(p4r.Update(type=p4r.Update.INSERT, entity=entity)))
            if table.id in source._defaults:
                entity = p4r.Entity(table_entry=source.encode_default(table))
                effects.append(self.apply(p4r.Update(type=p4r.Update.MODIFY, entity=entity)))
        for group in source.groups(0):
            engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
            entity = p4r.Entity(packet_replication_engine_entry=engine)
            effects.append(self.apply(p4r.Update(type=p4r.Update.INSERT, entity=entity)))
        return effects

    def _apply_entry(self, kind: int, message: p4r.TableEntry) -> Effect:
        table = self.table(message.table_id)
        if table.const:
            raise StatusError(PERMISSION_DENIED, f"table {table.name}: is constant, nothing can be written")
        match = decode_match(table, message)
        priority = decode_priority(table, message)
        entries = self._entries[table.id]
        key = (match, priority)
        present = entries.get(key)
        if present is None and kind != p4r.Update.INSERT:
            raise StatusError(NOT_FOUND, f"table {table.name}: no entry with that key and priority")
        if present is not None and present.const:
            raise StatusError(PERMISSION_DENIED, f"table {table.name}: that entry is the program's own")
        if kind == p4r.Update.DELETE:
            assert present is not None
            del entries[key]
            gone = present.entry
            return lambda switch: switch.delete(table.name, gone)
        _refuse_extras(table, message)
        action, params = decode_action(self.schema, table, message.action, default=False)
        entry = TableEntry(match, priority, action, params)
        if kind == p4r.Update.INSERT:
            if present is not None:
                raise StatusError(
                    ALREADY_EXISTS, f"table {table.name}: an entry with that key and priority exists"
                )
            if len(entries) >= table.size:
                raise StatusError(
                    RESOURCE_EXHAUSTED, f"table {table.name}: all {table.size} entries are used"
                )
        entries[key] = StoredEntry(entry, message.metadata, message.controller_metadata)
        if kind == p4r.Update.INSERT:
            return lambda switch: switch.insert(table.name, entry)
        return lambda switch: switch.modify(table.name, entry)

    def _apply_default(self, kind: int, message: p4r.TableEntry) -> Effect:
        table = self.table(message.table_id)
        if kind != p4r.Update.MODIFY:
            raise invalid(f"table {table.name}: a default entry takes MODIFY only, not {_TYPE_NAMES[kind]}")
        if message.match or message.priority:
            raise invalid(f"table {table.name}: a default entry has neither match fields nor a priority")
        if table.const_default:
            raise StatusError(PERMISSION_DENIED, f"table {table.name}: its default action is constant")
        _refuse_extras(table, message)
        if not message.HasField("action"):
            self._defaults.pop(table.id, None)
            return lambda switch: switch.set_default(table.name, None)
        action, params = decode_action(self.schema, table, message.action, default=True)
        self._defaults[table.id] = ActionCall(action, params)
        return lambda switch: switch.set_default(table.name, action, params)

    def _apply_counter(self, kind: int, message: p4r.CounterEntry) -> Effect:
        counter = self.counter(message.counter_id)
        if kind != p4r.Update.MODIFY:
            raise invalid(f"counter {counter.name}: takes MODIFY only, not {_TYPE_NAMES[kind]}")
        if not message.HasField("index"):
            raise invalid(f"counter {counter.name}: an index in 0..{counter.size - 1} is needed")
        index = check_index(counter, message.index.index)
        packets, size_bytes = _counts(counter.name, message.data)
        return lambda switch: switch.write_counter(counter.name, index, packets, size_bytes)

    def _apply_direct_counter(self, kind: int, message: p4r.DirectCounterEntry) -> Effect:
        key = message.table_entry
        table = self.table(key.table_id)
        if table.direct_counter is None:
            raise StatusError(NOT_FOUND, f"table {table.name}: has no direct counter")
        if kind != p4r.Update.MODIFY:
            raise invalid(f"table {table.name}: a direct counter takes MODIFY only, not {_TYPE_NAMES[kind]}")
        stored = self._entries[table.id].get((decode_match(table, key), decode_priority(table, key)))
        if stored is None:
            raise StatusError(NOT_FOUND, f"table {table.name}: no entry with that key and priority")
        entry = stored.entry
        packets, size_bytes = _counts(table.name, message.data)
        return lambda switch: switch.write_direct_counter(table.name, entry, packets, size_bytes)

    def counter(self, counter_id: int) -> Counter:
        """Find an indirect counter by id; StatusError (NOT_FOUND) with the known ones if there is none."""
        counter = self.schema.counters.get(counter_id)
        if counter is None:
            legal = ", ".join(f"{known.id:#x} ({known.name})" for known in self.schema.counters.values())
            raise StatusError(NOT_FOUND, f"counter id {counter_id:#x} is unknown; known: {legal or 'none'}")
        return counter

    def _apply_group(self, kind: int, message: p4r.MulticastGroupEntry) -> Effect:
        group_id = message.multicast_group_id
        if group_id == 0:
            raise invalid("multicast group: id 0 means no group; ids start at 1")
        if kind == p4r.Update.INSERT and group_id in self._groups:
            raise StatusError(ALREADY_EXISTS, f"multicast group {group_id} exists")
        if kind != p4r.Update.INSERT and group_id not in self._groups:
            raise StatusError(NOT_FOUND, f"multicast group {group_id} does not exist")
        if kind == p4r.Update.DELETE:
            del self._groups[group_id]
            return lambda switch: switch.set_multicast_group(group_id, ())
        replicas = tuple((_replica_port(group_id, replica), replica.instance) for replica in message.replicas)
        if len(set(replicas)) != len(replicas):
            raise invalid(f"multicast group {group_id}: a pair of port and instance is given twice")
        self._groups[group_id] = Group(replicas, message.metadata)
        return lambda switch: switch.set_multicast_group(group_id, replicas)


def _counts(name: str, data: p4r.CounterData) -> tuple[int, int]:
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"counter {name}: counts cannot be negative")
    return data.packet_count, data.byte_count


def check_index(counter: Counter, index: int) -> int:
    """Return a counter's index; StatusError (OUT_OF_RANGE) where the counter has no such cell."""
    if not 0 <= index < counter.size:
        raise StatusError(
            OUT_OF_RANGE, f"counter {counter.name}: index {index} is not in 0..{counter.size - 1}"
        )
    return index


def _replica_port(group_id: int, replica: p4r.Replica) -> int:
    what = f"multicast group {group_id}, replica"
    if replica.WhichOneof("port_kind") == "port":
        port = decode_uint(replica.port, _PORT_BITS, what)
    else:
        port = replica.egress_port
    if not 1 <= port < 1 << _PORT_BITS:
        raise invalid(f"{what}: port {port} is not in 1..{(1 << _PORT_BITS) - 1}")
    if replica.backup_replicas:
        raise StatusError(UNIMPLEMENTED, f"{what}: backup replicas are not supported")
    return port


def _refuse_extras(table: Table, message: p4r.TableEntry) -> None:
    if message.idle_timeout_ns:
        raise StatusError(UNIMPLEMENTED, f"table {table.name}: idle time-outs are not supported")
    if message.HasField("meter_config"):
        raise StatusError(UNIMPLEMENTED, f"table {table.name}: has no direct meter")
    if message.counter_data.packet_count or message.counter_data.byte_count:
        raise StatusError(UNIMPLEMENTED, f"table {table.name}: an entry's counter starts at 0")


def _check_against_program(schema: Schema, ir: Ir) -> None:
    program_tables = {table.name: table for table in ir.tables()}
    for table in schema.tables.values():
        if table.name not in program_tables:
            raise invalid(f"P4Info has table {table.name}, which the device config has not")
        widths = [field.width for field in program_tables[table.name].key]
        if widths != [field.width for field in table.key]:
            raise invalid(f"table {table.name}: P4Info and device config disagree on the key's fields")
    actions = {action.name: len(action.params) for action in ir.actions}
    for action in schema.actions.values():
        # p4c keeps an action that no table of the program uses in P4Info only.
        if actions.get(action.name, len(action.params)) != len(action.params):
            raise invalid(f"action {action.name}: P4Info and device config disagree on its parameters")
    for counter in schema.counters.values():
        if ir.counters.get(counter.name) != counter.size:
            raise invalid(
                f"P4Info has counter {counter.name} of {counter.size}, which the device config has not"
            )
