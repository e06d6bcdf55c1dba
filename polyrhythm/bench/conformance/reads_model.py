# SPDX-License-Identifier: Apache-2.0
"""What a read of one entity or wildcard is answered, by the model (P4Runtime 1.5, 9.1.6 and 13.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypeVar

from finsy.proto import p4i, p4r, rpc_code

from polyrhythm.bench.conformance.externs_model import counted
from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.values import INVALID, Codes, canonical_match

_Answer: TypeAlias = tuple[Codes, list[p4r.Entity]]
_T = TypeVar("_T")
# Arrays beyond this size are not read whole: a wildcard would give every cell.
WHOLE_ARRAY = 2048


def expected(model: SwitchModel, entity: p4r.Entity) -> _Answer:
    """The codes of a request that is refused, or no codes and all entities of its answer, in any order."""
    match entity.WhichOneof("entity"):
        case "table_entry":
            return _table_entries(model, entity.table_entry)
        case "direct_counter_entry":
            return _direct(model, entity.direct_counter_entry.table_entry, meters=False)
        case "direct_meter_entry":
            return _direct(model, entity.direct_meter_entry.table_entry, meters=True)
        case "action_profile_member":
            return _members(model, entity.action_profile_member)
        case "action_profile_group":
            return _groups(model, entity.action_profile_group)
        case "packet_replication_engine_entry":
            return _replication(model, entity.packet_replication_engine_entry)
        case "extern_entry":
            return {rpc_code.UNIMPLEMENTED: "9.9"}, []
        case None:
            return {INVALID: "13.2"}, []
        case _:
            return model.externs.read(entity, WHOLE_ARRAY)


def _chosen(model: SwitchModel, table: p4i.Table, message: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
    """The entries of a table that pass the request's filters."""
    match = canonical_match(message.match)
    for entry in model.entries[table.preamble.id].values():
        action = message.action.action.action_id
        wrong = (
            (match and list(entry.match) != match)
            or (message.priority and entry.priority != message.priority)
            or (message.HasField("action") and entry.action.action.action_id != action)
            or (message.metadata and entry.metadata != message.metadata)
            or (message.controller_metadata and entry.controller_metadata != message.controller_metadata)
        )
        if not wrong:
            yield entry


def _tables(model: SwitchModel, table_id: int) -> list[p4i.Table]:
    return list(model.tables.values()) if not table_id else [model.tables[table_id]]


def _table_entries(model: SwitchModel, message: p4r.TableEntry) -> _Answer:
    if message.table_id and message.table_id not in model.tables:
        return {rpc_code.NOT_FOUND: "9"}, []
    tables = _tables(model, message.table_id)
    if message.is_default_action:
        return {}, [p4r.Entity(table_entry=model.defaults[table.preamble.id]) for table in tables]
    if message.match:
        codes = model.types.check_match(tables[0].match_fields, message.match)
        if codes:
            return codes, []
    answers = []
    for table in tables:
        for entry in _chosen(model, table, message):
            answer = p4r.TableEntry()
            answer.CopyFrom(entry)
            counter = model.direct_counters.get(table.preamble.id)
            answer.ClearField("counter_data")
            if counter is not None and message.HasField("counter_data"):
                answer.counter_data.CopyFrom(counted(counter.spec.unit, entry.counter_data))
            if not message.HasField("meter_config"):
                answer.ClearField("meter_config")
            answers.append(p4r.Entity(table_entry=answer))
    return {}, answers


def _direct(model: SwitchModel, message: p4r.TableEntry, *, meters: bool) -> _Answer:
    resources = model.direct_meters if meters else model.direct_counters
    if message.table_id and (message.table_id not in model.tables or message.table_id not in resources):
        return {rpc_code.NOT_FOUND: "9.3.1, 9.4.1"}, []
    tables = [table for table in _tables(model, message.table_id) if table.preamble.id in resources]
    if message.match:
        codes = model.types.check_match(tables[0].match_fields, message.match)
        if codes:
            return codes, []
    answers = []
    for table in tables:
        for entry in _chosen(model, table, message):
            key = p4r.TableEntry()
            key.CopyFrom(entry)
            for field in ("action", "counter_data", "meter_config"):
                key.ClearField(field)
            if meters:
                config = entry.meter_config if entry.HasField("meter_config") else None
                answer = p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key, config=config))
            else:
                data = counted(model.direct_counters[table.preamble.id].spec.unit, entry.counter_data)
                answer = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key, data=data))
            answers.append(answer)
    if message.match and not answers:
        return {rpc_code.NOT_FOUND: "9.3.1, 9.4.1"}, []
    return {}, answers


def _members(model: SwitchModel, message: p4r.ActionProfileMember) -> _Answer:
    codes, found = _of_profile(model, message.action_profile_id, message.member_id, model.members, "9.2.1")
    return codes, [p4r.Entity(action_profile_member=member) for member in found]


def _groups(model: SwitchModel, message: p4r.ActionProfileGroup) -> _Answer:
    codes, found = _of_profile(model, message.action_profile_id, message.group_id, model.groups, "9.2.2")
    return codes, [p4r.Entity(action_profile_group=group) for group in found]


def _of_profile(
    model: SwitchModel, profile: int, number: int, held: Mapping[tuple[int, int], _T], section: str
) -> tuple[Codes, list[_T]]:
    """The members or groups of a profile and of a number; 0 stands for all. `section`: where a missing one is
    said to be an error.
    """
    if profile and profile not in model.profiles:
        return {rpc_code.NOT_FOUND: "9"}, []
    found = [item for (owner, own), item in held.items() if profile in (0, owner) and number in (0, own)]
    return ({rpc_code.NOT_FOUND: section} if profile and number and not found else {}), found


def _replication(model: SwitchModel, message: p4r.PacketReplicationEngineEntry) -> _Answer:
    engine = p4r.PacketReplicationEngineEntry
    if message.WhichOneof("type") == "clone_session_entry":
        number = message.clone_session_entry.session_id
        entries = [
            engine(clone_session_entry=session)
            for held, session in model.sessions.items()
            if number in (0, held)
        ]
        missing = "9.5.2"
    else:
        number = message.multicast_group_entry.multicast_group_id
        entries = [
            engine(multicast_group_entry=group)
            for held, group in model.multicast.items()
            if number in (0, held)
        ]
        missing = "9.5.1"
    codes: Codes = {rpc_code.NOT_FOUND: missing} if number and not entries else {}
    return codes, [p4r.Entity(packet_replication_engine_entry=entry) for entry in entries]
