# SPDX-License-Identifier: Apache-2.0
"""The objects of P4Info beside tables and actions: profiles, meters, value sets, digests, registers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from finsy.proto import p4i, p4t

from bmv2.server.errors import UNIMPLEMENTED, StatusError, invalid
from bmv2.server.matches import MatchField, parse_kind


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
    """A digest and the widths of its values; `structured` where they are a struct's members."""

    id: int
    name: str
    widths: tuple[int, ...]
    structured: bool


@dataclass(frozen=True, slots=True)
class RegisterInfo:
    """A register array of `size` cells of `width` bits; a width of 0: a type that is not plain bits."""

    id: int
    name: str
    size: int
    width: int


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


def parse_value_set(message: p4i.ValueSet) -> ValueSetInfo:
    """Take a value set. Raises StatusError for a match field that the switch has not."""
    name = message.preamble.name
    fields = []
    for field in sorted(message.match, key=lambda field: field.id):
        what = f"{name}.{field.name}"
        if field.bitwidth <= 0:
            raise StatusError(UNIMPLEMENTED, f"P4Info: value set {name}: its fields must be bit<W>")
        fields.append(MatchField(field.id, field.name, field.bitwidth, parse_kind(what, field)))
    return ValueSetInfo(message.preamble.id, name, message.size, tuple(fields))


def parse_digest(message: p4i.Digest, types: p4t.P4TypeInfo) -> DigestInfo:
    """Take a digest. Raises StatusError where its data are anything but bit strings or a struct of them."""
    name = message.preamble.name
    spec = message.type_spec
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        return DigestInfo(message.preamble.id, name, (_bits(name, spec.bitstring),), structured=False)
    members: Iterable[p4t.P4DataTypeSpec]
    if kind == "struct":
        if spec.struct.name not in types.structs:
            raise invalid(f"P4Info: digest {name}: struct {spec.struct.name} is not in the type info")
        members = [member.type_spec for member in types.structs[spec.struct.name].members]
    elif kind == "tuple":
        members = spec.tuple.members
    else:
        raise StatusError(UNIMPLEMENTED, f"P4Info: digest {name}: only bit strings and structs are supported")
    widths = []
    for member in members:
        if member.WhichOneof("type_spec") != "bitstring":
            raise StatusError(UNIMPLEMENTED, f"P4Info: digest {name}: a member is not a bit string")
        widths.append(_bits(name, member.bitstring))
    return DigestInfo(message.preamble.id, name, tuple(widths), structured=True)


def parse_register(message: p4i.Register) -> RegisterInfo:
    """Take a register array; one of structs has width 0, and cannot be reached by P4Runtime here."""
    spec = message.type_spec
    width = _bits(message.preamble.name, spec.bitstring) if spec.HasField("bitstring") else 0
    return RegisterInfo(message.preamble.id, message.preamble.name, message.size, width)


def _bits(name: str, spec: p4t.P4BitstringLikeTypeSpec) -> int:
    kind = spec.WhichOneof("type_spec")
    if kind == "bit":
        return spec.bit.bitwidth
    if kind == "int":
        return spec.int.bitwidth
    raise StatusError(UNIMPLEMENTED, f"P4Info: {name}: varbit is not supported")
