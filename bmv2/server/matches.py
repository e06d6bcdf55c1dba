# SPDX-License-Identifier: Apache-2.0
"""The fields of keys, of tables and of value sets, between P4Runtime's messages and the switch's values.

Byte strings follow P4Runtime 1.5, section 8.3: a receiver looks at the value, not at the length, so a
padded string is read; everything kept, compared and sent is the canonical (shortest) form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from finsy.proto import p4i, p4r

from bmv2.entries import Exact, Lpm, MatchValue, Optional, Range, Ternary
from bmv2.server.errors import OUT_OF_RANGE, UNIMPLEMENTED, StatusError, invalid


class MatchKind(Enum):
    """The match kinds of P4Runtime that the embedded switch executes."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


_KINDS = {
    p4i.MatchField.EXACT: MatchKind.EXACT,
    p4i.MatchField.LPM: MatchKind.LPM,
    p4i.MatchField.TERNARY: MatchKind.TERNARY,
    p4i.MatchField.RANGE: MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: MatchKind.OPTIONAL,
}


@dataclass(frozen=True, slots=True)
class MatchField:
    """One field of a key, `width` in bits."""

    id: int
    name: str
    width: int
    kind: MatchKind


def parse_kind(what: str, message: p4i.MatchField) -> MatchKind:
    """The kind of a match field of P4Info. Raises StatusError for one that the switch has not."""
    if message.match_type not in _KINDS:
        raise StatusError(
            UNIMPLEMENTED,
            f"P4Info: match field {what} has an unknown match kind; "
            "known are exact, lpm, ternary, range and optional",
        )
    return _KINDS[message.match_type]


def decode_uint(data: bytes, width: int, what: str) -> int:
    """Read an unsigned big-endian value of at most `width` bits.

    Raises StatusError: INVALID_ARGUMENT for an empty string, OUT_OF_RANGE for a value that does not fit.
    """
    if not data:
        raise invalid(f"{what}: the byte string is empty; zero is the one byte 00")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise StatusError(OUT_OF_RANGE, f"{what}: {value:#x} does not fit into {width} bits")
    return value


def encode_uint(value: int) -> bytes:
    """Write an unsigned value in the canonical form: the fewest bytes, at least one."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_fields(
    owner: str, key: tuple[MatchField, ...], items: Iterable[p4r.FieldMatch]
) -> tuple[MatchValue, ...]:
    """Read a key: one value per field, don't-care where a field may be left out; `owner` is named in errors.

    Raises StatusError for unknown, repeated, missing, ill-typed or ill-formed fields.
    """
    given: dict[int, p4r.FieldMatch] = {}
    known = {field.id for field in key}
    for item in items:
        if item.field_id not in known:
            legal = ", ".join(f"{field.id} ({field.name})" for field in key) or "none"
            raise invalid(f"{owner}: match field id {item.field_id} is unknown; legal: {legal}")
        if item.field_id in given:
            raise invalid(f"{owner}: match field id {item.field_id} is given twice")
        given[item.field_id] = item
    return tuple(_decode_field(owner, field, given.get(field.id)) for field in key)


def _decode_field(owner: str, field: MatchField, item: p4r.FieldMatch | None) -> MatchValue:
    what = f"{owner}, match field {field.name}"
    if item is None:
        return _absent(field, what)
    kind = item.WhichOneof("field_match_type")
    if kind != field.kind.value:
        raise invalid(f"{what}: is {field.kind.value}, but {kind or 'nothing'} is given")
    full = (1 << field.width) - 1
    if field.kind is MatchKind.EXACT:
        return Exact(decode_uint(item.exact.value, field.width, what))
    if field.kind is MatchKind.OPTIONAL:
        return Optional(decode_uint(item.optional.value, field.width, what))
    if field.kind is MatchKind.LPM:
        value, prefix = decode_uint(item.lpm.value, field.width, what), item.lpm.prefix_len
        if not 1 <= prefix <= field.width:
            raise invalid(
                f"{what}: a prefix length of {prefix} is not in 1..{field.width}; leave the field out for 0"
            )
        if value & (full >> prefix):
            raise invalid(f"{what}: {value:#x} has bits set beyond its prefix of {prefix}")
        return Lpm(value, prefix)
    if field.kind is MatchKind.TERNARY:
        value = decode_uint(item.ternary.value, field.width, what)
        mask = decode_uint(item.ternary.mask, field.width, f"{what}, mask")
        if not mask:
            raise invalid(f"{what}: the mask is 0; leave the field out to match anything")
        if value & ~mask:
            raise invalid(f"{what}: {value:#x} has bits set outside its mask {mask:#x}")
        return Ternary(value, mask)
    low = decode_uint(item.range.low, field.width, f"{what}, low end")
    high = decode_uint(item.range.high, field.width, f"{what}, high end")
    if low > high:
        raise invalid(f"{what}: the low end {low} is above the high end {high}")
    if low == 0 and high == full:
        raise invalid(f"{what}: the range is everything; leave the field out to match anything")
    return Range(low, high)


def _absent(field: MatchField, what: str) -> MatchValue:
    if field.kind is MatchKind.EXACT:
        raise invalid(f"{what}: is missing, and an exact field must be given")
    if field.kind is MatchKind.LPM:
        return Lpm(0, 0)
    if field.kind is MatchKind.TERNARY:
        return Ternary(0, 0)
    if field.kind is MatchKind.RANGE:
        return Range(0, (1 << field.width) - 1)
    return Optional(None)


def canonical_key(key: tuple[MatchField, ...], values: Iterable[MatchValue]) -> tuple[MatchValue, ...]:
    """Write a program's own key as a client would have to: p4c has optional fields as ternary ones."""
    return tuple(_canonical(field, value) for field, value in zip(key, values, strict=True))


def _canonical(field: MatchField, value: MatchValue) -> MatchValue:
    if isinstance(value, Ternary):
        if field.kind is MatchKind.OPTIONAL:
            return Optional(value.value if value.mask else None)
        return Ternary(value.value & value.mask, value.mask)
    if isinstance(value, Lpm):
        return Lpm(value.value >> (rest := field.width - value.prefix_len) << rest, value.prefix_len)
    return value


def encode_fields(key: tuple[MatchField, ...], values: Iterable[MatchValue]) -> Iterator[p4r.FieldMatch]:
    """Write a key: don't-care fields left out, canonical values."""
    for field, value in zip(key, values, strict=True):
        item = _encode_field(field, value)
        if item is not None:
            yield item


def _encode_field(field: MatchField, value: MatchValue) -> p4r.FieldMatch | None:
    item = p4r.FieldMatch(field_id=field.id)
    match value:
        case Exact():
            item.exact.value = encode_uint(value.value)
        case Lpm():
            if value.prefix_len == 0:
                return None
            item.lpm.value = encode_uint(value.value)
            item.lpm.prefix_len = value.prefix_len
        case Ternary():
            if value.mask == 0:
                return None
            item.ternary.value = encode_uint(value.value)
            item.ternary.mask = encode_uint(value.mask)
        case Range():
            if value.low == 0 and value.high == (1 << field.width) - 1:
                return None
            item.range.low = encode_uint(value.low)
            item.range.high = encode_uint(value.high)
        case Optional():
            if value.value is None:
                return None
            item.optional.value = encode_uint(value.value)
    return item
