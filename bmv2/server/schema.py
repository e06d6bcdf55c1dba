# SPDX-License-Identifier: Apache-2.0
"""P4Info as frozen values. It is checked once, when a pipeline is pushed, and read at every request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from finsy.proto import p4i

from bmv2.ir import Ir
from bmv2.server.errors import invalid
from bmv2.server.matches import MatchField, MatchKind, parse_match_field
from bmv2.server.program_widths import ProgramWidths
from bmv2.server.resources import (
    DigestInfo,
    MeterInfo,
    ProfileInfo,
    RegisterInfo,
    ValueSetInfo,
    parse_digest,
    parse_direct_meter,
    parse_meter,
    parse_profile,
    parse_register,
    parse_value_set,
    program_digests,
)
from bmv2.server.translations import Strings, Translation, UserTypes

_PRIORITISED = {MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL}


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A named value: an action's parameter, or a field of a packet's metadata.

    `width` are the program's bits.
    """

    id: int
    name: str
    width: int
    optional: bool = False
    translation: Translation | None = None


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action and its parameters in the order of their ids."""

    id: int
    name: str
    params: tuple[FieldInfo, ...]


@dataclass(frozen=True, slots=True)
class CounterInfo:
    """A counter; `table_id` is set for a direct one, `size` (cells) for an indirect one."""

    id: int
    name: str
    size: int
    table_id: int
    counts_packets: bool
    counts_bytes: bool


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table: its key in the order of the match field ids, and what may stand in it."""

    id: int
    name: str
    key: tuple[MatchField, ...]
    entry_actions: frozenset[int]
    default_actions: frozenset[int]
    const_default: bool
    # What P4Info says that the default entry is at first: an action's id and its arguments.
    initial_default: tuple[int, tuple[int, ...]] | None
    const: bool
    size: int
    direct_counter: CounterInfo | None
    direct_meter: MeterInfo | None
    profile: ProfileInfo | None
    idle_timeout: bool
    prioritised: bool = field(init=False)
    """Whether entries need a priority: a key with a ternary, range or optional field."""

    def __post_init__(self) -> None:
        # Each entry asks for it.
        object.__setattr__(self, "prioritised", any(f.kind in _PRIORITISED for f in self.key))


@dataclass(frozen=True, slots=True)
class PacketHeader:
    """The fields of a @controller_header, in the order in which they stand in the packet."""

    fields: tuple[FieldInfo, ...]

    @property
    def bits(self) -> int:
        """Length of the header in bits, a multiple of 8."""
        return sum(field.width for field in self.fields)


@dataclass(frozen=True, slots=True)
class Schema:
    """What the P4Info of a pipeline declares to clients, by id."""

    tables: Mapping[int, TableInfo]
    actions: Mapping[int, ActionInfo]
    counters: Mapping[int, CounterInfo]
    direct_counters: Mapping[int, CounterInfo]
    profiles: Mapping[int, ProfileInfo]
    meters: Mapping[int, MeterInfo]
    direct_meters: Mapping[int, MeterInfo]
    value_sets: Mapping[int, ValueSetInfo]
    digests: Mapping[int, DigestInfo]
    registers: Mapping[int, RegisterInfo]
    packet_in: PacketHeader | None
    packet_out: PacketHeader | None
    strings: tuple[Strings, ...] = ()

    def settle_strings(self, *, keep: bool) -> None:
        """Keep, or forget, the numbers that strings have been given since this was called last."""
        for strings in self.strings:
            strings.settle(keep=keep)

    def action_named(self, name: str) -> ActionInfo:
        """Find the action of that full name; KeyError if P4Info has none."""
        for action in self.actions.values():
            if action.name == name:
                return action
        raise KeyError(name)

    @staticmethod
    def parse(info: p4i.P4Info, ir: Ir) -> Schema:
        """Check a P4Info and take what the server needs of it, with the widths that the program has.

        Raises StatusError: INVALID_ARGUMENT where it contradicts itself, UNIMPLEMENTED for types and match
        kinds that the embedded switch has not.
        """
        _check_unique(info)
        types, widths = UserTypes(info.type_info, ir.errors, ir.enums), ProgramWidths(ir)
        actions = {message.preamble.id: _action(message, types, widths) for message in info.actions}
        counters = {message.preamble.id: _counter(message) for message in info.counters}
        tables_by_id = {message.preamble.id: message for message in info.tables}
        direct = {}
        for message in info.direct_counters:
            if message.direct_table_id not in tables_by_id:
                raise invalid(
                    f"P4Info: direct counter {message.preamble.name} belongs to table "
                    f"{message.direct_table_id:#x}, which is not in it"
                )
            direct[message.preamble.id] = _direct_counter(message)
        by_table = {counter.table_id: counter for counter in direct.values()}
        profiles = {message.preamble.id: parse_profile(message) for message in info.action_profiles}
        direct_meters = {
            message.preamble.id: parse_direct_meter(message, tables_by_id) for message in info.direct_meters
        }
        meter_of = {meter.table_id: meter for meter in direct_meters.values()}
        headers = {
            message.preamble.name: _header(message, types, widths)
            for message in info.controller_packet_metadata
        }
        sources = program_digests(info.digests, ir.digests.values())
        return Schema(
            tables={
                key: _table(
                    value, _key(value, types, widths), actions, by_table.get(key), meter_of.get(key), profiles
                )
                for key, value in tables_by_id.items()
            },
            actions=actions,
            counters=counters,
            direct_counters=direct,
            profiles=profiles,
            meters={message.preamble.id: parse_meter(message) for message in info.meters},
            direct_meters=direct_meters,
            value_sets={
                message.preamble.id: parse_value_set(message, types, widths) for message in info.value_sets
            },
            digests={
                message.preamble.id: parse_digest(
                    message, info.type_info.structs, types, sources.get(message.preamble.id)
                )
                for message in info.digests
            },
            registers={
                message.preamble.id: parse_register(message, types, widths) for message in info.registers
            },
            packet_in=headers.get("packet_in"),
            packet_out=headers.get("packet_out"),
            strings=types.strings(),
        )


def _check_unique(info: p4i.P4Info) -> None:
    seen: dict[int, str] = {}
    for group in (
        *(info.tables, info.actions, info.action_profiles, info.counters, info.direct_counters),
        *(info.meters, info.direct_meters, info.value_sets, info.registers, info.digests),
    ):
        named: dict[str, int] = {}
        for preamble in (message.preamble for message in group):
            if preamble.id == 0:
                raise invalid(f"P4Info: {preamble.name or 'an object'} has id 0; ids start at 1")
            if preamble.id in seen:
                raise invalid(f"P4Info: id {preamble.id:#x} is both {seen[preamble.id]} and {preamble.name}")
            seen[preamble.id] = preamble.name
            # The program knows names only: two ids would write to one object behind each other's back.
            if preamble.name in named:
                both = f"{named[preamble.name]:#x} and {preamble.id:#x}"
                raise invalid(f"P4Info: {both} are both named {preamble.name}; a name has one id")
            named[preamble.name] = preamble.id


def _action(message: p4i.Action, types: UserTypes, widths: ProgramWidths) -> ActionInfo:
    name = message.preamble.name
    params = []
    for position, param in enumerate(sorted(message.params, key=lambda param: param.id)):
        find = partial(widths.param, name, position)
        what = f"{name}.{param.name}"
        width, translation = types.field(what, param.bitwidth, param.type_name.name, find)
        params.append(FieldInfo(param.id, param.name, width, translation=translation))
    return ActionInfo(message.preamble.id, name, tuple(params))


def _units(unit: int) -> tuple[bool, bool]:
    spec = p4i.CounterSpec
    return unit in (spec.PACKETS, spec.BOTH), unit in (spec.BYTES, spec.BOTH)


def _counter(message: p4i.Counter) -> CounterInfo:
    packets, size_bytes = _units(message.spec.unit)
    return CounterInfo(message.preamble.id, message.preamble.name, message.size, 0, packets, size_bytes)


def _direct_counter(message: p4i.DirectCounter) -> CounterInfo:
    packets, size_bytes = _units(message.spec.unit)
    table_id = message.direct_table_id
    return CounterInfo(message.preamble.id, message.preamble.name, 0, table_id, packets, size_bytes)


def _key(message: p4i.Table, types: UserTypes, widths: ProgramWidths) -> tuple[MatchField, ...]:
    name = message.preamble.name
    fields = sorted(message.match_fields, key=lambda field: field.id)
    if len({field.id for field in fields}) != len(fields):
        raise invalid(f"P4Info: table {name} has two match fields of one id")
    return tuple(
        parse_match_field(name, field, types, partial(widths.key, name, position))
        for position, field in enumerate(fields)
    )


def _table(
    message: p4i.Table,
    key: tuple[MatchField, ...],
    actions: Mapping[int, ActionInfo],
    counter: CounterInfo | None,
    meter: MeterInfo | None,
    profiles: Mapping[int, ProfileInfo],
) -> TableInfo:
    name = message.preamble.name
    if message.implementation_id and message.implementation_id not in profiles:
        raise invalid(
            f"P4Info: table {name} has action profile {message.implementation_id:#x}, which is not in it"
        )
    for ref in message.action_refs:
        if ref.id not in actions:
            raise invalid(f"P4Info: table {name} refers to action {ref.id:#x}, which is not in it")
    return TableInfo(
        id=message.preamble.id,
        name=name,
        key=key,
        entry_actions=_scoped(message.action_refs, p4i.ActionRef.DEFAULT_ONLY),
        default_actions=_scoped(message.action_refs, p4i.ActionRef.TABLE_ONLY),
        const_default=message.const_default_action_id != 0,
        initial_default=_initial_default(message, actions),
        const=message.is_const_table,
        size=message.size,
        direct_counter=counter,
        direct_meter=meter,
        profile=profiles.get(message.implementation_id),
        idle_timeout=message.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL,
    )


def _initial_default(
    message: p4i.Table, actions: Mapping[int, ActionInfo]
) -> tuple[int, tuple[int, ...]] | None:
    declared = message.initial_default_action
    if not message.HasField("initial_default_action") or declared.action_id not in actions:
        return None
    given = {item.param_id: int.from_bytes(item.value, "big") for item in declared.arguments}
    params = actions[declared.action_id].params
    return declared.action_id, tuple(given.get(param.id, 0) for param in params)


def _scoped(refs: Iterable[p4i.ActionRef], barred: int) -> frozenset[int]:
    return frozenset(ref.id for ref in refs if ref.scope != barred)


def _header(message: p4i.ControllerPacketMetadata, types: UserTypes, widths: ProgramWidths) -> PacketHeader:
    name = message.preamble.name
    names = [item.name for item in message.metadata]
    fields = []
    for position, item in enumerate(message.metadata):
        find = partial(widths.packet_field, names, position)
        what = f"{name}.{item.name}"
        width, translation = types.field(what, item.bitwidth, item.type_name.name, find)
        padding = "@padding" in item.annotations
        fields.append(FieldInfo(item.id, item.name, width, optional=padding, translation=translation))
    header = PacketHeader(tuple(fields))
    if header.bits % 8:
        raise invalid(f"P4Info: controller header {name} is {header.bits} bits long; whole bytes are needed")
    return header
