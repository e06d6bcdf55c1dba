# SPDX-License-Identifier: Apache-2.0
"""The parser as Python source.

Without loops it is a tree in which every header's place is a constant; with loops, or where the tree
would grow too large, it is a loop over numbered states and a variable offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Advance, Const, Extract, Lookahead, ParserState, Primitive, Transition, Verify
from .actions import Actions
from .expression import Expressions
from .layout import Layout
from .packing import Packing
from .writer import Writer

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

    def __init__(
        self, layout: Layout, writer: Writer, expressions: Expressions, packing: Packing, actions: Actions
    ) -> None:
        self._layout = layout
        self._ir = layout.ir
        self._writer = writer
        self._expressions = expressions
        self._packing = packing
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
            elif isinstance(op, Primitive):
                for arg in op.args:
                    if isinstance(arg, Lookahead):
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
        use = self._layout.uses[op.header]
        self._need(use.header.size, position)
        self._packing.decode(use, position.plus(0))
        start = self._writer.store(self._layout.start(op.header))
        self._writer.line(f"{start} = {position.plus(0)}")
        self._writer.line(f"{self._writer.store(self._layout.valid(op.header))} = 1")
        return Position(position.variable, position.constant + use.header.size)

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
            code = (
                self._expressions.integer(source)
                if isinstance(source, Lookahead)
                else self._expressions.unsigned(source)
            )
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

    @staticmethod
    def _test(state: ParserState, transition: Transition, parts: list[str]) -> str | None:
        """Source of a transition's condition; None where it always holds."""
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
