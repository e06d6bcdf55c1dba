# SPDX-License-Identifier: Apache-2.0
"""The parts of a program's intermediate representation that compute: headers, expressions, actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header type: width in bits, distance from the header's first bit in bits.

    A field of variable width has its greatest width, and takes no room in the distances of the others.
    """

    name: str
    width: int
    signed: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header or metadata instance; metadata is always valid and never on the wire.

    `width` leaves out the field of variable width, `varbit`, if there is one.
    """

    name: str
    metadata: bool
    fields: Mapping[str, Field]
    width: int
    varbit: str | None = None

    @property
    def size(self) -> int:
        """Bytes on the wire, without the field of variable width."""
        return self.width // 8


@dataclass(frozen=True, slots=True)
class Const:
    """An integer of any size and sign."""

    value: int


@dataclass(frozen=True, slots=True)
class Bool:
    """A truth value."""

    value: bool


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of a header instance."""

    header: str
    field: str


@dataclass(frozen=True, slots=True)
class ValidBit:
    """1 where the header is valid, else 0 (`header.$valid$`)."""

    header: str


@dataclass(frozen=True, slots=True)
class Param:
    """The action's run-time argument number `index`, `width` bits wide."""

    index: int
    width: int


@dataclass(frozen=True, slots=True)
class PacketLookahead:
    """`width` bits of the packet, `offset` bits after the parser's position, without consuming them."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Operator:
    """`op` of one, two or (`?`: condition, then, else) three operands; `boolean` is the result's kind."""

    op: str
    operands: tuple[Expression, ...]
    boolean: bool


@dataclass(frozen=True, slots=True)
class RegisterCell:
    """A cell of a register array, 0 where the array has no such index; only JSON from P4_14 reads it so."""

    register: str
    index: Expression
    width: int


Expression: TypeAlias = Const | Bool | FieldRef | ValidBit | Param | PacketLookahead | RegisterCell | Operator


def is_boolean(expression: Expression) -> bool:
    """Whether the expression yields a truth value rather than an integer."""
    return isinstance(expression, Bool) or (isinstance(expression, Operator) and expression.boolean)


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all within it."""
    yield expression
    if isinstance(expression, Operator):
        for operand in expression.operands:
            yield from walk(operand)
    elif isinstance(expression, RegisterCell):
        yield from walk(expression.index)


@dataclass(frozen=True, slots=True)
class HeaderArg:
    """A header instance given to a primitive."""

    header: str


@dataclass(frozen=True, slots=True)
class ObjectArg:
    """A counter, meter or register array, a calculation, or a text given to a primitive."""

    name: str


Argument: TypeAlias = Expression | HeaderArg | ObjectArg


@dataclass(frozen=True, slots=True)
class Primitive:
    """One step of an action.

    `block` is all of its `steps`; `when` is `steps` where its argument holds, else `otherwise`.
    """

    op: str
    args: tuple[Argument, ...]
    steps: tuple[Primitive, ...] = ()
    otherwise: tuple[Primitive, ...] = ()

    def flat(self) -> Iterator[Primitive]:
        """The step and all steps within it."""
        yield self
        for step in (*self.steps, *self.otherwise):
            yield from step.flat()


@dataclass(frozen=True, slots=True)
class Action:
    """An action: widths of its run-time parameters in bits, and its steps."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    primitives: tuple[Primitive, ...]
