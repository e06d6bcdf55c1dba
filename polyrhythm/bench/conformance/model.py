# SPDX-License-Identifier: Apache-2.0
"""What a P4Runtime switch holds after each write, by the specification (P4Runtime 1.5, chapter 9) alone.

The model reads P4Info and messages, and shares no code with the switch's server. Where the specification
leaves the order of two checks open, it gives the codes of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from finsy.proto import p4i, p4r, rpc_code

from polyrhythm.bench.conformance.values import canonical_action, canonical_entry, check_action, check_key

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
Codes: TypeAlias = set[int]


class SwitchModel:
    """The entities of one switch. Data-plane traffic is no part of it."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.tables = {table.preamble.id: table for table in info.tables}
        self.actions = {action.preamble.id: action for action in info.actions}
        self.profiles = {profile.preamble.id: profile for profile in info.action_profiles}
        self.counters = {counter.preamble.id: counter for counter in info.counters}
        self.direct_counters = {counter.direct_table_id: counter for counter in info.direct_counters}
        self.direct_meters = {meter.direct_table_id: meter for meter in info.direct_meters}
        self.entries: dict[int, dict[bytes, p4r.TableEntry]] = {key: {} for key in self.tables}
        self.defaults: dict[int, p4r.TableEntry] = {}
        self.initial_defaults: dict[int, p4r.TableEntry] = {}
        self.members: dict[tuple[int, int], p4r.ActionProfileMember] = {}
        self.groups: dict[tuple[int, int], p4r.ActionProfileGroup] = {}
        self.cells: dict[tuple[int, int], p4r.CounterData] = {}
        self.multicast: dict[int, p4r.MulticastGroupEntry] = {}
        self.sessions: dict[int, p4r.CloneSessionEntry] = {}

    def start(self, entries: Iterable[p4r.TableEntry], defaults: Iterable[p4r.TableEntry]) -> None:
        """Take the entries of the program itself, and its default entries."""
        for entry in entries:
            kept = canonical_entry(entry)
            kept.is_const = self.tables[entry.table_id].is_const_table
            self.entries[entry.table_id][_key(entry)] = kept
        self.initial_defaults = {entry.table_id: entry for entry in defaults}
        self.defaults = dict(self.initial_defaults)

    def apply(self, update: p4r.Update) -> Codes:
        """The codes that an update may be answered with; only where it is OK the state changes."""
        entity = update.entity
        kind = entity.WhichOneof("entity")
        if update.type == p4r.Update.UNSPECIFIED or kind is None:
            return {rpc_code.INVALID_ARGUMENT}
        handler = getattr(self, f"_{kind}")
        codes: Codes = handler(update.type, getattr(entity, kind))
        return codes or {rpc_code.OK}

    def _table_entry(self, kind: int, message: p4r.TableEntry) -> Codes:
        table = self.tables.get(message.table_id)
        if table is None:
            return {rpc_code.NOT_FOUND}
        if message.is_default_action:
            return self._default(kind, message, table)
        codes: Codes = set()
        if message.is_const:
            codes.add(rpc_code.INVALID_ARGUMENT)
        if table.is_const_table and kind != MODIFY:
            codes.add(rpc_code.PERMISSION_DENIED)
        if not table.match_fields:
            return codes | {rpc_code.INVALID_ARGUMENT}
        faults = check_key(table, message)
        if faults:
            return codes | faults
        entries, key = self.entries[message.table_id], _key(message)
        present = entries.get(key)
        if kind == DELETE:
            if present is None:
                codes.add(rpc_code.NOT_FOUND)
            if not codes:
                del entries[key]
            return codes
        codes |= self._check_presence(kind, present is not None)
        if kind == INSERT and present is None and len(entries) >= table.size:
            codes.add(rpc_code.RESOURCE_EXHAUSTED)
        codes |= self._check_direct(table, message)
        if table.is_const_table:
            if message.HasField("action"):
                codes.add(rpc_code.PERMISSION_DENIED)
        elif message.HasField("action"):
            codes |= self._check_table_action(table, message.action)
        elif kind == INSERT:
            codes.add(rpc_code.INVALID_ARGUMENT)
        if not codes:
            kept = canonical_entry(message)
            if present is not None and not message.HasField("action"):
                kept.action.CopyFrom(present.action)
            if table.is_const_table and present is not None:
                kept.metadata, kept.is_const = present.metadata, True
            if not message.HasField("counter_data") and present is not None:
                kept.counter_data.CopyFrom(present.counter_data)
            entries[key] = kept
        return codes

    def _default(self, kind: int, message: p4r.TableEntry, table: p4i.Table) -> Codes:
        codes: Codes = set()
        if kind != MODIFY or message.match or message.priority:
            codes.add(rpc_code.INVALID_ARGUMENT)
        if table.const_default_action_id:
            codes.add(rpc_code.PERMISSION_DENIED)
        if message.HasField("action") and not table.const_default_action_id:
            codes |= check_action(
                self.actions, table.action_refs, message.action.action, p4i.ActionRef.TABLE_ONLY
            )
        if not codes:
            kept = self.initial_defaults[message.table_id]
            if message.HasField("action"):
                kept = canonical_entry(message)
            self.defaults[message.table_id] = kept
        return codes

    def _check_presence(self, kind: int, present: bool) -> Codes:
        if kind == INSERT:
            return {rpc_code.ALREADY_EXISTS} if present else set()
        return set() if present else {rpc_code.NOT_FOUND}

    def _check_direct(self, table: p4i.Table, message: p4r.TableEntry) -> Codes:
        key = table.preamble.id
        ages = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        wrong = (
            (message.HasField("counter_data") and key not in self.direct_counters)
            or (message.HasField("meter_config") and key not in self.direct_meters)
            or (message.idle_timeout_ns and not ages)
        )
        return {rpc_code.INVALID_ARGUMENT} if wrong else set()

    def _check_table_action(self, table: p4i.Table, action: p4r.TableAction) -> Codes:
        kind = action.WhichOneof("type")
        profile = self.profiles.get(table.implementation_id)
        if profile is None:
            if kind != "action":
                return {rpc_code.INVALID_ARGUMENT}
            return check_action(self.actions, table.action_refs, action.action, p4i.ActionRef.DEFAULT_ONLY)
        number = table.implementation_id
        if kind == "action_profile_member_id":
            known = (number, action.action_profile_member_id) in self.members
            return set() if known else {rpc_code.NOT_FOUND}
        if kind == "action_profile_group_id" and profile.with_selector:
            known = (number, action.action_profile_group_id) in self.groups
            return set() if known else {rpc_code.NOT_FOUND}
        return {rpc_code.INVALID_ARGUMENT}

    def _action_profile_member(self, kind: int, message: p4r.ActionProfileMember) -> Codes:
        profile = self.profiles.get(message.action_profile_id)
        if profile is None:
            return {rpc_code.NOT_FOUND}
        key = (message.action_profile_id, message.member_id)
        if not message.member_id:
            return {rpc_code.INVALID_ARGUMENT}
        if kind == DELETE:
            if key not in self.members:
                return {rpc_code.NOT_FOUND}
            if self._member_used(*key):
                return {rpc_code.FAILED_PRECONDITION}
            del self.members[key]
            return set()
        codes = self._check_presence(kind, key in self.members)
        refs = [ref for table in profile.table_ids for ref in self.tables[table].action_refs]
        codes |= check_action(self.actions, refs, message.action, p4i.ActionRef.DEFAULT_ONLY)
        held = sum(1 for owner, _ in self.members if owner == message.action_profile_id)
        if kind == INSERT and profile.size and held >= profile.size:
            codes.add(rpc_code.RESOURCE_EXHAUSTED)
        if not codes:
            kept = p4r.ActionProfileMember(action_profile_id=key[0], member_id=key[1])
            kept.action.CopyFrom(canonical_action(message.action))
            self.members[key] = kept
        return codes

    def _member_used(self, profile: int, member: int) -> bool:
        in_group = any(
            owner == profile and any(part.member_id == member for part in group.members)
            for (owner, _), group in self.groups.items()
        )
        return in_group or any(
            action.WhichOneof("type") == "action_profile_member_id"
            and action.action_profile_member_id == member
            for action in self._references(profile)
        )

    def _references(self, profile: int) -> Iterator[p4r.TableAction]:
        for table_id, entries in self.entries.items():
            if self.tables[table_id].implementation_id == profile:
                yield from (entry.action for entry in entries.values())

    def _action_profile_group(self, kind: int, message: p4r.ActionProfileGroup) -> Codes:
        profile = self.profiles.get(message.action_profile_id)
        if profile is None:
            return {rpc_code.NOT_FOUND}
        key = (message.action_profile_id, message.group_id)
        if not profile.with_selector or not message.group_id:
            return {rpc_code.INVALID_ARGUMENT}
        if kind == DELETE:
            if key not in self.groups:
                return {rpc_code.NOT_FOUND}
            used = any(
                action.WhichOneof("type") == "action_profile_group_id"
                and action.action_profile_group_id == message.group_id
                for action in self._references(key[0])
            )
            if used:
                return {rpc_code.FAILED_PRECONDITION}
            del self.groups[key]
            return set()
        codes = self._check_presence(kind, key in self.groups)
        if kind == MODIFY and key in self.groups and message.max_size != self.groups[key].max_size:
            codes.add(rpc_code.INVALID_ARGUMENT)
        if profile.max_group_size and not 1 <= message.max_size <= profile.max_group_size:
            codes.add(rpc_code.INVALID_ARGUMENT)
        members = [part.member_id for part in message.members]
        if len(set(members)) != len(members) or any(part.weight < 1 for part in message.members):
            codes.add(rpc_code.INVALID_ARGUMENT)
        if any((key[0], member) not in self.members for member in members):
            codes.add(rpc_code.NOT_FOUND)
        weights = profile.WhichOneof("selector_size_semantics") != "sum_of_members"
        total = sum(part.weight for part in message.members) if weights else len(members)
        if message.max_size and total > message.max_size:
            codes.add(rpc_code.RESOURCE_EXHAUSTED)
        if not codes:
            self.groups[key] = _copy(message)
        return codes

    def _counter_entry(self, kind: int, message: p4r.CounterEntry) -> Codes:
        counter = self.counters.get(message.counter_id)
        if counter is None:
            return {rpc_code.NOT_FOUND}
        if kind != MODIFY or not message.HasField("index") or message.index.index < 0:
            return {rpc_code.INVALID_ARGUMENT}
        if message.index.index >= counter.size:
            return {rpc_code.OUT_OF_RANGE}
        self.cells[message.counter_id, message.index.index] = counted(counter.spec.unit, message.data)
        return set()

    def _packet_replication_engine_entry(self, kind: int, message: p4r.PacketReplicationEngineEntry) -> Codes:
        if message.WhichOneof("type") == "multicast_group_entry":
            group = message.multicast_group_entry
            return self._replicate(kind, group.multicast_group_id, 0xFFFF, group, self.multicast)
        session = message.clone_session_entry
        return self._replicate(kind, session.session_id, 0x7FFF, session, self.sessions)

    def _replicate(self, kind: int, number: int, highest: int, message: Any, held: dict[int, Any]) -> Codes:
        if not number:
            return {rpc_code.INVALID_ARGUMENT}
        codes = self._check_presence(kind, number in held)
        if number > highest:
            codes.add(rpc_code.INVALID_ARGUMENT)
        if kind == DELETE:
            if not codes:
                del held[number]
            return codes
        places = [(replica.egress_port, replica.instance) for replica in message.replicas]
        if len(set(places)) != len(places) or any(port < 1 or instance > 0xFFFF for port, instance in places):
            codes.add(rpc_code.INVALID_ARGUMENT)
        if not codes:
            held[number] = _copy(message)
        return codes


def counted(unit: int, data: p4r.CounterData) -> p4r.CounterData:
    """What of a counter's data its unit keeps."""
    kept = p4r.CounterData()
    if unit != p4i.CounterSpec.BYTES:
        kept.packet_count = data.packet_count
    if unit != p4i.CounterSpec.PACKETS:
        kept.byte_count = data.byte_count
    return kept


def _key(message: p4r.TableEntry) -> bytes:
    kept = canonical_entry(message)
    key = p4r.TableEntry(match=kept.match, priority=kept.priority)
    return key.SerializeToString(deterministic=True)


def _copy(message: Any) -> Any:
    kept = type(message)()
    kept.CopyFrom(message)
    return kept
