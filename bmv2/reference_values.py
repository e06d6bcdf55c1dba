# SPDX-License-Identifier: Apache-2.0
"""The reference interpreter's packet, expressions and matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from .codegen.runtime import divide, modulo, peek, shift_left
from .entries import Exact, Lpm, Optional, Range, TableEntry, Ternary
from .ir import (
    Bool,
    Const,
    Expression,
    FieldRef,
    Operator,
    PacketLookahead,
    Param,
    RegisterCell,
    Table,
    ValidBit,
    is_boolean,
)


@dataclass
class Packet:
    """A packet inside the switch: all fields by (header, field), the valid headers, the rest of the frame."""

    values: dict[tuple[str, str], int]
    valid: set[str]
    frame: bytes
    position: int = 0
    length: int = 0
    now: int = 0
    leaving: bool = False
    params: tuple[int, ...] = ()
    registers: Mapping[str, list[int]] = field(default_factory=dict)

    def copy(self) -> Packet:
        """An independent copy, as multicast makes."""
        return replace(self, values=dict(self.values), valid=set(self.valid), leaving=False, params=())

    @property
    def payload(self) -> bytes:
        """What the parser has left of the frame, as far as the packet is not truncated."""
        limit = self.values.get(("$requests", "truncate"), 0)
        rest = self.frame[self.position :]
        return rest[: limit - 1] if limit else rest


def evaluate(expression: Expression, packet: Packet) -> int:
    """An expression's value, 0 or 1 for a truth value."""
    if isinstance(expression, Const | Bool):
        return int(expression.value)
    if isinstance(expression, FieldRef):
        return packet.values[expression.header, expression.field]
    if isinstance(expression, ValidBit):
        return int(expression.header in packet.valid)
    if isinstance(expression, Param):
        return packet.params[expression.index]
    if isinstance(expression, PacketLookahead):
        first = packet.position + expression.offset // 8
        size = -(-(expression.offset + expression.width) // 8) - expression.offset // 8
        shift = -(expression.offset + expression.width) % 8
        return peek(packet.frame, first, size) >> shift & ((1 << expression.width) - 1)
    if isinstance(expression, RegisterCell):
        cells, index = packet.registers[expression.register], evaluate(expression.index, packet)
        return cells[index] if 0 <= index < len(cells) else 0
    return _operate(expression, packet)


def _operate(expression: Operator, packet: Packet) -> int:
    op = expression.op
    values = [evaluate(operand, packet) for operand in expression.operands]
    if all(is_boolean(operand) for operand in expression.operands):
        values = [int(bool(value)) for value in values]
    left, right = values[0], values[-1]
    if op in ("two_comp_mod", "sat_cast", "usat_cast"):
        low, high = (
            (0, (1 << right) - 1) if op == "usat_cast" else (-(1 << (right - 1)), (1 << (right - 1)) - 1)
        )
        if op != "two_comp_mod":
            return max(low, min(high, left))
        return (left - low) % (1 << right) + low
    results: dict[str, Callable[[], int]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: divide(left, right),
        "%": lambda: modulo(left, right),
        "<<": lambda: shift_left(left, right),
        ">>": lambda: left >> right,
        "&": lambda: left & right,
        "|": lambda: left | right,
        "^": lambda: left ^ right,
        "~": lambda: ~left,
        "==": lambda: left == right,
        "!=": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
        "and": lambda: left and right,
        "or": lambda: left or right,
        "not": lambda: not left,
        "d2b": lambda: left != 0,
        "b2d": lambda: left,
        "?": lambda: values[1] if left else right,
    }
    return int(results[op]())


def match_rank(table: Table, key: list[int], entry: TableEntry) -> int | None:
    """The entry's rank (longer prefix, larger priority) where it matches, else None."""
    rank = entry.priority
    for part, value, match in zip(table.key, key, entry.match, strict=True):
        own = (1 << part.width) - 1 if part.mask is None else part.mask
        if isinstance(match, Exact):
            fits = value == match.value & own
        elif isinstance(match, Lpm):
            mask = ((1 << match.prefix_len) - 1) << (part.width - match.prefix_len) & own
            fits = value & mask == match.value & mask
            rank = match.prefix_len if table.kind == "lpm" else rank
        elif isinstance(match, Ternary):
            fits = value & match.mask & own == match.value & match.mask & own
        elif isinstance(match, Range):
            fits = match.low <= value <= match.high
        else:
            assert isinstance(match, Optional)
            fits = match.value is None or value == match.value & own
        if not fits:
            return None
    return rank
