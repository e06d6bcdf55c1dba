# SPDX-License-Identifier: Apache-2.0
"""Counters, meters, value sets, digests and registers as clients write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from finsy.proto import p4i, p4r

from bmv2.entries import MeterConfig
from bmv2.server.data_types import DataType
from bmv2.server.dataplane import Effect
from bmv2.server.errors import (
    ALREADY_EXISTS,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    StatusError,
    invalid,
)
from bmv2.server.lookup import cell, cells, find, find_all
from bmv2.server.matches import decode_fields, encode_fields
from bmv2.server.resources import MeterInfo, RegisterInfo
from bmv2.server.schema import CounterInfo, Schema


class ArraySource(Protocol):
    """Where counts and register cells come from: the data plane, asked by a server thread."""

    def indirect(self, name: str, cells: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Give (packets, bytes) of each of the counter's cells."""

    def register(self, name: str, cells: Sequence[int]) -> Sequence[int]:
        """Give the values of the register's cells."""


@dataclass(slots=True)
class _MeterConfigs:
    """What was written of a meter array: to all cells at once, and after that to some."""

    everywhere: p4r.MeterConfig | None = None
    some: dict[int, p4r.MeterConfig | None] = field(default_factory=dict)

    def config(self, index: int) -> p4r.MeterConfig | None:
        return self.some.get(index, self.everywhere)


class ExternStore:
    """What clients wrote of a pipeline's externs. Not thread-safe: its owner holds a lock."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._meters = {key: _MeterConfigs() for key in schema.meters}
        self._sets: dict[int, list[p4r.ValueSetMember]] = {key: [] for key in schema.value_sets}
        self._digests: dict[int, p4r.DigestEntry.Config] = {}

    def apply_counter(self, kind: int, message: p4r.CounterEntry) -> Effect:
        """Check the writing of an indirect counter; no index means every cell."""
        counter = find(self._schema.counters, message.counter_id, "counter")
        _only_modify(kind, f"counter {counter.name}")
        index = cell(counter, message, "counter")
        packets, size = decode_counts(counter.name, message.data)
        if not message.HasField("data"):
            # The counter is not modified (9.3.2).
            return lambda plane: None
        return lambda plane: plane.switch.write_counter(counter.name, index, packets, size)

    def apply_meter(self, kind: int, message: p4r.MeterEntry) -> Effect:
        """Check and keep an indirect meter's configuration; no index means every cell."""
        meter = find(self._schema.meters, message.meter_id, "meter")
        _only_modify(kind, f"meter {meter.name}")
        _refuse_colour_counters(message.HasField("counter_data"), f"meter {meter.name}")
        index = cell(meter, message, "meter")
        config = kept = None
        if message.HasField("config"):
            config, kept = decode_meter_config(meter, message.config), message.config
        if index is None:
            self._meters[meter.id] = _MeterConfigs(kept)
        else:
            self._meters[meter.id].some[index] = kept
        return lambda plane: plane.switch.set_meter(meter.name, index, config)

    def apply_value_set(self, kind: int, message: p4r.ValueSetEntry) -> Effect:
        """Check and keep a value set's members, which replace the old ones."""
        value_set = find(self._schema.value_sets, message.value_set_id, "value set")
        what = f"value set {value_set.name}"
        _only_modify(kind, what)
        if len(message.members) > value_set.size:
            raise StatusError(
                RESOURCE_EXHAUSTED, f"{what}: takes {value_set.size} members, got {len(message.members)}"
            )
        members = tuple(decode_fields(what, value_set.key, member.match) for member in message.members)
        if len(set(members)) != len(members):
            raise StatusError(ALREADY_EXISTS, f"{what}: a member is given twice")
        self._sets[value_set.id] = [
            p4r.ValueSetMember(match=encode_fields(value_set.key, member)) for member in members
        ]
        return lambda plane: plane.switch.set_value_set(value_set.name, members)

    def apply_digest(self, kind: int, message: p4r.DigestEntry) -> Effect:
        """Enable, tune or disable a digest."""
        digest = find(self._schema.digests, message.digest_id, "digest")
        what = f"digest {digest.name}"
        enabled = digest.id in self._digests
        if kind == p4r.Update.INSERT and enabled:
            raise StatusError(ALREADY_EXISTS, f"{what}: is enabled")
        if kind != p4r.Update.INSERT and not enabled:
            raise StatusError(NOT_FOUND, f"{what}: is not enabled")
        if kind == p4r.Update.DELETE:
            del self._digests[digest.id]
            return lambda plane: plane.digests.configure(digest, None)
        config = message.config
        if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
            raise invalid(f"{what}: time-outs and the list's size cannot be negative")
        kept = p4r.DigestEntry.Config()
        kept.CopyFrom(config)
        self._digests[digest.id] = kept
        return lambda plane: plane.digests.configure(digest, kept)

    def apply_register(self, kind: int, message: p4r.RegisterEntry) -> Effect:
        """Write one cell of a register array, or all of them where there is no index."""
        register = find(self._schema.registers, message.register_id, "register")
        what = f"register {register.name}"
        _only_modify(kind, what)
        scalar = _scalar(register)
        index = cell(register, message, "register")
        value = scalar.decode(message.data, what)
        return lambda plane: plane.switch.write_register(register.name, index, value)

    def read_counters(self, message: p4r.CounterEntry, source: ArraySource) -> Iterator[p4r.Entity]:
        """Answer a read of indirect counters: id 0 is any, no index is every cell."""
        for counter in find_all(self._schema.counters, message.counter_id, "counter"):
            indices = cells(counter, message, "counter")
            values = source.indirect(counter.name, indices)
            for index, value in zip(indices, values, strict=True):
                answer = p4r.CounterEntry(counter_id=counter.id, data=counter_data(counter, value))
                answer.index.index = index
                yield p4r.Entity(counter_entry=answer)

    def read_meters(self, message: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Answer a read of indirect meters: id 0 is any, no index is every cell."""
        for meter in find_all(self._schema.meters, message.meter_id, "meter"):
            _refuse_colour_counters(message.HasField("counter_data"), f"meter {meter.name}")
            for index in cells(meter, message, "meter"):
                answer = p4r.MeterEntry(meter_id=meter.id, config=self._meters[meter.id].config(index))
                answer.index.index = index
                yield p4r.Entity(meter_entry=answer)

    def read_value_sets(self, message: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """Answer a read of value sets: id 0 is any."""
        for value_set in find_all(self._schema.value_sets, message.value_set_id, "value set"):
            answer = p4r.ValueSetEntry(value_set_id=value_set.id, members=self._sets[value_set.id])
            yield p4r.Entity(value_set_entry=answer)

    def read_digests(self, message: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        """Answer a read of the digests that are enabled: id 0 is any."""
        for digest in find_all(self._schema.digests, message.digest_id, "digest"):
            config = self._digests.get(digest.id)
            if config is None and message.digest_id:
                raise StatusError(NOT_FOUND, f"digest {digest.name}: is not enabled")
            if config is not None:
                answer = p4r.DigestEntry(digest_id=digest.id, config=config)
                yield p4r.Entity(digest_entry=answer)

    def read_registers(self, message: p4r.RegisterEntry, source: ArraySource) -> Iterator[p4r.Entity]:
        """Answer a read of registers: id 0 is any, no index is every cell."""
        for register in find_all(self._schema.registers, message.register_id, "register"):
            if register.type is None and not message.register_id:
                continue
            scalar = _scalar(register)
            indices = cells(register, message, "register")
            values = source.register(register.name, indices)
            for index, value in zip(indices, values, strict=True):
                answer = p4r.RegisterEntry(register_id=register.id, data=scalar.encode(value))
                answer.index.index = index
                yield p4r.Entity(register_entry=answer)

    def entities(self) -> Iterator[tuple[int, p4r.Entity]]:
        """What a fresh pipeline would have to be given to be like this one, with the type of update."""
        for meter_id, known in self._meters.items():
            if known.everywhere is not None:
                everywhere = p4r.MeterEntry(meter_id=meter_id, config=known.everywhere)
                yield p4r.Update.MODIFY, p4r.Entity(meter_entry=everywhere)
            for index, config in known.some.items():
                meter = p4r.MeterEntry(meter_id=meter_id, config=config, index=p4r.Index(index=index))
                yield p4r.Update.MODIFY, p4r.Entity(meter_entry=meter)
        for value_set_id, members in self._sets.items():
            if members:
                value_set = p4r.ValueSetEntry(value_set_id=value_set_id, members=members)
                yield p4r.Update.MODIFY, p4r.Entity(value_set_entry=value_set)
        for digest_id, tuning in self._digests.items():
            digest = p4r.DigestEntry(digest_id=digest_id, config=tuning)
            yield p4r.Update.INSERT, p4r.Entity(digest_entry=digest)


def decode_counts(name: str, data: p4r.CounterData) -> tuple[int, int]:
    """Read packets and bytes. Raises StatusError where one is negative."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"counter {name}: counts cannot be negative")
    return data.packet_count, data.byte_count


def counter_data(counter: CounterInfo, count: tuple[int, int]) -> p4r.CounterData:
    """Write (packets, bytes), as far as the counter's unit has them."""
    data = p4r.CounterData()
    if counter.counts_packets:
        data.packet_count = count[0]
    if counter.counts_bytes:
        data.byte_count = count[1]
    return data


def decode_meter_config(meter: MeterInfo, config: p4r.MeterConfig) -> MeterConfig:
    """Read a meter's rates and bursts. Raises StatusError for what its type does not allow."""
    what = f"meter {meter.name}"
    if min(config.cir, config.cburst, config.pir, config.pburst, config.eburst) < 0:
        raise invalid(f"{what}: rates and bursts cannot be negative")
    if meter.kind != p4i.MeterSpec.TWO_RATE_THREE_COLOR and (
        config.cir != config.pir or config.cburst != config.pburst
    ):
        raise invalid(f"{what}: has a single rate, so pir and pburst must equal cir and cburst")
    if meter.kind == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR and config.eburst:
        raise StatusError(UNIMPLEMENTED, f"{what}: excess bursts are not supported")
    if config.eburst:
        raise invalid(f"{what}: eburst is for single-rate three-colour meters")
    if config.cir > config.pir:
        raise invalid(f"{what}: cir {config.cir} is above pir {config.pir}")
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def _only_modify(kind: int, what: str) -> None:
    if kind != p4r.Update.MODIFY:
        raise invalid(f"{what}: takes MODIFY only")


def _scalar(register: RegisterInfo) -> DataType:
    if register.type is None:
        raise StatusError(UNIMPLEMENTED, f"register {register.name}: its cells are no scalars")
    return register.type


def _refuse_colour_counters(given: bool, what: str) -> None:
    if given:
        raise StatusError(UNIMPLEMENTED, f"{what}: there are no counters per colour")
