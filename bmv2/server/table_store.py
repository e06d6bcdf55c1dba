# SPDX-License-Identifier: Apache-2.0
"""Table entries and default actions as clients wrote them, with their direct resources and time-outs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from finsy.proto import p4r

from bmv2.entries import MatchValue, TableEntry
from bmv2.ir import Ir
from bmv2.server.codec import (
    decode_action,
    decode_match,
    decode_priority,
    encode_action,
    encode_entry,
    encode_key,
)
from bmv2.server.dataplane import Effect
from bmv2.server.errors import (
    ALREADY_EXISTS,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    StatusError,
    invalid,
)
from bmv2.server.externs import decode_counts, decode_meter_config
from bmv2.server.lookup import find
from bmv2.server.matches import canonical_key
from bmv2.server.profiles import OneShot, ProfileStore
from bmv2.server.resources import ProfileInfo
from bmv2.server.schema import Schema, TableInfo
from bmv2.server.table_effects import DirectResources, StoredEntry, deletion, direct_write, placement

_Key: TypeAlias = tuple[tuple[MatchValue, ...], int]


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action, by its full name, with its parameters, and what a client wants back with it."""

    action: str
    params: tuple[int, ...]
    metadata: bytes = b""
    controller_metadata: int = 0


class TableStore:
    """The tables of one committed pipeline. Not thread-safe: its owner holds a lock."""

    def __init__(self, schema: Schema, ir: Ir, profiles: ProfileStore) -> None:
        """Start with what the program itself contains: its default actions and its initial entries."""
        self._schema = schema
        self._profiles = profiles
        self._entries: dict[int, dict[_Key, StoredEntry]] = {table_id: {} for table_id in schema.tables}
        self._defaults: dict[int, ActionCall] = {}
        self._program_defaults: dict[int, ActionCall | None] = {}
        # The tables with initial entries that clients may change, with their sizes.
        self.preinitialised: dict[str, int] = {}
        self._program_tables = {table.name: table for table in ir.tables()}
        for table in schema.tables.values():
            program_table = self._program_tables.get(table.name)
            default = None if program_table is None else program_table.default
            if default is not None:
                self._program_defaults[table.id] = ActionCall(default.action, default.params)
            elif table.initial_default is not None:
                # p4c's JSON has no default entry for a table with an action profile: it is NoAction.
                action_id, params = table.initial_default
                self._program_defaults[table.id] = ActionCall(schema.actions[action_id].name, params)
            else:
                self._program_defaults[table.id] = None
            if program_table is None:
                # p4c has left it out, for it does nothing: it has no entries, and its default is NoAction.
                continue
            if program_table.initial_entries is not None and not table.const:
                self.preinitialised[table.name] = table.size
            for written in program_table.initial_entries or ():
                entry = replace(written, match=canonical_key(table.key, written.match))
                self._entries[table.id][(entry.match, entry.priority)] = StoredEntry(entry, const=table.const)

    def table(self, table_id: int) -> TableInfo:
        """Find a table by id; StatusError (NOT_FOUND) with the known ones if there is none."""
        return find(self._schema.tables, table_id, "table")

    def entries(self, table: TableInfo) -> list[StoredEntry]:
        """All entries of a table but the default one, in the order of their insertion."""
        return list(self._entries[table.id].values())

    def matching(self, table: TableInfo, match: tuple[MatchValue, ...], priority: int) -> list[StoredEntry]:
        """The entries of that match, of any priority where it is 0."""
        entries = self._entries[table.id]
        if table.prioritised and not priority:
            return [stored for (other, _), stored in entries.items() if other == match]
        stored = entries.get((match, priority))
        return [] if stored is None else [stored]

    def find(self, table: TableInfo, message: p4r.TableEntry) -> StoredEntry:
        """Find the entry with a message's key and priority; StatusError (NOT_FOUND) if there is none."""
        stored = self._entries[table.id].get((decode_match(table, message), decode_priority(table, message)))
        if stored is None:
            raise StatusError(NOT_FOUND, f"table {table.name}: no entry with that key and priority")
        return stored

    def default(self, table: TableInfo) -> ActionCall | None:
        """Tell what the table does on a miss; None where neither program nor client said."""
        return self._defaults.get(table.id, self._program_defaults[table.id])

    def has_own_default(self, table: TableInfo) -> bool:
        """Tell whether a client set the default action."""
        return table.id in self._defaults

    def encode(self, table: TableInfo, stored: StoredEntry) -> p4r.TableEntry:
        """Write an entry for a read."""
        if stored.one_shot is None:
            message = encode_entry(self._schema, table, stored.entry)
        else:
            message = encode_key(table, stored.entry)
            message.idle_timeout_ns = stored.entry.timeout_ns
            message.action.action_profile_action_set.CopyFrom(stored.one_shot.message)
        message.metadata = stored.metadata
        message.controller_metadata = stored.controller_metadata
        message.is_const = stored.const
        return message

    def encode_default(self, table: TableInfo) -> p4r.TableEntry:
        """Write a table's default entry for a read."""
        message = p4r.TableEntry(table_id=table.id, is_default_action=True)
        call = self.default(table)
        if call is not None:
            message.action.CopyFrom(encode_action(self._schema, call.action, call.params))
            message.metadata, message.controller_metadata = call.metadata, call.controller_metadata
        return message

    def apply_entry(self, kind: int, message: p4r.TableEntry) -> Effect:
        """Check and keep an entry's update. Raises StatusError, nothing changed, if it is not acceptable."""
        table = self.table(message.table_id)
        if table.const and kind != p4r.Update.MODIFY:
            raise StatusError(PERMISSION_DENIED, f"table {table.name}: its entries are constant")
        if not table.key:
            raise invalid(f"table {table.name}: has no key, and so no entry but its default one")
        key = (decode_match(table, message), decode_priority(table, message))
        entries = self._entries[table.id]
        present = entries.get(key)
        if present is None and kind != p4r.Update.INSERT:
            raise StatusError(NOT_FOUND, f"table {table.name}: no entry with that key and priority")
        if present is not None and present.const:
            return self._apply_to_const(table, present, message)
        if kind == p4r.Update.DELETE:
            assert present is not None
            del entries[key]
            self._release(table, present)
            return deletion(table, present)
        if kind == p4r.Update.INSERT:
            if present is not None:
                raise StatusError(
                    ALREADY_EXISTS, f"table {table.name}: an entry with that key and priority exists"
                )
            if len(entries) >= table.size:
                raise StatusError(
                    RESOURCE_EXHAUSTED, f"table {table.name}: all {table.size} entries are used"
                )
        stored, direct = self._decode(table, message, key, present)
        entries[key] = stored
        self._retain(table, stored)
        if present is not None:
            self._release(table, present)
        return placement(table, stored, present, direct, _notice(table, stored))

    def _apply_to_const(self, table: TableInfo, present: StoredEntry, message: p4r.TableEntry) -> Effect:
        """Change the direct resources of a constant entry, which is all that can be changed of it."""
        what = f"table {table.name}: its entries are constant"
        if message.HasField("action"):
            raise StatusError(PERMISSION_DENIED, f"{what}; leave the action unset to reach direct resources")
        if message.metadata or message.controller_metadata or message.idle_timeout_ns:
            raise StatusError(PERMISSION_DENIED, f"{what}; only direct resources can be modified")
        direct = self._check_extras(table, message)
        meter = message.meter_config if direct.meter is not None else None
        self._entries[table.id][(present.entry.match, present.entry.priority)] = replace(present, meter=meter)
        return direct_write(table, present.entry, direct)

    def _decode(
        self, table: TableInfo, message: p4r.TableEntry, key: _Key, present: StoredEntry | None
    ) -> tuple[StoredEntry, DirectResources]:
        """Read the rest of an entry; a modification without an action keeps that of `present`.

        Raises StatusError for what the table or its action does not take.
        """
        direct = self._check_extras(table, message)
        match, priority = key
        action = ""
        params: tuple[int, ...] = ()
        member = group = one_shot = None
        if present is not None and not message.HasField("action"):
            action, params = present.entry.action, present.entry.params
            member, group, one_shot = present.entry.member, present.entry.group, present.one_shot
        elif table.profile is None:
            action, params = decode_action(self._schema, table, message.action, default=False)
        else:
            member, group, one_shot = self._decode_reference(table, table.profile, message.action)
        entry = TableEntry(
            match, priority, action, params, member=member, group=group, timeout_ns=message.idle_timeout_ns
        )
        config = message.meter_config if direct.meter is not None else None
        return (
            StoredEntry(
                entry,
                message.metadata,
                message.controller_metadata,
                meter=config,
                one_shot=one_shot,
            ),
            direct,
        )

    def _decode_reference(
        self, table: TableInfo, profile: ProfileInfo, action: p4r.TableAction
    ) -> tuple[int | None, int | None, OneShot | None]:
        kind = action.WhichOneof("type")
        if kind == "action_profile_member_id":
            self._profiles.check_reference(profile, "member", action.action_profile_member_id)
            return action.action_profile_member_id, None, None
        if kind == "action_profile_group_id":
            self._profiles.check_reference(profile, "group", action.action_profile_group_id)
            return None, action.action_profile_group_id, None
        if kind == "action_profile_action_set":
            what = f"table {table.name}, action set"
            one_shot = self._profiles.one_shot(profile, action.action_profile_action_set, what)
            return None, one_shot.group, one_shot
        raise invalid(
            f"table {table.name}: has action profile {profile.name}; give a member, a group or an action set"
        )

    def _retain(self, table: TableInfo, stored: StoredEntry, by: int = 1) -> None:
        if table.profile is None:
            return
        if stored.one_shot is not None:
            self._profiles.keep_one_shot(table.profile, by)
        elif stored.entry.member is not None:
            self._profiles.use(table.profile, "member", stored.entry.member, by)
        elif stored.entry.group is not None:
            self._profiles.use(table.profile, "group", stored.entry.group, by)

    def _release(self, table: TableInfo, stored: StoredEntry) -> None:
        self._retain(table, stored, -1)

    def apply_default(self, kind: int, message: p4r.TableEntry) -> Effect:
        """Check and keep a default action. Raises StatusError, nothing changed, if it is not acceptable."""
        table = self.table(message.table_id)
        if kind != p4r.Update.MODIFY:
            raise invalid(f"table {table.name}: a default entry takes MODIFY only")
        if message.match or message.priority:
            raise invalid(f"table {table.name}: a default entry has neither match fields nor a priority")
        if message.idle_timeout_ns or message.HasField("time_since_last_hit"):
            raise invalid(f"table {table.name}: a default entry does not age")
        if table.const_default:
            raise StatusError(PERMISSION_DENIED, f"table {table.name}: its default action is constant")
        if message.HasField("meter_config") or message.HasField("counter_data"):
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: its default entry has no direct resources")
        if not message.HasField("action"):
            self._defaults.pop(table.id, None)
            return self._default_effect(table, None)
        action, params = decode_action(self._schema, table, message.action, default=True)
        call = ActionCall(action, params, message.metadata, message.controller_metadata)
        self._defaults[table.id] = call
        return self._default_effect(table, action, params)

    def _default_effect(self, table: TableInfo, action: str | None, params: tuple[int, ...] = ()) -> Effect:
        if table.name not in self._program_tables:
            return lambda plane: None
        return lambda plane: plane.switch.set_default(table.name, action, params)

    def apply_direct_counter(self, kind: int, message: p4r.DirectCounterEntry) -> Effect:
        """Check the writing of an entry's counter."""
        table = self.table(message.table_entry.table_id)
        if table.direct_counter is None:
            raise StatusError(NOT_FOUND, f"table {table.name}: has no direct counter")
        if kind != p4r.Update.MODIFY:
            raise invalid(f"table {table.name}: a direct counter takes MODIFY only")
        if message.table_entry.is_default_action:
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: its default entry has no direct counter")
        entry = self.find(table, message.table_entry).entry
        if not message.HasField("data"):
            # The counter is not modified (9.3.1).
            return lambda plane: None
        packets, size = decode_counts(table.name, message.data)
        return lambda plane: plane.switch.write_direct_counter(table.name, entry, packets, size)

    def apply_direct_meter(self, kind: int, message: p4r.DirectMeterEntry) -> Effect:
        """Check and keep the configuration of an entry's meter."""
        table = self.table(message.table_entry.table_id)
        if table.direct_meter is None:
            raise StatusError(NOT_FOUND, f"table {table.name}: has no direct meter")
        if kind != p4r.Update.MODIFY:
            raise invalid(f"table {table.name}: a direct meter takes MODIFY only")
        if message.HasField("counter_data"):
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: there are no counters per colour")
        if message.table_entry.is_default_action:
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: its default entry has no direct meter")
        stored = self.find(table, message.table_entry)
        meter = (
            decode_meter_config(table.direct_meter, message.config) if message.HasField("config") else None
        )
        entry = stored.entry
        kept = message.config if meter is not None else None
        self._entries[table.id][(entry.match, entry.priority)] = replace(stored, meter=kept)
        return lambda plane: plane.switch.set_direct_meter(table.name, entry, meter)

    @staticmethod
    def _check_extras(table: TableInfo, message: p4r.TableEntry) -> DirectResources:
        """Check time-out, counter and meter of an entry; gives what counter and meter are to be."""
        if message.HasField("time_since_last_hit"):
            raise invalid(f"table {table.name}: time_since_last_hit is for reads")
        if message.idle_timeout_ns and not table.idle_timeout:
            raise invalid(f"table {table.name}: its entries do not age; leave idle_timeout_ns 0")
        if message.idle_timeout_ns < 0:
            raise invalid(f"table {table.name}: idle_timeout_ns cannot be negative")
        counts = None
        if message.HasField("counter_data"):
            if table.direct_counter is None:
                raise invalid(f"table {table.name}: has no direct counter")
            counts = decode_counts(table.name, message.counter_data)
        if message.HasField("meter_counter_data"):
            raise StatusError(UNIMPLEMENTED, f"table {table.name}: there are no counters per colour")
        if not message.HasField("meter_config"):
            return DirectResources(None, counts)
        if table.direct_meter is None:
            raise invalid(f"table {table.name}: has no direct meter")
        return DirectResources(decode_meter_config(table.direct_meter, message.meter_config), counts)


def _notice(table: TableInfo, stored: StoredEntry) -> p4r.TableEntry | None:
    """What clients are told when an entry has been idle; None where the table has no time-outs."""
    if not table.idle_timeout:
        return None
    notice = encode_key(table, stored.entry)
    notice.metadata, notice.controller_metadata = stored.metadata, stored.controller_metadata
    notice.idle_timeout_ns = stored.entry.timeout_ns
    return notice
