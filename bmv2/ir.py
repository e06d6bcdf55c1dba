# SPDX-License-Identifier: Apache-2.0
"""A BMv2 program as typed, resolved values: what the loader makes and code generation and reference read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .entries import TableEntry


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header type: width in bits, distance from the header's first bit in bits."""

    name: str
    width: int
    signed: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header or metadata instance; metadata is always valid and never on the wire."""

    name: str
    metadata: bool
    fields: Mapping[str, Field]
    width: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
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
class Lookahead:
    """`width` bits of the packet, `offset` bits after the parser's position, without consuming them."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Operation:
    """`op` of one, two or (`?`: condition, then, else) three operands; `boolean` is the result's kind."""

    op: str
    operands: tuple[Expression, ...]
    boolean: bool


Expression: TypeAlias = Const | Bool | FieldRef | ValidBit | Param | Lookahead | Operation


def is_boolean(expression: Expression) -> bool:
    """Whether the expression yields a truth value rather than an integer."""
    return isinstance(expression, Bool) or (isinstance(expression, Operation) and expression.boolean)


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all within it."""
    yield expression
    if isinstance(expression, Operation):
        for operand in expression.operands:
            yield from walk(operand)


@dataclass(frozen=True, slots=True)
class HeaderArg:
    """A header instance given to a primitive."""

    header: str


@dataclass(frozen=True, slots=True)
class ObjectArg:
    """A counter array, register array or calculation given to a primitive, by name."""

    name: str


Argument: TypeAlias = Expression | HeaderArg | ObjectArg


@dataclass(frozen=True, slots=True)
class Primitive:
    """One step of an action."""

    op: str
    args: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: widths of its run-time parameters in bits, and its steps."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    primitives: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class Extract:
    """Take the header from the packet."""

    header: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Stop with the error code unless the condition holds."""

    condition: Expression
    error: Expression


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip so many bits, a multiple of 8."""

    bits: Expression


ParserOp: TypeAlias = Extract | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class Transition:
    """Go to `next_state` where each part of the key, under its mask, equals the value."""

    values: tuple[int, ...]
    masks: tuple[int, ...] | None
    next_state: str | None


@dataclass(frozen=True, slots=True)
class ParserState:
    """Operations, then a choice: the first transition that matches, else the default (None accepts)."""

    name: str
    ops: tuple[ParserOp, ...]
    key: tuple[tuple[FieldRef | ValidBit | Lookahead, int], ...]
    transitions: tuple[Transition, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class KeyField:
    """One part of a table's key: kind is exact, lpm, ternary or range; `mask` is the program's own."""

    name: str
    kind: str
    source: FieldRef | ValidBit
    width: int
    mask: int | None


@dataclass(frozen=True, slots=True)
class DefaultEntry:
    """What a table does on a miss, and what of it the control plane may not change."""

    action: str
    params: tuple[int, ...]
    const_action: bool
    const_entry: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A match-action table.

    `actions` are those the table allows, by name in the program's order; `next_nodes` follow them.
    Where `hit_miss` is set, hit or miss decides the next node and not the action.
    """

    name: str
    kind: str
    key: tuple[KeyField, ...]
    size: int
    direct_counter: bool
    actions: Mapping[str, Action]
    next_nodes: Mapping[str, str | None]
    hit_miss: tuple[str | None, str | None] | None
    base_next: str | None
    default: DefaultEntry | None
    const_entries: tuple[TableEntry, ...] | None


@dataclass(frozen=True, slots=True)
class Conditional:
    """Go one way or the other."""

    name: str
    condition: Expression
    if_true: str | None
    if_false: str | None


Node: TypeAlias = Table | Conditional


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Ingress or egress: a graph of tables and conditionals, without cycles."""

    name: str
    first: str | None
    nodes: Mapping[str, Node]

    def successors(self, name: str) -> tuple[str | None, ...]:
        """The nodes that may follow, without repetition; None ends the pipeline."""
        node = self.nodes[name]
        following: tuple[str | None, ...]
        if isinstance(node, Conditional):
            following = (node.if_true, node.if_false)
        elif node.hit_miss is not None:
            following = node.hit_miss
        else:
            following = tuple(node.next_nodes.values())
            if node.default is None:
                following += (node.base_next,)
        return tuple(dict.fromkeys(following))


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash over fields and constants of given widths, packed from the most significant bit."""

    name: str
    algorithm: str
    inputs: tuple[tuple[FieldRef | Const, int], ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """A field that holds the result of a calculation."""

    name: str
    target: FieldRef
    calculation: str
    verify: bool
    update: bool
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Ir:
    """A whole program, checked: every name it mentions exists."""

    headers: Mapping[str, Header]
    errors: Mapping[str, int]
    first_state: str | None
    states: Mapping[str, ParserState]
    deparser: tuple[str, ...]
    counters: Mapping[str, int]
    direct_counters: Mapping[str, str]
    registers: Mapping[str, tuple[int, int]]
    calculations: Mapping[str, Calculation]
    checksums: tuple[Checksum, ...]
    actions: tuple[Action, ...]
    ingress: Pipeline
    egress: Pipeline
    aliases: Mapping[str, FieldRef]

    def intrinsic(self, name: str) -> FieldRef | None:
        """The field the target calls `name` ("intrinsic_metadata.priority"), or None if there is none."""
        if name in self.aliases:
            return self.aliases[name]
        header, _, field = name.partition(".")
        if header in self.headers and field in self.headers[header].fields:
            return FieldRef(header, field)
        return None

    def width(self, ref: FieldRef | ValidBit | Param | Lookahead) -> int:
        """Bits of a field, validity bit, parameter or piece of the packet."""
        if isinstance(ref, FieldRef):
            return self.headers[ref.header].fields[ref.field].width
        return 1 if isinstance(ref, ValidBit) else ref.width

    def tables(self) -> Iterator[Table]:
        """All tables, ingress first."""
        for pipeline in (self.ingress, self.egress):
            for node in pipeline.nodes.values():
                if isinstance(node, Table):
                    yield node
