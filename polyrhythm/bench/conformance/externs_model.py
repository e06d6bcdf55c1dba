# SPDX-License-Identifier: Apache-2.0
"""What a switch holds of its counters, meters, value sets, registers and digests (9.3 to 9.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from finsy.proto import p4d, p4i, p4r, rpc_code

from polyrhythm.bench.conformance.values import (
    INVALID,
    RANGE,
    Codes,
    ValueTypes,
    canonical_match,
    shortest,
)


class ExternModel:
    """The externs of one pipeline. Data-plane traffic is no part of it."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.types = ValueTypes(info.type_info)
        self.counters = {counter.preamble.id: counter for counter in info.counters}
        self.meters = {meter.preamble.id: meter for meter in info.meters}
        self.value_sets = {value_set.preamble.id: value_set for value_set in info.value_sets}
        self.registers = {register.preamble.id: register for register in info.registers}
        self.digests = {digest.preamble.id: digest for digest in info.digests}
        # What was written, by the array's id and the index.
        self.counts: dict[int, dict[int, p4r.CounterData]] = {key: {} for key in self.counters}
        self.rates: dict[int, dict[int, p4r.MeterConfig]] = {key: {} for key in self.meters}
        self.cells: dict[int, dict[int, p4d.P4Data]] = {key: {} for key in self.registers}
        self.members: dict[int, list[p4r.ValueSetMember]] = {key: [] for key in self.value_sets}
        self.enabled: dict[int, p4r.DigestEntry.Config] = {}

    def counter_entry(self, kind: int, message: p4r.CounterEntry) -> Codes:
        """Write a counter; data that are unset leave it as it is, no index is every index."""
        counter = self.counters.get(message.counter_id)
        if counter is None:
            return {rpc_code.NOT_FOUND: "9"}
        codes = _modify_only(kind, "9.3.2") | _check_index(message, counter.size, "9.3.2")
        if min(message.data.packet_count, message.data.byte_count) < 0:
            codes[INVALID] = "9.3"
        if not codes and message.HasField("data"):
            for index in _indices(message, counter.size):
                self.counts[message.counter_id][index] = counted(counter.spec.unit, message.data)
        return codes

    def meter_entry(self, kind: int, message: p4r.MeterEntry) -> Codes:
        """Configure a meter; no configuration is the default one, no index every index."""
        meter = self.meters.get(message.meter_id)
        if meter is None:
            return {rpc_code.NOT_FOUND: "9"}
        codes = _modify_only(kind, "9.4.2") | _check_index(message, meter.size, "9.4.2")
        codes |= check_rates(meter.spec.type, message)
        if not codes:
            for index in _indices(message, meter.size):
                if message.HasField("config"):
                    self.rates[message.meter_id][index] = message.config
                else:
                    self.rates[message.meter_id].pop(index, None)
        return codes

    def value_set_entry(self, kind: int, message: p4r.ValueSetEntry) -> Codes:
        """Replace the members of a value set."""
        value_set = self.value_sets.get(message.value_set_id)
        if value_set is None:
            return {rpc_code.NOT_FOUND: "9"}
        codes = _modify_only(kind, "9.6")
        if len(message.members) > value_set.size:
            codes[rpc_code.RESOURCE_EXHAUSTED] = "9.6"
        for member in message.members:
            codes |= self.types.check_match(value_set.match, member.match)
        kept = [p4r.ValueSetMember(match=canonical_match(member.match)) for member in message.members]
        keys = [member.SerializeToString(deterministic=True) for member in kept]
        if len(set(keys)) != len(keys):
            codes[rpc_code.ALREADY_EXISTS] = "9.6"
        if not codes:
            self.members[message.value_set_id] = kept
        return codes

    def register_entry(self, kind: int, message: p4r.RegisterEntry) -> Codes:
        """Write a register; no index is every index."""
        register = self.registers.get(message.register_id)
        if register is None:
            return {rpc_code.NOT_FOUND: "9"}
        codes = _modify_only(kind, "9.7")
        if not self.types.scalar(register.type_spec)[0]:
            return codes | {rpc_code.UNIMPLEMENTED: "8.4"}
        codes |= _check_index(message, register.size, "9.7")
        codes |= self.types.check_data(register.type_spec, message.data)
        if not codes:
            for index in _indices(message, register.size):
                self.cells[message.register_id][index] = canonical_data(message.data)
        return codes

    def digest_entry(self, kind: int, message: p4r.DigestEntry) -> Codes:
        """Enable, tune or disable a digest."""
        if message.digest_id not in self.digests:
            return {rpc_code.NOT_FOUND: "9"}
        enabled = message.digest_id in self.enabled
        codes: Codes = {}
        if enabled == (kind == p4r.Update.INSERT):
            codes[rpc_code.ALREADY_EXISTS if enabled else rpc_code.NOT_FOUND] = "9.8"
        if kind == p4r.Update.DELETE:
            if not codes:
                del self.enabled[message.digest_id]
            return codes
        config = message.config
        if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
            codes[INVALID] = "9.8"
        if not codes:
            self.enabled[message.digest_id] = config
        return codes

    def read(self, entity: p4r.Entity, most: int) -> tuple[Codes, list[p4r.Entity]]:
        """What a read of an extern is answered; arrays of more than `most` cells are not read whole."""
        which = entity.WhichOneof("entity") or ""
        reader: Callable[[Any, int], tuple[Codes, list[p4r.Entity]]] = getattr(self, f"_read_{which}")
        return reader(getattr(entity, which), most)

    def _read_counter_entry(self, message: p4r.CounterEntry, most: int) -> tuple[Codes, list[p4r.Entity]]:
        codes, places = _places(self.counters, message.counter_id, message, most, "9.3.2")
        return codes, [
            p4r.Entity(
                counter_entry=p4r.CounterEntry(
                    counter_id=number,
                    index=p4r.Index(index=index),
                    data=self.counts[number].get(index, p4r.CounterData()),
                )
            )
            for number, index in places
        ]

    def _read_meter_entry(self, message: p4r.MeterEntry, most: int) -> tuple[Codes, list[p4r.Entity]]:
        codes, places = _places(self.meters, message.meter_id, message, most, "9.4.2")
        if message.HasField("counter_data"):
            codes[rpc_code.UNIMPLEMENTED] = "9.4"
        return codes, [
            p4r.Entity(
                meter_entry=p4r.MeterEntry(
                    meter_id=number, index=p4r.Index(index=index), config=self.rates[number].get(index)
                )
            )
            for number, index in places
        ]

    def _read_register_entry(self, message: p4r.RegisterEntry, most: int) -> tuple[Codes, list[p4r.Entity]]:
        scalars = {
            number: register
            for number, register in self.registers.items()
            if number == message.register_id or self.types.scalar(register.type_spec)[0]
        }
        codes, places = _places(scalars, message.register_id, message, most, "9.7")
        if (
            message.register_id in scalars
            and not self.types.scalar(scalars[message.register_id].type_spec)[0]
        ):
            return {rpc_code.UNIMPLEMENTED: "8.4"}, []
        return codes, [
            p4r.Entity(
                register_entry=p4r.RegisterEntry(
                    register_id=number,
                    index=p4r.Index(index=index),
                    data=self.cells[number].get(index, self._zero(self.registers[number])),
                )
            )
            for number, index in places
        ]

    def _zero(self, register: p4i.Register) -> p4d.P4Data:
        match self.types.scalar(register.type_spec)[0]:
            case "bool":
                return p4d.P4Data(bool=False)
            case "enum_value":
                return p4d.P4Data(enum_value=b"\0")
            case _:
                return p4d.P4Data(bitstring=b"\0")

    def _read_value_set_entry(self, message: p4r.ValueSetEntry, most: int) -> tuple[Codes, list[p4r.Entity]]:
        if message.value_set_id and message.value_set_id not in self.value_sets:
            return {rpc_code.NOT_FOUND: "9"}, []
        return {}, [
            p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=number, members=members))
            for number, members in self.members.items()
            if message.value_set_id in (0, number)
        ]

    def _read_digest_entry(self, message: p4r.DigestEntry, most: int) -> tuple[Codes, list[p4r.Entity]]:
        if message.digest_id and message.digest_id not in self.enabled:
            return {rpc_code.NOT_FOUND: "9.8"}, []
        return {}, [
            p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number, config=config))
            for number, config in self.enabled.items()
            if message.digest_id in (0, number)
        ]


def check_rates(kind: int, message: p4r.MeterEntry | p4r.DirectMeterEntry | p4r.TableEntry) -> Codes:
    """The codes for the configuration of a meter of some type."""
    config = message.meter_config if isinstance(message, p4r.TableEntry) else message.config
    codes: Codes = {}
    if (
        min(config.cir, config.cburst, config.pir, config.pburst, config.eburst) < 0
        or config.cir > config.pir
    ):
        codes[INVALID] = "9.4"
    single = kind != p4i.MeterSpec.TWO_RATE_THREE_COLOR
    if single and (config.cir, config.cburst) != (config.pir, config.pburst):
        codes[INVALID] = "9.4"
    if config.eburst:
        # Excess bursts are legal for srTCM; this switch does not have them.
        refused = rpc_code.UNIMPLEMENTED if kind == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR else INVALID
        codes[refused] = "9.4"
    if not isinstance(message, p4r.TableEntry) and message.HasField("counter_data"):
        codes[rpc_code.UNIMPLEMENTED] = "9.4"
    return codes


def counted(unit: int, data: p4r.CounterData) -> p4r.CounterData:
    """What of a counter's data its unit keeps."""
    kept = p4r.CounterData()
    if unit != p4i.CounterSpec.BYTES:
        kept.packet_count = data.packet_count
    if unit != p4i.CounterSpec.PACKETS:
        kept.byte_count = data.byte_count
    return kept


def canonical_data(data: p4d.P4Data) -> p4d.P4Data:
    """A scalar as it is read."""
    match data.WhichOneof("data"):
        case "bitstring":
            return p4d.P4Data(bitstring=shortest(data.bitstring))
        case "enum_value":
            return p4d.P4Data(enum_value=shortest(data.enum_value))
        case _:
            return p4d.P4Data(bool=data.bool)


def _modify_only(kind: int, section: str) -> Codes:
    return {} if kind == p4r.Update.MODIFY else {INVALID: section}


def _check_index(message: Any, size: int, section: str) -> Codes:
    if not message.HasField("index") or 0 <= message.index.index < size:
        return {}
    return {INVALID if message.index.index < 0 else RANGE: section}


def _indices(message: Any, size: int) -> Iterable[int]:
    return [message.index.index] if message.HasField("index") else range(size)


def _places(
    arrays: Mapping[int, Any], wanted: int, message: Any, most: int, section: str
) -> tuple[Codes, list[tuple[int, int]]]:
    """The cells that a read asks for, as (id, index)."""
    if wanted and wanted not in arrays:
        return {rpc_code.NOT_FOUND: "9"}, []
    codes: Codes = {}
    places: list[tuple[int, int]] = []
    for number, array in arrays.items():
        if wanted in (0, number):
            assert message.HasField("index") or array.size <= most
            codes |= _check_index(message, array.size, section)
            places += [(number, index) for index in _indices(message, array.size)]
    return codes, places
