# SPDX-License-Identifier: Apache-2.0
"""The store of what clients wrote. It checks and keeps an update and returns its effect on the data plane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from finsy.proto import p4r

from bmv2.ir import Ir
from bmv2.server.codec import encode_key
from bmv2.server.consistency import check_consistency
from bmv2.server.dataplane import Effect
from bmv2.server.errors import UNIMPLEMENTED, StatusError, invalid
from bmv2.server.externs import ExternStore
from bmv2.server.profiles import PortTest, ProfileStore, any_port
from bmv2.server.replication import ReplicationStore
from bmv2.server.schema import Schema
from bmv2.server.table_effects import StoredEntry
from bmv2.server.table_store import TableStore

__all__ = ["Effect", "EntityStore", "StoredEntry"]

_UPDATE_TYPES = {p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE}


class EntityStore:
    """All entities of one committed pipeline. Not thread-safe: its owner holds a lock."""

    def __init__(self, schema: Schema, ir: Ir, port_exists: PortTest = any_port) -> None:
        """Start with what the program itself contains: its default actions and its initial entries.

        `port_exists` tells whether the device has a port. Raises StatusError (INVALID_ARGUMENT) when P4Info
        names objects that the program has not.
        """
        check_consistency(schema, ir)
        self.schema = schema
        self.profiles = ProfileStore(schema, port_exists)
        self.tables = TableStore(schema, ir, self.profiles)
        self.replication = ReplicationStore()
        self.externs = ExternStore(schema)
        self._appliers: dict[str, Callable[[int, Any], Effect]] = {
            "table_entry": self._apply_table_entry,
            "counter_entry": self.externs.apply_counter,
            "direct_counter_entry": self.tables.apply_direct_counter,
            "meter_entry": self.externs.apply_meter,
            "direct_meter_entry": self.tables.apply_direct_meter,
            "action_profile_member": self.profiles.apply_member,
            "action_profile_group": self._apply_group,
            "packet_replication_engine_entry": self.replication.apply,
            "value_set_entry": self.externs.apply_value_set,
            "digest_entry": self.externs.apply_digest,
            "register_entry": self.externs.apply_register,
        }

    def apply(self, update: p4r.Update) -> Effect:
        """Check an update, keep its outcome, and return what it does to the data plane.

        Raises StatusError, the store unchanged, when the update is not acceptable.
        """
        if update.type not in _UPDATE_TYPES:
            raise invalid("update: the type is unspecified; legal: INSERT, MODIFY, DELETE")
        kind = update.entity.WhichOneof("entity")
        if kind is None:
            raise invalid("update: it holds no entity")
        applier = self._appliers.get(kind)
        if applier is None:
            raise StatusError(UNIMPLEMENTED, f"{kind}: cannot be written; legal: {', '.join(self._appliers)}")
        try:
            effect = applier(update.type, getattr(update.entity, kind))
        except StatusError:
            self.schema.settle_strings(keep=False)
            raise
        self.schema.settle_strings(keep=True)
        return effect

    def _apply_table_entry(self, kind: int, message: p4r.TableEntry) -> Effect:
        if message.is_const:
            raise invalid("table entry: is_const is for the program's own entries, a client leaves it false")
        if message.is_default_action:
            return self.tables.apply_default(kind, message)
        return self.tables.apply_entry(kind, message)

    def _apply_group(self, kind: int, message: p4r.ActionProfileGroup) -> Effect:
        effect = self.profiles.apply_group(kind, message)
        # A profile that no table uses may be in P4Info only: the data plane has nothing to write to.
        used = self.profiles.profile(message.action_profile_id).table_ids
        return effect if used else lambda plane: None

    def replay(self, source: EntityStore) -> list[Effect]:
        """Take over another store's entities, and return the effects that give them to a fresh pipeline.

        Initial entries that the other store no longer has go too. Raises StatusError (INVALID_ARGUMENT) when
        something of it does not fit this schema.
        """
        initial = [
            (p4r.Update.DELETE, p4r.Entity(table_entry=self.tables.encode(table, stored)))
            for table in self.schema.tables.values()
            for stored in self.tables.entries(table)
            if not stored.const
        ]
        try:
            return [
                self.apply(p4r.Update(type=kind, entity=entity))  # type: ignore[arg-type]
                for kind, entity in (*initial, *source.entities())
            ]
        except StatusError as error:
            raise invalid(f"the present state cannot be kept: {error.message}") from None

    def entities(self) -> Iterator[tuple[int, p4r.Entity]]:
        """What a fresh pipeline would have to be given, with the type of update, in an order that works."""
        insert, modify = p4r.Update.INSERT, p4r.Update.MODIFY
        yield from _all(insert, self.profiles.read_members(0, 0))
        yield from _all(insert, self.profiles.read_groups(0, 0))
        for table in self.schema.tables.values():
            for stored in self.tables.entries(table):
                if not stored.const:
                    message = self.tables.encode(table, stored)
                    if stored.meter is not None:
                        message.meter_config.CopyFrom(stored.meter)
                    yield insert, p4r.Entity(table_entry=message)
                elif stored.meter is not None:
                    message = encode_key(table, stored.entry)
                    message.meter_config.CopyFrom(stored.meter)
                    yield modify, p4r.Entity(table_entry=message)
            if self.tables.has_own_default(table):
                yield modify, p4r.Entity(table_entry=self.tables.encode_default(table))
        yield from _all(insert, self.replication.entities())
        yield from self.externs.entities()


def _all(kind: int, entities: Iterable[p4r.Entity]) -> Iterator[tuple[int, p4r.Entity]]:
    for entity in entities:
        yield kind, entity
