# SPDX-License-Identifier: Apache-2.0
"""Random updates of counters, meters, value sets, registers, digests and direct resources."""

from __future__ import annotations

from collections.abc import Callable

from finsy.proto import p4r

from polyrhythm.bench.conformance.model import SwitchModel
from polyrhythm.bench.conformance.reads_model import WHOLE_ARRAY
from polyrhythm.bench.conformance.value_draws import UNKNOWN_ID, ValueDraws


class ExternDraws:
    """Draws for the externs of the model's program. `makers` are those that it has, with their weights."""

    def __init__(self, values: ValueDraws, model: SwitchModel) -> None:
        self._values = values
        self._rng = values.rng
        self._model = model
        externs = model.externs
        makers: list[tuple[Callable[[], p4r.Entity], int, bool]] = [
            (self._counter, 10, bool(externs.counters)),
            (self._meter, 10, bool(externs.meters)),
            (self._value_set, 10, bool(externs.value_sets)),
            (self._register, 10, bool(externs.registers)),
            (self._digest, 5, bool(externs.digests)),
            (self._direct_counter, 10, bool(model.direct_counters)),
            (self._direct_meter, 10, bool(model.direct_meters)),
        ]
        self.makers = [(maker, weight) for maker, weight, there in makers if there]

    def _counter(self) -> p4r.Entity:
        counter = self._rng.choice(list(self._model.externs.counters.values()))
        message = p4r.CounterEntry(counter_id=self._id(counter.preamble.id))
        self._values.index(message, counter.size, WHOLE_ARRAY)
        if self._rng.random() < 0.97:
            message.data.CopyFrom(self._values.counts())
        return p4r.Entity(counter_entry=message)

    def _meter(self) -> p4r.Entity:
        meter = self._rng.choice(list(self._model.externs.meters.values()))
        message = p4r.MeterEntry(meter_id=self._id(meter.preamble.id))
        self._values.index(message, meter.size, WHOLE_ARRAY)
        if self._rng.random() < 0.8:
            message.config.CopyFrom(self._values.rates(meter.spec.type))
        if self._rng.random() < 0.01:
            message.counter_data.SetInParent()
        return p4r.Entity(meter_entry=message)

    def _value_set(self) -> p4r.Entity:
        value_set = self._rng.choice(list(self._model.externs.value_sets.values()))
        message = p4r.ValueSetEntry(value_set_id=self._id(value_set.preamble.id))
        for _ in range(self._rng.randint(0, min(value_set.size, 4) + self._values.spoiled())):
            match = self._values.match(value_set.match)
            if self._rng.random() < 0.02:
                self._values.spoil_match(match)
            message.members.add(match=match)
        return p4r.Entity(value_set_entry=message)

    def _register(self) -> p4r.Entity:
        register = self._rng.choice(list(self._model.externs.registers.values()))
        message = p4r.RegisterEntry(register_id=self._id(register.preamble.id))
        self._values.index(message, register.size, WHOLE_ARRAY)
        message.data.CopyFrom(self._values.data(register.type_spec))
        return p4r.Entity(register_entry=message)

    def _digest(self) -> p4r.Entity:
        rng = self._rng
        message = p4r.DigestEntry(digest_id=self._id(rng.choice(list(self._model.externs.digests))))
        message.config.max_list_size = rng.choice((0, 1, 5)) if not self._values.spoiled() else -1
        message.config.max_timeout_ns = rng.randrange(1_000_000)
        message.config.ack_timeout_ns = rng.randrange(1_000_000)
        return p4r.Entity(digest_entry=message)

    def _direct_counter(self) -> p4r.Entity:
        message = p4r.DirectCounterEntry(table_entry=self._entry(list(self._model.direct_counters)))
        if self._rng.random() < 0.95:
            message.data.CopyFrom(self._values.counts())
        return p4r.Entity(direct_counter_entry=message)

    def _direct_meter(self) -> p4r.Entity:
        message = p4r.DirectMeterEntry(table_entry=self._entry(list(self._model.direct_meters)))
        meter = self._model.direct_meters.get(message.table_entry.table_id)
        if meter is not None and self._rng.random() < 0.8:
            message.config.CopyFrom(self._values.rates(meter.spec.type))
        if self._rng.random() < 0.01:
            message.counter_data.SetInParent()
        return p4r.Entity(direct_meter_entry=message)

    def _entry(self, tables: list[int]) -> p4r.TableEntry:
        """The key of an entry that a table with such a resource has, seldom another."""
        rng = self._rng
        table = rng.choice(tables)
        held = list(self._model.entries[table].values())
        message = p4r.TableEntry(table_id=table)
        if held and rng.random() < 0.9:
            entry = rng.choice(held)
            message.match.extend(entry.match)
            message.priority = entry.priority
        else:
            message.match.extend(self._values.match(self._model.tables[table].match_fields))
            message.priority = rng.randint(0, 3)
        if rng.random() < 0.02:
            message.table_id = rng.choice((UNKNOWN_ID, *self._model.tables))
        return message

    def _id(self, number: int) -> int:
        return UNKNOWN_ID if self._rng.random() < 0.005 else number
