# SPDX-License-Identifier: Apache-2.0
"""The fields of keys, of tables and of value sets, between P4Runtime's messages and the switch's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from finsy.proto import p4i, p4r

from bmv2.entries import Exact, Lpm, MatchValue, Optional, Range, Ternary
from bmv2.server.errors import OUT_OF_RANGE, UNIMPLEMENTED, StatusError, invalid
from bmv2.server.translations import Resized, Translation, UserTypes, read_value, write_value
from bmv2.server.values import decode_uint, encode_uint


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
    """One field of a key. `width` are the program's bits, `bits` the client's."""

    id: int
    name: str
    width: int
    kind: MatchKind
    translation: Translation | None = None

    @property
    def bits(self) -> int:
        """The bits of a mask or a prefix as clients write them."""
        return self.translation.bits if isinstance(self.translation, Resized) else self.width


def parse_match_field(
    owner: str, message: p4i.MatchField, types: UserTypes, program_bits: Callable[[], int | None]
) -> MatchField:
    """Take a match field of P4Info; `owner` is named in errors, `program_bits` is as in `UserTypes.field`.

    Raises StatusError: UNIMPLEMENTED for a match kind that the switch has not, and for prefixes, masks and
    ranges over strings, INVALID_ARGUMENT as `UserTypes.field` does.
    """
    what = f"match field {owner}.{message.name}"
    kind = _KINDS.get(message.match_type)
    if kind is None:
        raise StatusError(
            UNIMPLEMENTED,
            f"P4Info: {what} has an unknown match kind; known are exact, lpm, ternary, range and optional",
        )
    width, translation = types.field(what, message.bitwidth, message.type_name.name, program_bits)
    masked = kind not in (MatchKind.EXACT, MatchKind.OPTIONAL)
    if masked and translation is not None and not isinstance(translation, Resized):
        said = f"P4Info: {what} is {kind.value}, but clients see it as a string; exact and optional can be"
        raise StatusError(UNIMPLEMENTED, said)
    return MatchField(message.id, message.name, width, kind, translation)


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
    if field.kind is MatchKind.EXACT:
        return Exact(read_value(field, item.exact.value, what))
    if field.kind is MatchKind.OPTIONAL:
        return Optional(read_value(field, item.optional.value, what))
    value = _decode_masked(field, item, what)
    return value if field.bits == field.width else _narrowed(field, value, what)


def _decode_masked(field: MatchField, item: p4r.FieldMatch, what: str) -> MatchValue:
    """Read a prefix, mask or range of the client's bits."""
    full = (1 << field.bits) - 1
    if field.kind is MatchKind.LPM:
        value, prefix = decode_uint(item.lpm.value, field.bits, what), item.lpm.prefix_len
        if not 1 <= prefix <= field.bits:
            raise invalid(
                f"{what}: a prefix length of {prefix} is not in 1..{field.bits}; leave the field out for 0"
            )
        if value & (full >> prefix):
            raise invalid(f"{what}: {value:#x} has bits set beyond its prefix of {prefix}")
        return Lpm(value, prefix)
    if field.kind is MatchKind.TERNARY:
        value = decode_uint(item.ternary.value, field.bits, what)
        mask = decode_uint(item.ternary.mask, field.bits, f"{what}, mask")
        if not mask:
            raise invalid(f"{what}: the mask is 0; leave the field out to match anything")
        if value & ~mask:
            raise invalid(f"{what}: {value:#x} has bits set outside its mask {mask:#x}")
        return Ternary(value, mask)
    low = decode_uint(item.range.low, field.bits, f"{what}, low end")
    high = decode_uint(item.range.high, field.bits, f"{what}, high end")
    if low > high:
        raise invalid(f"{what}: the low end {low} is above the high end {high}")
    if low == 0 and high == full:
        raise invalid(f"{what}: the range is everything; leave the field out to match anything")
    return Range(low, high)


def _resized(value: MatchValue, old: int, new: int) -> MatchValue | None:
    """A prefix, mask or range over `old` bits as one over `new` bits of the same number.

    None where it has no such form: a value beyond the bits, a mask or prefix that leaves some of those open
    that there are not, or one that covers everything and so would not be read back.
    """
    full = (1 << new) - 1
    match value:
        case Lpm(number, prefix) if prefix:
            prefix += new - old
            return Lpm(number, prefix) if prefix >= 1 and number <= full else None
        case Ternary(number, mask) if mask:
            above = (1 << max(old, new)) - (1 << min(old, new))
            if new > old:
                return Ternary(number, mask | above)
            return Ternary(number, mask & full) if mask & above == above and mask & full >= number else None
        case Range(low, high) if (low, high) != (0, (1 << old) - 1):
            return Range(low, high) if high <= full and (low, high) != (0, full) else None
        case Range():
            return Range(0, full)
    return value


def _narrowed(field: MatchField, value: MatchValue, what: str) -> MatchValue:
    """A client's prefix, mask or range as the program has it (chapter 18 lets a server refuse some)."""
    found = _resized(value, field.bits, field.width)
    if found is None or found == _anything(field):
        said = f"{what}: clients see it with {field.bits} bits, the program has {field.width}"
        raise StatusError(OUT_OF_RANGE, f"{said}; {value} has no form of so many bits")
    return found


def _absent(field: MatchField, what: str) -> MatchValue:
    anything = _anything(field)
    if anything is None:
        raise invalid(f"{what}: is missing, and an exact field must be given")
    return anything


def _anything(field: MatchField) -> MatchValue | None:
    """What a field that is left out matches; None where it cannot be."""
    if field.kind is MatchKind.EXACT:
        return None
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
    if value == _anything(field):
        return None
    item = p4r.FieldMatch(field_id=field.id)
    if field.bits != field.width:
        # The program's own entries may have what the client's bits are too few for: it stays what it is.
        value = _resized(value, field.width, field.bits) or value
    match value:
        case Exact():
            item.exact.value = write_value(field, value.value)
        case Optional(number) if number is not None:
            item.optional.value = write_value(field, number)
        case Lpm():
            item.lpm.value = encode_uint(value.value)
            item.lpm.prefix_len = value.prefix_len
        case Ternary():
            item.ternary.value = encode_uint(value.value)
            item.ternary.mask = encode_uint(value.mask)
        case Range():
            item.range.low = encode_uint(value.low)
            item.range.high = encode_uint(value.high)
    return item
