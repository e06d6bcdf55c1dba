# SPDX-License-Identifier: Apache-2.0
"""Scalar values as P4Data, in digests and registers (P4Runtime 1.5, 8.4.3 and 8.4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from finsy.proto import p4d, p4t

from bmv2.server.errors import UNIMPLEMENTED, StatusError, invalid
from bmv2.server.translations import Translation, UserTypes, read_value, write_value


@dataclass(frozen=True, slots=True)
class DataType:
    """A scalar type: `member` names the field of P4Data that carries it, `width` are the program's bits.

    A width of 0 is not told by P4Info. `numbers` are those of an enum's or of error's members.
    """

    member: str
    width: int
    translation: Translation | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)

    def encode(self, value: int) -> p4d.P4Data:
        """Write a value of the program."""
        match self.member:
            case "bool":
                return p4d.P4Data(bool=bool(value))
            case "enum" | "error":
                name = next((name for name, number in self.numbers.items() if number == value), str(value))
                return p4d.P4Data(enum=name) if self.member == "enum" else p4d.P4Data(error=name)
            case "enum_value":
                return p4d.P4Data(enum_value=write_value(self, value))
            case _:
                return p4d.P4Data(bitstring=write_value(self, value))

    def decode(self, data: p4d.P4Data, what: str) -> int:
        """Read a client's value. Raises StatusError where it is none of this type."""
        given = data.WhichOneof("data")
        if given != self.member:
            raise invalid(f"{what}: is a {self.member}, but {given or 'nothing'} is given")
        match self.member:
            case "bool":
                return int(data.bool)
            case "enum" | "error":
                name = data.enum if self.member == "enum" else data.error
                if name not in self.numbers:
                    raise invalid(f"{what}: {name[:40]!a} is no member; legal: {', '.join(self.numbers)}")
                return self.numbers[name]
            case "enum_value":
                return read_value(self, data.enum_value, what)
            case _:
                return read_value(self, data.bitstring, what)


def parse_scalar(what: str, spec: p4t.P4DataTypeSpec, types: UserTypes, width: int | None) -> DataType:
    """The scalar type of a P4DataTypeSpec; `width` is the program's, None if the program lacks the value.

    Raises StatusError: UNIMPLEMENTED for a type that is no scalar, INVALID_ARGUMENT for one not declared.
    """
    kind = spec.WhichOneof("type_spec")
    match kind:
        case "bitstring":
            return DataType("bitstring", _bits(what, spec.bitstring))
        case "bool":
            return DataType("bool", 1)
        case "error":
            return DataType("error", 0, numbers=types.errors)
        case "enum":
            return DataType("enum", 0, numbers=types.enum(what, spec.enum.name))
        case "serializable_enum":
            return DataType("enum_value", types.enum_bits(what, spec.serializable_enum.name))
        case "new_type":
            original = types.original(what, spec.new_type.name)
            if original is not None:
                return parse_scalar(what, original, types, width)
            bits, translation = types.translate(what, spec.new_type.name, lambda: width)
            return DataType("bitstring", bits, translation)
        case _:
            raise StatusError(UNIMPLEMENTED, f"P4Info: {what} is not a scalar, but {kind or 'nothing'}")


def _bits(what: str, spec: p4t.P4BitstringLikeTypeSpec) -> int:
    match spec.WhichOneof("type_spec"):
        case "bit":
            bits = spec.bit.bitwidth
        case "int":
            bits = spec.int.bitwidth
        case _:
            raise StatusError(UNIMPLEMENTED, f"P4Info: {what}: varbit is not supported")
    if bits < 1:
        raise invalid(f"P4Info: {what} has {bits} bits; at least 1 is needed")
    return bits
