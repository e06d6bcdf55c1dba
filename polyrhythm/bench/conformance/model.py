# SPDX-License-Identifier: Apache-2.0
"""What a P4Runtime switch holds after each write, by the specification (P4Runtime 1.5, chapter 9) alone.

The model reads P4Info and messages, and shares no code with the switch's server. Where the specification
leaves the order of two checks open, it gives the codes of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from polyrhythm.bench.conformance.externs_model import ExternModel, check_rates
from polyrhythm.bench.conformance.values import (
    INVALID,
    Codes,
    ValueTypes,
    canonical_action,
    canonical_entry,
    canonical_match,
    shortest,
)

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
_EXTERNS = {"counter_entry", "meter_entry", "value_set_entry", "register_entry", "digest_entry"}


class SwitchModel:
    """The entities of one switch. Data-plane traffic is no part of it."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.types = ValueTypes(info.type_info)
        self.externs = ExternModel(info)
        self.tables = {table.preamble.id: table for table in info.tables}
        self.actions = {action.preamble.id: action for action in info.actions}
        self.profiles = {profile.preamble.id: profile for profile in info.action_profiles}
        self.direct_counters = {counter.direct_table_id: counter for counter in info.direct_counters}
        self.direct_meters = {meter.direct_table_id: meter for meter in info.direct_meters}
        self.entries: dict[int, dict[bytes, p4r.TableEntry]] = {key: {} for key in self.tables}
        self.defaults: dict[int, p4r.TableEntry] = {}
        self.initial_defaults: dict[int, p4r.TableEntry] = {}
        self.members: dict[tuple[int, int], p4r.ActionProfileMember] = {}
        self.groups: dict[tuple[int, int], p4r.ActionProfileGroup] = {}
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
            return {INVALID: "12"}
        handler = getattr(self.externs, kind) if kind in _EXTERNS else getattr(self, f"_{kind}")
        codes: Codes = handler(update.type, getattr(entity, kind))
        return codes or {rpc_code.OK: "12"}

    def _table_entry(self, kind: int, message: p4r.TableEntry) -> Codes:
        table = self.tables.get(message.table_id)
        codes: Codes = {INVALID: "9.1"} if message.is_const else {}
        if table is None:
            return codes | {rpc_code.NOT_FOUND: "9"}
        if message.is_default_action:
            return codes | self._default(kind, message, table)
        if table.is_const_table and kind != MODIFY:
            codes[rpc_code.PERMISSION_DENIED] = "9.1.4"
        if not table.match_fields:
            return codes | {INVALID: "9.1"}
        faults = self.types.check_key(table, message)
        if faults:
            return codes | faults
        entries, key = self.entries[message.table_id], _key(message)
        present = entries.get(key)
        if kind == DELETE:
            if present is None:
                codes[rpc_code.NOT_FOUND] = "9.1"
            if not codes:
                del entries[key]
            return codes
        codes |= _check_presence(kind, present is not None, "9.1")
        if kind == INSERT and present is None and len(entries) >= table.size:
            codes[rpc_code.RESOURCE_EXHAUSTED] = "9.1"
        codes |= self._check_direct(table, message)
        if table.is_const_table:
            if message.HasField("action"):
                codes[rpc_code.PERMISSION_DENIED] = "9.1.4"
        elif message.HasField("action"):
            codes |= self._check_table_action(table, message.action)
        elif kind == INSERT:
            codes[INVALID] = "9.1.2"
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
        codes: Codes = {}
        if kind != MODIFY or message.match or message.priority:
            codes[INVALID] = "9.1.3"
        if table.const_default_action_id:
            codes[rpc_code.PERMISSION_DENIED] = "9.1.3"
        if message.HasField("action") and not table.const_default_action_id:
            codes |= self.types.check_action(
                self.actions, table.action_refs, message.action.action, p4i.ActionRef.TABLE_ONLY
            )
        if not codes:
            kept = self.initial_defaults[message.table_id]
            if message.HasField("action"):
                kept = canonical_entry(message)
            self.defaults[message.table_id] = kept
        return codes

    def _check_direct(self, table: p4i.Table, message: p4r.TableEntry) -> Codes:
        key = table.preamble.id
        ages = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        codes: Codes = {}
        if message.HasField("counter_data") and key not in self.direct_counters:
            codes[INVALID] = "9.1.7"
        if message.idle_timeout_ns and not ages:
            codes[INVALID] = "9.1.8"
        if message.HasField("meter_config"):
            meter = self.direct_meters.get(key)
            codes |= {INVALID: "9.1.7"} if meter is None else check_rates(meter.spec.type, message)
        return codes

    def _direct_counter_entry(self, kind: int, message: p4r.DirectCounterEntry) -> Codes:
        entry, codes = self._direct(
            kind, message.table_entry, message.table_entry.table_id in self.direct_counters
        )
        if not codes and entry is not None and message.HasField("data"):
            entry.counter_data.CopyFrom(message.data)
        return codes

    def _direct_meter_entry(self, kind: int, message: p4r.DirectMeterEntry) -> Codes:
        meter = self.direct_meters.get(message.table_entry.table_id)
        entry, codes = self._direct(kind, message.table_entry, meter is not None)
        if meter is not None:
            codes |= check_rates(meter.spec.type, message)
        if not codes and entry is not None:
            entry.ClearField("meter_config")
            if message.HasField("config"):
                entry.meter_config.CopyFrom(message.config)
        return codes

    def _direct(self, kind: int, message: p4r.TableEntry, there: bool) -> tuple[p4r.TableEntry | None, Codes]:
        """Find the entry whose direct resource is written."""
        table = self.tables.get(message.table_id)
        if table is None or not there:
            return None, {rpc_code.NOT_FOUND: "9.3.1, 9.4.1"}
        codes: Codes = {} if kind == MODIFY else {INVALID: "9.3.1, 9.4.1"}
        faults = self.types.check_key(table, message)
        if faults:
            return None, codes | faults
        entry = self.entries[message.table_id].get(_key(message))
        if entry is None:
            codes[rpc_code.NOT_FOUND] = "9.3.1, 9.4.1"
        return entry, codes

    def _check_table_action(self, table: p4i.Table, action: p4r.TableAction) -> Codes:
        kind = action.WhichOneof("type")
        profile = self.profiles.get(table.implementation_id)
        if profile is None:
            if kind != "action":
                return {INVALID: "9.1.2"}
            return self.types.check_action(
                self.actions, table.action_refs, action.action, p4i.ActionRef.DEFAULT_ONLY
            )
        number = table.implementation_id
        if kind == "action_profile_action_set" and profile.with_selector:
            return self._check_action_set(table, profile, action.action_profile_action_set)
        codes: Codes = {INVALID: "9.2.3"} if self._one_shots(number) else {}
        if kind == "action_profile_member_id":
            known = (number, action.action_profile_member_id) in self.members
        elif kind == "action_profile_group_id" and profile.with_selector:
            known = (number, action.action_profile_group_id) in self.groups
        else:
            return {INVALID: "9.1.2"}
        return codes | ({} if known else {rpc_code.NOT_FOUND: "9.1.2"})

    def _check_action_set(
        self, table: p4i.Table, profile: p4i.ActionProfile, actions: p4r.ActionProfileActionSet
    ) -> Codes:
        number = profile.preamble.id
        held = any(owner == number for owner, _ in (*self.members, *self.groups))
        codes: Codes = {INVALID: "9.2.3"} if held else {}
        parts = actions.action_profile_actions
        if any(part.weight < 1 for part in parts):
            codes[INVALID] = "9.2.3"
        if profile.max_group_size and _total(profile, parts) > profile.max_group_size:
            codes[INVALID] = "9.2.3"
        for part in parts:
            codes |= self._check_member_action(profile, part.action)
        return codes

    def _one_shots(self, profile: int) -> bool:
        """Whether an entry has an action set of its own: such a profile has no members and groups (9.2.3)."""
        return any(action.HasField("action_profile_action_set") for action in self._references(profile))

    def _check_member_action(self, profile: p4i.ActionProfile, action: p4r.Action) -> Codes:
        refs = [ref for table in profile.table_ids for ref in self.tables[table].action_refs]
        return self.types.check_action(self.actions, refs, action, p4i.ActionRef.DEFAULT_ONLY)

    def _action_profile_member(self, kind: int, message: p4r.ActionProfileMember) -> Codes:
        profile = self.profiles.get(message.action_profile_id)
        if profile is None:
            return {rpc_code.NOT_FOUND: "9"}
        key = (message.action_profile_id, message.member_id)
        if not message.member_id:
            return {INVALID: "9.2.1"}
        if kind == DELETE:
            if key not in self.members:
                return {rpc_code.NOT_FOUND: "9.2.1"}
            if self._member_used(*key):
                return {rpc_code.FAILED_PRECONDITION: "9.2.1"}
            del self.members[key]
            return {}
        codes = _check_presence(kind, key in self.members, "9.2.1")
        codes |= self._check_member_action(profile, message.action)
        if kind == INSERT and self._one_shots(key[0]):
            codes[INVALID] = "9.2.3"
        held = sum(1 for owner, _ in self.members if owner == message.action_profile_id)
        if kind == INSERT and profile.size and held >= profile.size:
            codes[rpc_code.RESOURCE_EXHAUSTED] = "9.2.1"
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
            return {rpc_code.NOT_FOUND: "9"}
        key = (message.action_profile_id, message.group_id)
        if not profile.with_selector or not message.group_id:
            return {INVALID: "9.2.2"}
        if kind == DELETE:
            if key not in self.groups:
                return {rpc_code.NOT_FOUND: "9.2.2"}
            used = any(
                action.WhichOneof("type") == "action_profile_group_id"
                and action.action_profile_group_id == message.group_id
                for action in self._references(key[0])
            )
            if used:
                return {rpc_code.FAILED_PRECONDITION: "9.2.2"}
            del self.groups[key]
            return {}
        codes = _check_presence(kind, key in self.groups, "9.2.2")
        if kind == INSERT and self._one_shots(key[0]):
            codes[INVALID] = "9.2.3"
        if kind == MODIFY and key in self.groups and message.max_size != self.groups[key].max_size:
            codes[INVALID] = "9.2.2"
        if profile.max_group_size and not 1 <= message.max_size <= profile.max_group_size:
            codes[INVALID] = "9.2.2.1"
        members = [part.member_id for part in message.members]
        if len(set(members)) != len(members) or any(part.weight < 1 for part in message.members):
            codes[INVALID] = "9.2.2"
        if any((key[0], member) not in self.members for member in members):
            codes[rpc_code.NOT_FOUND] = "9.2.2"
        if message.max_size and _total(profile, message.members) > message.max_size:
            codes[rpc_code.RESOURCE_EXHAUSTED] = "9.2.2.1"
        if not codes:
            kept = _copy(message)
            for part in kept.members:
                if part.watch_port:
                    part.watch_port = shortest(part.watch_port)
            self.groups[key] = kept
        return codes

    def _packet_replication_engine_entry(self, kind: int, message: p4r.PacketReplicationEngineEntry) -> Codes:
        if message.WhichOneof("type") == "multicast_group_entry":
            group = message.multicast_group_entry
            return _replicate(kind, group.multicast_group_id, 0xFFFF, group, self.multicast, "9.5.1")
        session = message.clone_session_entry
        codes: Codes = {}
        if kind != DELETE and session.class_of_service:
            codes[rpc_code.UNIMPLEMENTED] = "9.5.2"
        if kind != DELETE and any(replica.backup_replicas for replica in session.replicas):
            codes[rpc_code.UNIMPLEMENTED] = "9.5.2"
        return _replicate(kind, session.session_id, 0x7FFF, session, self.sessions, "9.5.2", codes)


def _check_presence(kind: int, present: bool, section: str) -> Codes:
    if present == (kind == INSERT):
        return {rpc_code.ALREADY_EXISTS if present else rpc_code.NOT_FOUND: section}
    return {}


def _total(profile: p4i.ActionProfile, parts: Any) -> int:
    """The size of a group: its members, with their weights unless P4Info says otherwise."""
    weights = profile.WhichOneof("selector_size_semantics") != "sum_of_members"
    return sum(part.weight for part in parts) if weights else len(parts)


def _replicate(
    kind: int,
    number: int,
    highest: int,
    message: Any,
    held: dict[int, Any],
    section: str,
    codes: Codes | None = None,
) -> Codes:
    if not number:
        return {INVALID: section}
    codes = (codes or {}) | _check_presence(kind, number in held, section)
    if number > highest:
        codes[INVALID] = section
    if kind == DELETE:
        if not codes:
            del held[number]
        return codes
    places = [
        place
        for replica in message.replicas
        for place in [
            (replica.egress_port or int.from_bytes(replica.port, "big"), replica.instance),
            *((int.from_bytes(backup.port, "big"), backup.instance) for backup in replica.backup_replicas),
        ]
    ]
    if len(set(places)) != len(places) or any(port < 1 or instance > 0xFFFF for port, instance in places):
        codes[INVALID] = section
    for replica in message.replicas:
        own = replica.egress_port or int.from_bytes(replica.port, "big")
        if own in [int.from_bytes(backup.port, "big") for backup in replica.backup_replicas]:
            codes[INVALID] = section
    if not codes:
        kept = _copy(message)
        for replica in kept.replicas:
            for place in (replica, *replica.backup_replicas):
                if place.port:
                    place.port = shortest(place.port)
        held[number] = kept
    return codes


def _key(message: p4r.TableEntry) -> bytes:
    key = p4r.TableEntry(match=canonical_match(message.match), priority=message.priority)
    return key.SerializeToString(deterministic=True)


def _copy(message: Any) -> Any:
    kept = type(message)()
    kept.CopyFrom(message)
    return kept
