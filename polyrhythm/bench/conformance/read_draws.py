# SPDX-License-Identifier: Apache-2.0
"""Random reads: of one entity, by wildcard, and of what is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from finsy.proto import p4r

from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.reads_model import WHOLE_ARRAY
from polyrhythm.bench.conformance.value_draws import UNKNOWN_ID, ValueDraws

_IDS = 7


class ReadDraws:
    """Draws reads of the model's program."""

    def __init__(self, values: ValueDraws, model: SwitchModel) -> None:
        self._values = values
        self._rng = values.rng
        self._model = model
        externs = model.externs
        makers: list[tuple[Callable[[], p4r.Entity], bool]] = [
            (self._table, bool(model.tables)),
            (self._direct_counter, bool(model.direct_counters)),
            (self._direct_meter, bool(model.direct_meters)),
            (self._member, bool(model.profiles)),
            (self._group, bool(model.profiles)),
            (self._multicast, True),
            (self._session, True),
            (lambda: self._cells(p4r.CounterEntry, externs.counters), bool(externs.counters)),
            (lambda: self._cells(p4r.MeterEntry, externs.meters), bool(externs.meters)),
            (lambda: self._cells(p4r.RegisterEntry, externs.registers), bool(externs.registers)),
            (self._value_set, bool(externs.value_sets)),
            (self._digest, bool(externs.digests)),
            (self._odd, True),
        ]
        self._makers = [maker for maker, there in makers if there]

    def read(self) -> p4r.Entity:
        """One entity of a ReadRequest."""
        return self._rng.choice(self._makers)()

    def _table(self) -> p4r.Entity:
        rng = self._rng
        if rng.random() < 0.1:
            default = p4r.TableEntry(is_default_action=True, table_id=rng.choice((0, *self._model.tables)))
            return p4r.Entity(table_entry=default)
        message = self._key(list(self._model.tables))
        if message.table_id in self._model.tables:
            if rng.random() < 0.1:
                refs = self._model.tables[message.table_id].action_refs
                message.action.action.action_id = rng.choice(refs).id if refs else UNKNOWN_ID
            if rng.random() < 0.1:
                message.controller_metadata = rng.randrange(3)
        if rng.random() < 0.5:
            message.counter_data.SetInParent()
        if rng.random() < 0.5:
            message.meter_config.SetInParent()
        return p4r.Entity(table_entry=message)

    def _direct_counter(self) -> p4r.Entity:
        message = p4r.DirectCounterEntry(table_entry=self._key(list(self._model.direct_counters)))
        return p4r.Entity(direct_counter_entry=message)

    def _direct_meter(self) -> p4r.Entity:
        message = p4r.DirectMeterEntry(table_entry=self._key(list(self._model.direct_meters)))
        return p4r.Entity(direct_meter_entry=message)

    def _key(self, tables: list[int]) -> p4r.TableEntry:
        """A table and, most often, filters: the key of an entry that is or is not there, a priority."""
        rng = self._rng
        table = rng.choice((0, *tables, UNKNOWN_ID) if rng.random() < 0.2 else tables)
        message = p4r.TableEntry(table_id=table)
        if table not in self._model.tables or rng.random() < 0.2:
            return message
        held = list(self._model.entries[table].values())
        if held and rng.random() < 0.7:
            entry = rng.choice(held)
            message.match.extend(entry.match)
            message.priority = entry.priority
        elif rng.random() < 0.5:
            message.match.extend(self._values.match(self._model.tables[table].match_fields))
        if rng.random() < 0.2:
            message.priority = rng.randrange(4)
        return message

    def _member(self) -> p4r.Entity:
        message = p4r.ActionProfileMember(action_profile_id=self._id(self._model.profiles))
        message.member_id = self._rng.randrange(_IDS)
        return p4r.Entity(action_profile_member=message)

    def _group(self) -> p4r.Entity:
        message = p4r.ActionProfileGroup(action_profile_id=self._id(self._model.profiles))
        message.group_id = self._rng.randrange(_IDS)
        return p4r.Entity(action_profile_group=message)

    def _multicast(self) -> p4r.Entity:
        engine = p4r.PacketReplicationEngineEntry()
        engine.multicast_group_entry.multicast_group_id = self._rng.randrange(_IDS)
        return p4r.Entity(packet_replication_engine_entry=engine)

    def _session(self) -> p4r.Entity:
        engine = p4r.PacketReplicationEngineEntry()
        engine.clone_session_entry.session_id = self._rng.randrange(_IDS)
        return p4r.Entity(packet_replication_engine_entry=engine)

    def _cells(self, kind: Any, arrays: Mapping[int, Any]) -> p4r.Entity:
        rng = self._rng
        member = {p4r.CounterEntry: "counter", p4r.MeterEntry: "meter", p4r.RegisterEntry: "register"}[kind]
        number = rng.choice((*arrays, UNKNOWN_ID) if rng.random() < 0.1 else list(arrays))
        message = kind(**{f"{member}_id": number})
        if number in arrays:
            self._values.index(message, arrays[number].size, WHOLE_ARRAY)
            # Such an array must not be read whole; one in a while is, where all are small.
            if rng.random() < 0.1 and sum(array.size for array in arrays.values()) <= WHOLE_ARRAY:
                message = kind()
        return p4r.Entity(**{f"{member}_entry": message})

    def _value_set(self) -> p4r.Entity:
        number = self._id(self._model.externs.value_sets)
        return p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=number))

    def _digest(self) -> p4r.Entity:
        number = self._id(self._model.externs.digests)
        return p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number))

    def _odd(self) -> p4r.Entity:
        return p4r.Entity() if self._rng.random() < 0.5 else p4r.Entity(extern_entry=p4r.ExternEntry())

    def _id(self, known: Mapping[int, Any]) -> int:
        """The id of an object, of any one (0), or seldom of none."""
        return self._rng.choice((0, *known, *known, *known, UNKNOWN_ID))
