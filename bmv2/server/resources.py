# SPDX-License-Identifier: Apache-2.0
"""The objects of P4Info beside tables and actions: profiles, meters, value sets, digests, registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from finsy.proto import p4i, p4t

from bmv2.ir import Digest
from bmv2.server.data_types import DataType, parse_scalar
from bmv2.server.errors import invalid
from bmv2.server.matches import MatchField, parse_match_field
from bmv2.server.program_widths import ProgramWidths
from bmv2.server.translations import UserTypes


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile. With a selector it also has groups.

    `weights` says that the size of a group is the sum of its weights, not the number of its members.
    `max_group_size` and `max_member_weight` of 0 mean no limit. `weights_disallowed`: all members count the
    same.
    """

    id: int
    name: str
    size: int
    selector: bool
    max_group_size: int
    weights: bool
    max_member_weight: int
    table_ids: tuple[int, ...]
    weights_disallowed: bool = False


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """A meter; `table_id` is set for a direct one, `size` (cells) for an indirect one."""

    id: int
    name: str
    size: int
    table_id: int
    kind: int


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set of at most `size` members, and what of the key its fields match."""

    id: int
    name: str
    size: int
    key: tuple[MatchField, ...]


@dataclass(frozen=True, slots=True)
class DigestInfo:
    """A digest and the types of its values. `source` is the program's name for it.

    `container` says what the values are members of: "struct", "tuple", or "" for a single one.
    """

    id: int
    name: str
    source: str
    types: tuple[DataType, ...]
    container: str


@dataclass(frozen=True, slots=True)
class RegisterInfo:
    """A register array of `size` cells. No `type`: its cells are no scalars."""

    id: int
    name: str
    size: int
    type: DataType | None


_COMPOSED = {"tuple", "struct", "header", "header_union", "header_stack", "header_union_stack"}

Resource: TypeAlias = ProfileInfo | MeterInfo | ValueSetInfo | DigestInfo | RegisterInfo


def parse_profile(message: p4i.ActionProfile) -> ProfileInfo:
    """Take an action profile."""
    return ProfileInfo(
        id=message.preamble.id,
        name=message.preamble.name,
        size=message.size,
        selector=message.with_selector,
        max_group_size=message.max_group_size,
        weights=message.WhichOneof("selector_size_semantics") != "sum_of_members",
        max_member_weight=message.sum_of_members.max_member_weight,
        table_ids=tuple(message.table_ids),
        weights_disallowed=message.weights_disallowed,
    )


def parse_meter(message: p4i.Meter) -> MeterInfo:
    """Take an indirect meter."""
    return MeterInfo(message.preamble.id, message.preamble.name, message.size, 0, message.spec.type)


def parse_direct_meter(message: p4i.DirectMeter, table_ids: Iterable[int]) -> MeterInfo:
    """Take a direct meter. Raises StatusError where its table is not in the P4Info."""
    if message.direct_table_id not in table_ids:
        raise invalid(
            f"P4Info: direct meter {message.preamble.name} belongs to table "
            f"{message.direct_table_id:#x}, which is not in it"
        )
    return MeterInfo(
        message.preamble.id, message.preamble.name, 0, message.direct_table_id, message.spec.type
    )


def parse_value_set(message: p4i.ValueSet, types: UserTypes, widths: ProgramWidths) -> ValueSetInfo:
    """Take a value set. Raises StatusError for a match field that the switch has not."""
    name = message.preamble.name
    fields = sorted(message.match, key=lambda field: field.id)
    key = tuple(
        parse_match_field(name, field, types, partial(widths.set_field, name, position))
        for position, field in enumerate(fields)
    )
    return ValueSetInfo(message.preamble.id, name, message.size, key)


def program_digests(infos: Iterable[p4i.Digest], program: Iterable[Digest]) -> Mapping[int, Digest]:
    """Find the program's digest for each one of P4Info, by id: those of one name.

    p4c makes up names for digests of values without a named struct: other ones in P4Info than in the device
    config, in the same order.
    """
    by_name = {digest.name: digest for digest in program}
    found = {info.preamble.id: by_name[info.preamble.name] for info in infos if info.preamble.name in by_name}
    taken = {digest.name for digest in found.values()}
    unnamed = [
        info for info in infos if info.preamble.id not in found and not info.type_spec.HasField("struct")
    ]
    left = [digest for name, digest in by_name.items() if name not in taken]
    return found | {info.preamble.id: digest for info, digest in zip(unnamed, left, strict=False)}


def parse_digest(
    message: p4i.Digest, structs: Mapping[str, p4t.P4StructTypeSpec], types: UserTypes, program: Digest | None
) -> DigestInfo:
    """Take a digest. Raises StatusError (INVALID_ARGUMENT) if the program has it not, or another one.

    UNIMPLEMENTED where its data are anything but scalars, or a struct or tuple of them.
    """
    name = message.preamble.name
    if program is None:
        raise invalid(f"P4Info has digest {name}, which the device config has not")
    spec = message.type_spec
    kind = spec.WhichOneof("type_spec")
    container = kind if kind in ("struct", "tuple") else ""
    members = [spec]
    if kind == "struct":
        if spec.struct.name not in structs:
            raise invalid(f"P4Info: digest {name}: struct {spec.struct.name} is not in the type info")
        members = [member.type_spec for member in structs[spec.struct.name].members]
    elif kind == "tuple":
        members = list(spec.tuple.members)
    if len(members) != len(program.widths):
        raise invalid(
            f"digest {name}: has {len(members)} values in P4Info, {len(program.widths)} in the device config"
        )
    scalars = tuple(
        parse_scalar(f"digest {name}", member, types, width)
        for member, width in zip(members, program.widths, strict=True)
    )
    return DigestInfo(message.preamble.id, name, program.name, scalars, container)


def parse_register(message: p4i.Register, types: UserTypes, widths: ProgramWidths) -> RegisterInfo:
    """Take a register array; one whose cells are no scalars cannot be reached by P4Runtime here."""
    name = message.preamble.name
    kind: DataType | None = None
    if message.type_spec.WhichOneof("type_spec") not in _COMPOSED:
        kind = parse_scalar(f"register {name}", message.type_spec, types, widths.register(name))
    return RegisterInfo(message.preamble.id, name, message.size, kind)
