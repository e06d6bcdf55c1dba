# SPDX-License-Identifier: Apache-2.0
"""A BMv2 program as typed, resolved values: what the loader makes and code generation and reference read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .entries import TableEntry
from .ir_values import (
    Action,
    Argument,
    Bool,
    Const,
    Expression,
    Field,
    FieldRef,
    Header,
    HeaderArg,
    ObjectArg,
    Operator,
    PacketLookahead,
    Param,
    Primitive,
    RegisterCell,
    ValidBit,
    is_boolean,
    walk,
)

__all__ = [
    "Action",
    "Advance",
    "Argument",
    "Bool",
    "Calculation",
    "Checksum",
    "Conditional",
    "Const",
    "DefaultEntry",
    "Digest",
    "Expression",
    "Extract",
    "ExtractNext",
    "Field",
    "FieldRef",
    "Header",
    "HeaderArg",
    "Ir",
    "KeyField",
    "MeterArray",
    "Node",
    "ObjectArg",
    "Operator",
    "PacketLookahead",
    "Param",
    "ParserOp",
    "ParserState",
    "Pipeline",
    "Primitive",
    "ProfileDeclaration",
    "RegisterCell",
    "Stack",
    "Table",
    "Transition",
    "ValidBit",
    "ValueSet",
    "Verify",
    "is_boolean",
    "view_of",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Extract:
    """Take the header from the packet; `length` are the bits of its field of variable width.

    A whole header of more than `limit` bytes is an error.
    """

    header: str
    length: Expression | None = None
    limit: int = 0


@dataclass(frozen=True, slots=True)
class ExtractNext:
    """Take the next element of a stack from the packet: `elements` are its headers, one an element."""

    stack: str
    elements: tuple[Extract, ...]


@dataclass(frozen=True, slots=True)
class Verify:
    """Stop with the error code unless the condition holds."""

    condition: Expression
    error: Expression


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip so many bits, a multiple of 8."""

    bits: Expression


ParserOp: TypeAlias = Extract | ExtractNext | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class Transition:
    """Go to `next_state` where each part of the key, under its mask, equals the value.

    With a value set, where the set holds the key under the masks.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...] | None
    next_state: str | None
    value_set: str | None = None


@dataclass(frozen=True, slots=True)
class ParserState:
    """Operations, then a choice: the first transition that matches, else the default (None accepts)."""

    name: str
    ops: tuple[ParserOp, ...]
    key: tuple[tuple[Expression, int], ...]
    transitions: tuple[Transition, ...]
    default: str | None


def view_of(state: ParserState, transition: Transition) -> tuple[str, int | None]:
    """The value set a transition asks, and the mask over the whole key (None where there is none)."""
    assert transition.value_set is not None
    if transition.masks is None:
        return transition.value_set, None
    whole = 0
    for mask, (_, width) in zip(transition.masks, state.key, strict=True):
        whole = whole << width | mask & ((1 << width) - 1)
    return transition.value_set, whole


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
    initial_entries: tuple[TableEntry, ...] | None
    profile: str | None = None
    direct_meter: str | None = None
    timeout: bool = False

    @property
    def stateful(self) -> bool:
        """Whether an entry has a counter, a meter or an age."""
        return self.direct_counter or self.timeout or self.direct_meter is not None


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
    payload: bool = False


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
class Stack:
    """A header stack or a stack of unions: its elements' names, and the field that counts those in use."""

    name: str
    elements: tuple[str, ...]
    next: FieldRef


@dataclass(frozen=True, slots=True)
class MeterArray:
    """A two-rate meter array; a direct one belongs to a table's entries and writes its colour to `target`."""

    name: str
    size: int
    by_bytes: bool
    target: FieldRef | None


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A parser value set: members the control plane sets, for keys of parts of these widths.

    Old compilers do not tell its `size`, the most members it takes.
    """

    name: str
    size: int | None
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    """Fields whose values a digest message carries."""

    name: str
    fields: tuple[tuple[FieldRef | Const, int], ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each value."""
        return tuple(width for _, width in self.fields)


@dataclass(frozen=True, slots=True)
class ProfileDeclaration:
    """An action profile; a selector hashes with the calculation of its own name."""

    name: str
    size: int
    selector: Calculation | None


@dataclass(frozen=True, slots=True)
class Ir:
    """A whole program, checked: every name it mentions exists."""

    headers: Mapping[str, Header]
    errors: Mapping[str, int]
    enums: Mapping[str, Mapping[str, int]]
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
    stacks: Mapping[str, Stack]
    unions: Mapping[str, tuple[str, ...]]
    siblings: Mapping[str, tuple[str, ...]]
    meters: Mapping[str, MeterArray]
    value_sets: Mapping[str, ValueSet]
    digests: Mapping[int, Digest]
    field_lists: Mapping[int, tuple[FieldRef, ...]]
    profiles: Mapping[str, ProfileDeclaration]
    deparser_steps: tuple[Primitive, ...]

    def intrinsic(self, name: str) -> FieldRef | None:
        """The field the target calls `name` ("intrinsic_metadata.priority"), or None if there is none."""
        if name in self.aliases:
            return self.aliases[name]
        header, _, field = name.partition(".")
        if header in self.headers and field in self.headers[header].fields:
            return FieldRef(header, field)
        return None

    def width(self, ref: FieldRef | ValidBit | Param | PacketLookahead) -> int:
        """Bits of a field, validity bit, parameter or piece of the packet."""
        if isinstance(ref, FieldRef):
            return self.headers[ref.header].fields[ref.field].width
        return 1 if isinstance(ref, ValidBit) else ref.width

    def set_views(self) -> tuple[tuple[str, int | None], ...]:
        """The value sets the parser asks, each with the mask over the whole key it is asked under."""
        views = (
            view_of(state, way)
            for state in self.states.values()
            for way in state.transitions
            if way.value_set is not None
        )
        return tuple(dict.fromkeys(views))

    def tables(self) -> Iterator[Table]:
        """All tables, ingress first."""
        for pipeline in (self.ingress, self.egress):
            for node in pipeline.nodes.values():
                if isinstance(node, Table):
                    yield node
