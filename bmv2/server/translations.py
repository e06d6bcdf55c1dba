# SPDX-License-Identifier: Apache-2.0
"""Values that clients see otherwise than the program has them (P4Runtime 1.5, 8.4.6, 8.4.7 and chapter 18).

The specification leaves the mapping to the switch's configuration. Here a number stays the same number,
whatever its width. A string of decimal digits is that number, as ports are named in gNMI. Any other string
gets a number of its own, the highest that is free, for as long as the pipeline runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from finsy.proto import p4t

from bmv2.server.errors import OUT_OF_RANGE, RESOURCE_EXHAUSTED, UNIMPLEMENTED, StatusError, invalid
from bmv2.server.values import decode_uint, encode_uint

# Chosen: more strings than any table of ours has entries, at some 30 MB of memory.
_MAX_STRINGS = 65_536
# Chosen: names of people's making; it bounds the memory of the strings together with their number.
_MAX_STRING_BYTES = 256


@dataclass(frozen=True, slots=True)
class Resized:
    """A number that clients see with `bits` bits; the program has `width`."""

    bits: int
    width: int

    def to_program(self, data: bytes, what: str) -> int:
        """Read a client's number. Raises StatusError (OUT_OF_RANGE) where one of the widths is too small."""
        return decode_uint(data, min(self.bits, self.width), what)

    def to_client(self, value: int) -> bytes:
        """Write a number; one that the client's width is too small for stays what it is."""
        return encode_uint(value)


class Strings:
    """The strings of one translated type (its URI) and their numbers of `width` bits.

    A string that is new gets a number for the request at hand. `settle` keeps it, or forgets it where the
    request was refused or only read: otherwise anybody could use the numbers up. `to_program` and `settle`
    are called under the service's lock, `to_client` by any thread.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._numbers: dict[bytes, int] = {}
        self._strings: dict[int, bytes] = {}
        self._new: dict[bytes, int] = {}
        self._new_strings: dict[int, bytes] = {}
        self._next = (1 << width) - 1

    def to_program(self, data: bytes, what: str) -> int:
        """Find the number of a string, or give it one.

        Raises StatusError: INVALID_ARGUMENT for an empty or overlong string, OUT_OF_RANGE for digits beyond
        the width, RESOURCE_EXHAUSTED where no number is left.
        """
        known = self._numbers.get(data, self._new.get(data))
        if known is not None:
            return known
        if not 0 < len(data) <= _MAX_STRING_BYTES:
            raise invalid(f"{what}: a string of {len(data)} bytes; it must have 1 to {_MAX_STRING_BYTES}")
        number = self._decimal(data, what) if _is_decimal(data) else self._free_number(what)
        self._new[data] = number
        self._new_strings[number] = data
        return number

    def settle(self, *, keep: bool) -> None:
        """Keep, or forget, what strings have got since this was called last."""
        if keep:
            self._numbers.update(self._new)
            self._strings.update(self._new_strings)
        self._new.clear()
        self._new_strings.clear()

    def _decimal(self, data: bytes, what: str) -> int:
        # No number of so many digits fits, and Python converts no integer of thousands.
        number = int(data) if len(data) <= len(str(1 << self.width)) else 1 << self.width
        if number >> self.width:
            raise StatusError(OUT_OF_RANGE, f"{what}: {_shown(data)} does not fit into {self.width} bits")
        taken = self._strings.get(number) or self._new_strings.get(number)
        if taken is not None:
            raise invalid(f"{what}: {number} is the number of {_shown(taken)} here")
        return number

    def _free_number(self, what: str) -> int:
        while self._next in self._strings:
            self._next -= 1
        number = self._next
        while number in self._strings or number in self._new_strings:
            number -= 1
        if number < 0 or len(self._strings) + len(self._new_strings) >= _MAX_STRINGS:
            said = f"{what}: all {min(_MAX_STRINGS, 1 << self.width)} strings of its type are used"
            raise StatusError(RESOURCE_EXHAUSTED, said)
        return number

    def to_client(self, value: int) -> bytes:
        """Write a number as its string; one that no client has named is its decimal digits."""
        return self._strings.get(value) or str(value).encode()


@dataclass(frozen=True, slots=True)
class Members:
    """The members of `error`, which have names and no numbers that a client could know (8.4.5)."""

    numbers: Mapping[str, int]

    def to_program(self, data: bytes, what: str) -> int:
        """Read a member's name. Raises StatusError (INVALID_ARGUMENT) for one that there is not."""
        number = self.numbers.get(data.decode("utf-8", "replace"))
        if number is None:
            raise invalid(f"{what}: {_shown(data)} is no member; legal: {', '.join(self.numbers)}")
        return number

    def to_client(self, value: int) -> bytes:
        """Write a member's name; a number that is no member's is its decimal digits."""
        return next((name for name, number in self.numbers.items() if number == value), str(value)).encode()


Translation: TypeAlias = Resized | Strings | Members


class Typed(Protocol):
    """A value of `width` bits in the program, with the translation of what clients see if there is one."""

    @property
    def width(self) -> int:
        """The program's bits."""

    @property
    def translation(self) -> Translation | None:
        """None: clients see the program's number."""


def read_value(kind: Typed, data: bytes, what: str) -> int:
    """Read a client's byte string as the program's number. Raises StatusError where it is none."""
    if kind.translation is None:
        return decode_uint(data, kind.width, what)
    return kind.translation.to_program(data, what)


def write_value(kind: Typed, value: int) -> bytes:
    """Write a number of the program as the client's byte string."""
    return encode_uint(value) if kind.translation is None else kind.translation.to_client(value)


class UserTypes:
    """The types that a P4Info declares, and the strings that its fields share by their URIs."""

    def __init__(
        self, info: p4t.P4TypeInfo, errors: Mapping[str, int], enums: Mapping[str, Mapping[str, int]]
    ) -> None:
        """`errors` and `enums` (by name) are the program's, with the numbers of their members."""
        self._info = info
        self.errors = errors
        self._enums = enums
        self._strings: dict[str, Strings] = {}

    def strings(self) -> tuple[Strings, ...]:
        """The strings of all URIs that a field has been found to have."""
        return tuple(self._strings.values())

    def field(
        self, what: str, bits: int, type_name: str, program_bits: Callable[[], int | None]
    ) -> tuple[int, Translation | None]:
        """Tell the program's width of a field or parameter, and its translation if it has one.

        `bits` and `type_name` are P4Info's. `program_bits` finds the program's width, None if the program
        lacks the value; it is called only where P4Info does not tell the width. Raises StatusError
        (INVALID_ARGUMENT) where they contradict each other.
        """
        if self._translated(type_name):
            width, translation = self.translate(what, type_name, program_bits)
            seen = 0 if isinstance(translation, Strings) else self._sdn(type_name).sdn_bitwidth
            if bits != seen:
                raise invalid(f"P4Info: {what} has a width of {bits} bits, its translated type {seen}")
            return width, translation
        if bits > 0:
            return bits, None
        width_or_none = None if type_name or bits < 0 else program_bits()
        if width_or_none is None or not self._info.HasField("error"):
            raise invalid(f"P4Info: {what} has a width of {bits} bits; at least 1 is needed")
        # Of the types without a width P4Info can only mean `error`.
        return width_or_none, Members(self.errors)

    def translate(
        self, what: str, type_name: str, program_bits: Callable[[], int | None]
    ) -> tuple[int, Translation | None]:
        """Tell the program's width of a value of a translated type, and its translation if it needs one.

        Raises StatusError as `field` does, and UNIMPLEMENTED for strings that stand for two widths.
        """
        kind, width = self._sdn(type_name), program_bits()
        if width is None:
            raise invalid(f"P4Info: {what} is of type {type_name}, and not in the device config")
        if kind.WhichOneof("sdn_type") == "sdn_string":
            strings = self._strings.setdefault(kind.uri, Strings(width))
            if strings.width != width:
                said = f"P4Info: {what}: strings of {kind.uri} stand for {strings.width} and for {width} bits"
                raise StatusError(UNIMPLEMENTED, said)
            return width, strings
        if kind.sdn_bitwidth < 1:
            raise invalid(f"P4Info: type {type_name} has {kind.sdn_bitwidth} bits; at least 1 is needed")
        return width, None if kind.sdn_bitwidth == width else Resized(kind.sdn_bitwidth, width)

    def _translated(self, type_name: str) -> bool:
        types = self._info.new_types
        return type_name in types and types[type_name].HasField("translated_type")

    def _sdn(self, type_name: str) -> p4t.P4NewTypeTranslation:
        return self._info.new_types[type_name].translated_type

    def original(self, what: str, type_name: str) -> p4t.P4DataTypeSpec | None:
        """The built-in type that a new type is; None where clients see it otherwise."""
        if type_name not in self._info.new_types:
            raise invalid(f"P4Info: {what}: type {type_name} is not in the type info")
        kind = self._info.new_types[type_name]
        if kind.original_type.HasField("new_type"):
            raise invalid(f"P4Info: type {type_name}: its original type is not a built-in one")
        return None if kind.HasField("translated_type") else kind.original_type

    def enum(self, what: str, type_name: str) -> Mapping[str, int]:
        """The members of an enum without an underlying type. Raises StatusError if the program has it not."""
        if type_name not in self._enums:
            raise invalid(f"P4Info: {what}: enum {type_name} is not in the device config")
        return self._enums[type_name]

    def enum_bits(self, what: str, type_name: str) -> int:
        """The width of a serializable enum. Raises StatusError if P4Info lacks it."""
        if type_name not in self._info.serializable_enums:
            raise invalid(f"P4Info: {what}: enum {type_name} is not in the type info")
        bits = self._info.serializable_enums[type_name].underlying_type.bitwidth
        if bits < 1:
            raise invalid(f"P4Info: enum {type_name} has {bits} bits; at least 1 is needed")
        return bits


def _is_decimal(data: bytes) -> bool:
    """Whether a string is a number as Python would write it, so that each number has one such string."""
    return data.isdigit() and (data == b"0" or not data.startswith(b"0"))


def _shown(data: bytes) -> str:
    return ascii(data.decode("utf-8", "replace")[:40])
