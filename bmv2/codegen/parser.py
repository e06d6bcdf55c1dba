# SPDX-License-Identifier: Apache-2.0
"""The parser as Python source.

Without loops it is a tree in which every header's place is a constant; with loops, or where the tree
would grow too large, it is a loop over numbered states and a variable offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import (
    Advance,
    Const,
    Extract,
    ExtractNext,
    FieldRef,
    PacketLookahead,
    ParserState,
    Primitive,
    Transition,
    ValidBit,
    Verify,
    view_of,
)
from .actions import Actions
from .steps import StepWriter

_TREE_LIMIT = 256
_DEPTH_LIMIT = 60
# A state machine that consumes nothing would turn for ever, as it does in BMv2.
_STEP_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Position:
    """Where the parser is in the frame: a constant, or the variable `offset` and a constant."""

    variable: bool
    constant: int

    def plus(self, size: int) -> str:
        """Source of the place `size` bytes further on."""
        total = self.constant + size
        if not self.variable:
            return str(total)
        return f"offset + {total}" if total else "offset"


class ParserWriter:
    """Writes the parser into one function.

    Afterwards `payload` is where the rest of the frame begins and `parser_error` the error's code.
    """

    def __init__(self, steps: StepWriter, actions: Actions) -> None:
        self._steps = steps
        self._layout = steps.layout
        self._ir = steps.ir
        self._writer = steps.writer
        self._expressions = steps.expressions
        self._packing = steps.packing
        self._actions = actions
        self._numbers: dict[str, int] = {}
        self._looping = False

    def write(self) -> None:
        """Write it."""
        first = self._ir.first_state
        self._writer.store("payload")
        self._writer.store("parser_error")
        self._writer.line(f"parser_error = {self._ir.errors['NoError']}")
        if first is None:
            self._writer.line("payload = 0")
            return
        if self._tree_size(first, ()) <= _TREE_LIMIT:
            with self._writer.block("while True"):
                self._state(self._ir.states[first], Position(False, 0))
            return
        self._looping = True
        self._numbers = {name: number for number, name in enumerate(self._ir.states)}
        self._writer.line("offset = steps = 0")
        self._writer.line(f"state = {self._numbers[first]}")
        with self._writer.block("while True"):
            self._writer.line("steps += 1")
            with self._writer.block(f"if steps > {_STEP_LIMIT}"):
                self._fail(self._ir.errors["ParserTimeout"], Position(True, 0))
            for name, number in self._numbers.items():
                with self._writer.block(f"if state == {number}"):
                    self._state(self._ir.states[name], Position(True, 0))

    def _tree_size(self, name: str | None, path: tuple[str, ...]) -> int:
        """States written when every way has its own copy; beyond the limit where there is a loop."""
        if name is None:
            return 0
        if name in path or len(path) > _DEPTH_LIMIT:
            return _TREE_LIMIT + 1
        state = self._ir.states[name]
        total = 1
        for way in (state.default, *(transition.next_state for transition in state.transitions)):
            total += self._tree_size(way, (*path, name))
            if total > _TREE_LIMIT:
                break
        return total

    def _fail(self, error: int | str, position: Position) -> None:
        self._writer.line(f"parser_error = {error}")
        self._writer.line(f"payload = {position.plus(0)}")
        self._writer.line("break")

    def _need(self, size: int, position: Position) -> None:
        with self._writer.block(f"if length < {position.plus(size)}"):
            self._fail(self._ir.errors["PacketTooShort"], position)
        self._writer.load("length")

    def _state(self, state: ParserState, position: Position) -> None:
        for op in state.ops:
            self._expressions.position = position.plus(0)
            if isinstance(op, Extract):
                position = self._extract(op, position)
            elif isinstance(op, ExtractNext):
                position = self._extract_next(op, position)
            elif isinstance(op, Primitive):
                for arg in op.args:
                    if isinstance(arg, PacketLookahead):
                        self._need(-(-arg.width // 8), position)
                self._actions.primitive(op)
            elif isinstance(op, Verify):
                with self._writer.block(f"if not {self._expressions.condition(op.condition)}"):
                    self._fail(self._expressions.integer(op.error).text, position)
            else:
                position = self._advance(op, position)
        self._expressions.position = position.plus(0)
        self._select(state, position)

    def _extract(self, op: Extract, position: Position) -> Position:
        self._check_room(op, position)
        self._take(op, position)
        return self._behind(op, position)

    def _extract_next(self, op: ExtractNext, position: Position) -> Position:
        """Take the first element of a stack that is not in use, whichever it is."""
        stack = self._ir.stacks[op.stack]
        used = self._layout.variable(stack.next.header, stack.next.field)
        self._writer.load(used)
        with self._writer.block(f"if {used} >= {len(op.elements)}"):
            self._fail(self._ir.errors["StackOutOfBounds"], position)
        self._check_room(op.elements[0], position)
        for number, element in enumerate(op.elements):
            last = number == len(op.elements) - 1
            head = "else" if last and number else f"{'elif' if number else 'if'} {used} == {number}"
            with self._writer.block(head):
                self._take(element, position)
        self._writer.line(f"{self._writer.store(used)} += 1")
        return self._behind(op.elements[0], position)

    def _check_room(self, op: Extract, position: Position) -> None:
        """Write the checks that BMv2 makes before it takes a header, in its order."""
        size = self._layout.uses[op.header].header.size
        if op.length is None:
            self._need(size, position)
            return
        self._writer.line(f"bits = {self._expressions.integer(op.length).text} & 0xffffffff")
        with self._writer.block("if bits & 7"):
            self._fail(self._ir.errors["ParserInvalidArgument"], position)
        self._writer.load("length")
        with self._writer.block(f"if length < {position.plus(size)} + (bits >> 3)"):
            self._fail(self._ir.errors["PacketTooShort"], position)
        with self._writer.block(f"if {size} + (bits >> 3) > {op.limit}"):
            self._fail(self._ir.errors["HeaderTooShort"], position)

    def _take(self, op: Extract, position: Position) -> None:
        self._packing.decode(self._layout.uses[op.header], position.plus(0))
        start = self._writer.store(self._layout.start(op.header))
        self._writer.line(f"{start} = {position.plus(0)}")
        self._steps.mark_valid(op.header)

    def _behind(self, op: Extract, position: Position) -> Position:
        """Where the parser is after a header."""
        size = self._layout.uses[op.header].header.size
        if op.length is None:
            return Position(position.variable, position.constant + size)
        self._writer.line(f"offset = {position.plus(size)} + (bits >> 3)")
        return Position(True, 0)

    def _advance(self, op: Advance, position: Position) -> Position:
        if isinstance(op.bits, Const) and op.bits.value % 8 == 0:
            size = op.bits.value // 8
            self._need(size, position)
            return Position(position.variable, position.constant + size)
        self._writer.line(f"skip = {self._expressions.integer(op.bits).text}")
        with self._writer.block("if skip & 7"):
            self._fail(self._ir.errors["ParserInvalidArgument"], position)
        with self._writer.block(f"if length < {position.plus(0)} + (skip >> 3)"):
            self._fail(self._ir.errors["PacketTooShort"], position)
        self._writer.line(f"offset = {position.plus(0)} + (skip >> 3)")
        return Position(True, 0)

    def _select(self, state: ParserState, position: Position) -> None:
        if not state.transitions:
            self._go(state.default, position)
            return
        parts = []
        for index, (source, _) in enumerate(state.key):
            if isinstance(source, FieldRef | ValidBit):
                code = self._expressions.unsigned(source)
            else:
                code = self._expressions.integer(source)
            parts.append(code.text if code.text.isidentifier() else f"key{index}")
            if not code.text.isidentifier():
                self._writer.line(f"key{index} = {code.text}")
        for number, transition in enumerate(state.transitions):
            test = self._test(state, transition, parts)
            if test is None:
                if number == 0:
                    self._go(transition.next_state, position)
                else:
                    with self._writer.block("else"):
                        self._go(transition.next_state, position)
                return
            with self._writer.block(f"{'elif' if number else 'if'} {test}"):
                self._go(transition.next_state, position)
        with self._writer.block("else"):
            self._go(state.default, position)

    def _test(self, state: ParserState, transition: Transition, parts: list[str]) -> str | None:
        """Source of a transition's condition; None where it always holds."""
        if transition.value_set is not None:
            whole, bits = [], sum(width for _, width in state.key)
            for part, (_, width) in zip(parts, state.key, strict=True):
                bits -= width
                whole.append(f"{part} << {bits}" if bits else part)
            number = self._ir.set_views().index(view_of(state, transition))
            return f"vset{number}[{' | '.join(whole)}]"
        tests = []
        for index, (_, width) in enumerate(state.key):
            full = (1 << width) - 1
            mask = full if transition.masks is None else transition.masks[index] & full
            value = transition.values[index]
            if mask == full:
                tests.append(f"{parts[index]} == {value}")
            elif mask:
                tests.append(f"{parts[index]} & {hex(mask)} == {value & mask}")
        return " and ".join(tests) if tests else None

    def _go(self, target: str | None, position: Position) -> None:
        if target is None:
            self._writer.line(f"payload = {position.plus(0)}")
            self._writer.line("break")
        elif self._looping:
            if position.constant:
                self._writer.line(f"offset = {position.plus(0)}")
            self._writer.line(f"state = {self._numbers[target]}")
            self._writer.line("continue")
        else:
            self._state(self._ir.states[target], position)
