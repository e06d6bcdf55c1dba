# SPDX-License-Identifier: Apache-2.0
"""Expressions as Python source, with the range of their values so that needless masks are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import (
    Bool,
    Const,
    Expression,
    FieldRef,
    Operator,
    PacketLookahead,
    Param,
    RegisterCell,
    ValidBit,
)
from .layout import Layout
from .writer import Writer

# A shift by more is beyond any width p4c accepts; the run-time helper answers 0 for it.
_INLINE_SHIFT = 128


@dataclass(frozen=True, slots=True)
class Code:
    """Source of an integer expression, self-contained, and the least and greatest value (None: unknown)."""

    text: str
    low: int | None
    high: int | None

    def fits(self, low: int, high: int) -> bool:
        """Whether the value is certainly within the bounds."""
        return self.low is not None and self.high is not None and low <= self.low and self.high <= high


class Expressions:
    """Writes expressions of one function; `params` are the sources of the action's run-time arguments."""

    def __init__(self, layout: Layout, writer: Writer) -> None:
        self._layout = layout
        self._writer = writer
        self.params: Sequence[str] = ()
        self.position = "0"

    def field(self, ref: FieldRef) -> Code:
        """A field's variable."""
        item = self._layout.ir.headers[ref.header].fields[ref.field]
        name = self._writer.load(self._layout.variable(ref.header, ref.field))
        if item.signed:
            return Code(name, -(1 << (item.width - 1)), (1 << (item.width - 1)) - 1)
        return Code(name, 0, (1 << item.width) - 1)

    def unsigned(self, ref: FieldRef | ValidBit | Const) -> Code:
        """A field's bits (or a constant) as an unsigned integer."""
        code = self.integer(ref)
        if isinstance(ref, FieldRef) and code.low != 0:
            width = self._layout.ir.width(ref)
            return Code(f"({code.text} & {hex((1 << width) - 1)})", 0, (1 << width) - 1)
        return code

    def integer(self, expression: Expression) -> Code:
        """An integer expression."""
        if isinstance(expression, Const):
            value = expression.value
            return Code(str(value) if value >= 0 else f"({value})", value, value)
        if isinstance(expression, FieldRef):
            return self.field(expression)
        if isinstance(expression, ValidBit):
            if self._layout.ir.headers[expression.header].metadata:
                return Code("1", 1, 1)
            return Code(self._writer.load(self._layout.valid(expression.header)), 0, 1)
        if isinstance(expression, Param):
            return Code(self.params[expression.index], 0, (1 << expression.width) - 1)
        if isinstance(expression, PacketLookahead):
            return self._lookahead(expression)
        if isinstance(expression, RegisterCell):
            return self._cell(expression)
        if isinstance(expression, Operator):
            return self._operation(expression)
        return Code(str(int(expression.value)), 0, 1)

    def condition(self, expression: Expression) -> str:
        """A truth value, for `if`; any non-zero integer may stand for true."""
        if isinstance(expression, Bool):
            return str(expression.value)
        if not isinstance(expression, Operator):
            return self.integer(expression).text
        op, operands = expression.op, expression.operands
        if op in ("and", "or"):
            return f"({self.condition(operands[0])} {op} {self.condition(operands[1])})"
        if op == "not":
            return f"(not {self.condition(operands[0])})"
        if op in ("d2b", "b2d"):
            return self.condition(operands[0]) if op == "b2d" else self.integer(operands[0]).text
        if op == "?" and expression.boolean:
            then, other = self.condition(operands[1]), self.condition(operands[2])
            return f"({then} if {self.condition(operands[0])} else {other})"
        if op in ("==", "!=") and _is_truth(operands[0]):
            return f"((not {self.condition(operands[0])}) {op} (not {self.condition(operands[1])}))"
        if op in ("==", "!=", "<", "<=", ">", ">="):
            return f"({self.integer(operands[0]).text} {op} {self.integer(operands[1]).text})"
        return self._operation(expression).text

    def assigned(self, code: Code, width: int, signed: bool) -> str:
        """The source of a value as a field of that width keeps it."""
        if signed:
            half = 1 << (width - 1)
            if code.fits(-half, half - 1):
                return code.text
            return f"((({code.text} + {half}) & {hex((1 << width) - 1)}) - {half})"
        if code.fits(0, (1 << width) - 1):
            return code.text
        return f"({code.text} & {hex((1 << width) - 1)})"

    def _cell(self, cell: RegisterCell) -> Code:
        registers, index = self._layout.ir.registers, self.integer(cell.index)
        array = f"register{list(registers).index(cell.register)}"
        inside = index.fits(0, registers[cell.register][0] - 1)
        text = f"{array}[{index.text}]" if inside else f"cell({array}, {index.text})"
        return Code(text, 0, (1 << cell.width) - 1)

    def _lookahead(self, part: PacketLookahead) -> Code:
        first, last = part.offset // 8, -(-(part.offset + part.width) // 8)
        shift = last * 8 - part.offset - part.width
        text = f"peek(frame, {self.position} + {first}, {last - first})"
        if shift:
            text = f"({text} >> {shift})"
        if part.offset % 8:
            text = f"({text} & {hex((1 << part.width) - 1)})"
        return Code(text, 0, (1 << part.width) - 1)

    def _operation(self, expression: Operator) -> Code:
        op, operands = expression.op, expression.operands
        if op == "b2d":
            return Code(f"(1 if {self.condition(operands[0])} else 0)", 0, 1)
        if op == "?":
            then, other = self.integer(operands[1]), self.integer(operands[2])
            text = f"({then.text} if {self.condition(operands[0])} else {other.text})"
            known = None not in (then.low, then.high, other.low, other.high)
            if known and then.low is not None and other.low is not None:
                assert then.high is not None
                assert other.high is not None
                return Code(text, min(then.low, other.low), max(then.high, other.high))
            return Code(text, None, None)
        codes = [self.integer(operand) for operand in operands]
        if op == "~":
            low = None if codes[0].high is None else ~codes[0].high
            high = None if codes[0].low is None else ~codes[0].low
            return Code(f"(~{codes[0].text})", low, high)
        if op in ("two_comp_mod", "usat_cast", "sat_cast"):
            return _cast(op, codes[0], operands[1])
        if op in ("&", "|", "^"):
            return _bitwise(op, *codes)
        if op in ("<<", ">>"):
            return _shift(op, *codes)
        if op in ("/", "%"):
            return _division(op, *codes)
        return _arithmetic(op, *codes)


def _is_truth(expression: Expression) -> bool:
    return isinstance(expression, Bool) or (isinstance(expression, Operator) and expression.boolean)


def _arithmetic(op: str, left: Code, right: Code) -> Code:
    text = f"({left.text} {op} {right.text})"
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return Code(text, None, None)
    if op == "+":
        return Code(text, left.low + right.low, left.high + right.high)
    if op == "-":
        return Code(text, left.low - right.high, left.high - right.low)
    ends = [x * y for x in (left.low, left.high) for y in (right.low, right.high)]
    return Code(text, min(ends), max(ends))


def _bitwise(op: str, left: Code, right: Code) -> Code:
    text = f"({left.text} {op} {right.text})"
    if op == "&":
        for value, mask in ((left, right), (right, left)):
            if mask.low is not None and mask.low == mask.high and mask.low >= 0:
                ones = mask.low & (mask.low + 1) == 0
                return value if ones and value.fits(0, mask.low) else Code(text, 0, mask.low)
        highs = [
            code.high
            for code in (left, right)
            if code.low is not None and code.low >= 0 and code.high is not None
        ]
        return Code(text, 0, min(highs)) if highs else Code(text, None, None)
    if left.low is None or right.low is None or left.low < 0 or right.low < 0:
        return Code(text, None, None)
    if left.high is None or right.high is None:
        return Code(text, 0, None)
    return Code(text, 0, (1 << max(left.high.bit_length(), right.high.bit_length())) - 1)


def _shift(op: str, value: Code, amount: Code) -> Code:
    small = amount.fits(0, _INLINE_SHIFT)
    constant = amount.low if small and amount.low == amount.high else None
    if op == "<<" and not small:
        return Code(f"shift_left({value.text}, {amount.text})", None, None)
    text = value.text if constant == 0 else f"({value.text} {op} {amount.text})"
    if value.low is None or value.high is None or not small or amount.high is None:
        return Code(text, None, None)
    if op == "<<":
        factor = 1 << amount.high
        return Code(text, min(value.low, value.low * factor), max(value.high, value.high * factor))
    if constant is not None:
        return Code(text, value.low >> constant, value.high >> constant)
    return Code(text, min(value.low, 0), max(value.high, 0))


def _division(op: str, left: Code, right: Code) -> Code:
    python = "//" if op == "/" else "%"
    if right.low is not None and right.low > 0 and left.low is not None and left.low >= 0:
        high = left.high if op == "/" or right.high is None else right.high - 1
        return Code(f"({left.text} {python} {right.text})", 0, high)
    return Code(f"{'divide' if op == '/' else 'modulo'}({left.text}, {right.text})", None, None)


def _cast(op: str, value: Code, width: Expression) -> Code:
    if not isinstance(width, Const):
        return Code("0", 0, 0)
    bits = width.value
    half, full = 1 << (bits - 1), 1 << bits
    low, high = (0, full - 1) if op == "usat_cast" else (-half, half - 1)
    if value.fits(low, high):
        return value
    if op == "two_comp_mod":
        return Code(f"((({value.text} + {half}) & {hex(full - 1)}) - {half})", low, high)
    return Code(f"({low} if (t := {value.text}) < {low} else {high} if t > {high} else t)", low, high)
