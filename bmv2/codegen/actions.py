# SPDX-License-Identifier: Apache-2.0
"""Actions as Python source, written where they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import (
    Action,
    Argument,
    Const,
    FieldRef,
    HeaderArg,
    Ir,
    ObjectArg,
    Param,
    Primitive,
    walk,
)
from .expression import Code, Expressions
from .layout import Layout, has_exit
from .packing import Packing
from .writer import Graph, Writer

_UINT64 = (1 << 64) - 1


class Actions:
    """Writes primitives into one function."""

    def __init__(self, layout: Layout, writer: Writer, expressions: Expressions, packing: Packing) -> None:
        self._layout = layout
        self._ir: Ir = layout.ir
        self._writer = writer
        self._expressions = expressions
        self._packing = packing
        self.track_length = False
        self.length = "length"

    def call(self, action: Action, params: Sequence[str]) -> None:
        """Write an action's body; `params` are sources of its run-time arguments."""
        self._expressions.params = self._bind_params(action, params)
        steps = action.primitives
        if any(step.op.startswith("_jump") for step in steps):
            self._jumping(steps)
        else:
            for step in steps:
                self.primitive(step)
        if has_exit(action):
            with self._writer.block("if leaving"):
                self._writer.line("break")

    def _bind_params(self, action: Action, params: Sequence[str]) -> list[str]:
        """Give arguments that are used more than once a variable."""
        uses = [0] * len(params)
        for step in action.primitives:
            for arg in step.args:
                if not isinstance(arg, HeaderArg | ObjectArg):
                    for part in walk(arg):
                        if isinstance(part, Param):
                            uses[part.index] += 1
        sources = list(params)
        for index, count in enumerate(uses):
            if count > 1 and not params[index].isdigit():
                self._writer.line(f"param{index} = {params[index]}")
                sources[index] = f"param{index}"
        return sources

    def _jumping(self, steps: Sequence[Primitive]) -> None:
        end = len(steps)

        def following(index: int) -> Sequence[int | None]:
            step = steps[index]
            ways = [index + 1]
            if step.op.startswith("_jump"):
                target = step.args[-1]
                assert isinstance(target, Const)
                ways = [target.value] if step.op == "_jump" else [index + 1, target.value]
            return [way if way < end else None for way in ways]

        if any(step.op == "exit" for step in steps):
            self._writer.line("leaving = 0")
        if any(way is not None and way <= index for index in range(end) for way in following(index)):
            self._looping(steps, following)
            return
        graph: Graph[int] = Graph(0, following, "step")

        def emit(index: int, follow: Callable[[int | None], None]) -> None:
            step = steps[index]
            if step.op != "_jump_if_zero":
                if step.op != "_jump":
                    self.primitive(step)
                return
            onward, target = following(index)
            if onward == target:
                return
            test = step.args[0]
            assert not isinstance(test, HeaderArg | ObjectArg)
            with self._writer.block(f"if {self._expressions.condition(test)}"):
                follow(onward)
            with self._writer.block("else"):
                follow(target)

        graph.write(self._writer, emit)

    def _looping(self, steps: Sequence[Primitive], following: Callable[[int], Sequence[int | None]]) -> None:
        """Write an action that jumps back as a loop over its numbered steps."""
        self._writer.line("step = 0")
        with self._writer.block("while step >= 0"):
            for index, step in enumerate(steps):
                ways = [-1 if way is None else way for way in following(index)]
                with self._writer.block(f"{'elif' if index else 'if'} step == {index}"):
                    if step.op == "_jump_if_zero":
                        test = step.args[0]
                        assert not isinstance(test, HeaderArg | ObjectArg)
                        condition = self._expressions.condition(test)
                        self._writer.line(f"step = {ways[0]} if {condition} else {ways[1]}")
                        continue
                    if step.op != "_jump":
                        self.primitive(step)
                    self._writer.line(f"step = {ways[0]}")

    def primitive(self, step: Primitive) -> None:
        """Write one primitive other than a jump."""
        writers: dict[str, Callable[[Sequence[Argument]], None]] = {
            "assign": self._assign,
            "assign_header": self._assign_header,
            "add_header": self._add_header,
            "remove_header": self._remove_header,
            "mark_to_drop": self._mark_to_drop,
            "drop": self._drop,
            "modify_field_with_hash_based_offset": self._hash,
            "modify_field_rng_uniform": self._random,
            "count": self._count,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "exit": self._exit,
        }
        if step.op in writers:
            writers[step.op](step.args)

    def set_field(self, ref: FieldRef, code: Code) -> None:
        """Write the assignment of a value to a field."""
        item = self._ir.headers[ref.header].fields[ref.field]
        value = self._expressions.assigned(code, item.width, item.signed)
        self._writer.line(f"{self._writer.store(self._layout.variable(ref.header, ref.field))} = {value}")
        self.mark_dirty(ref.header)

    def mark_dirty(self, header: str) -> None:
        """Note that a header no longer equals its bytes in the frame."""
        if self._layout.uses[header].extracted:
            self._writer.line(f"{self._writer.store(self._layout.dirty(header))} = 1")

    def _value(self, arg: Argument) -> Code:
        assert not isinstance(arg, HeaderArg | ObjectArg)
        return self._expressions.integer(arg)

    def _assign(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, FieldRef)
        self.set_field(target, self._value(args[1]))

    def _assign_header(self, args: Sequence[Argument]) -> None:
        target, source = args
        assert isinstance(target, HeaderArg)
        assert isinstance(source, HeaderArg)
        valid = self._writer.store(self._layout.valid(target.header))
        self._writer.line(f"{valid} = {self._writer.load(self._layout.valid(source.header))}")
        with self._writer.block(f"if {valid}"):
            for name in self._ir.headers[target.header].fields:
                self.set_field(
                    FieldRef(target.header, name), self._expressions.field(FieldRef(source.header, name))
                )

    def _add_header(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, HeaderArg)
        use = self._layout.uses[target.header]
        if use.header.metadata:
            return
        valid = self._layout.valid(target.header)
        with self._writer.block(f"if not {self._writer.load(valid)}"):
            self._writer.line(f"{self._writer.store(valid)} = 1")
            self._packing.reset(use)
            self.mark_dirty(target.header)
            self._change_length("+", use.header.size)

    def _remove_header(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, HeaderArg)
        use = self._layout.uses[target.header]
        if use.header.metadata:
            return
        valid = self._layout.valid(target.header)
        if not self.track_length:
            self._writer.line(f"{self._writer.store(valid)} = 0")
            return
        with self._writer.block(f"if {self._writer.load(valid)}"):
            self._writer.line(f"{self._writer.store(valid)} = 0")
            self._change_length("-", use.header.size)

    def _change_length(self, sign: str, size: int) -> None:
        if self.track_length:
            self._writer.line(f"{self._writer.store('packet_length')} {sign}= {size}")
            self._writer.load("packet_length")

    def _mark_to_drop(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, HeaderArg)
        self._set_drop(target.header)

    def _drop(self, args: Sequence[Argument]) -> None:
        self._set_drop("standard_metadata")

    def _set_drop(self, header: str) -> None:
        self._writer.line(f"{self._writer.store(self._layout.variable(header, 'egress_spec'))} = DROP")
        if "mcast_grp" in self._ir.headers[header].fields:
            self._writer.line(f"{self._writer.store(self._layout.variable(header, 'mcast_grp'))} = 0")

    def _hash(self, args: Sequence[Argument]) -> None:
        target, calculation = args[0], args[2]
        assert isinstance(target, FieldRef)
        assert isinstance(calculation, ObjectArg)
        base, size = self._value(args[1]), self._value(args[3])
        result = self._packing.calculate(calculation.name)
        greatest = (1 << self._packing.hash_bits(calculation.name)) - 1
        if size.low is None or size.low != size.high:
            result = Code(f"({result.text} % ({size.text} & {hex(_UINT64)} or 1))", 0, greatest)
        elif size.low <= greatest:
            modulus = size.low or 1
            result = Code(f"({result.text} % {modulus})", 0, modulus - 1)
        if base.low == base.high == 0:
            self.set_field(target, result)
        else:
            self.set_field(target, Code(f"(({base.text} + {result.text}) & {hex(_UINT64)})", 0, _UINT64))

    def _random(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, FieldRef)
        low, high = self._value(args[1]), self._value(args[2])
        if isinstance(args[1], Const) and isinstance(args[2], Const):
            bounds = (args[1].value, args[2].value)
            if bounds[0] <= bounds[1]:
                self.set_field(target, Code(f"uniform({low.text}, {high.text})", *bounds))
            return
        with self._writer.block(f"if {low.text} <= {high.text}"):
            self.set_field(target, Code(f"uniform({low.text}, {high.text})", None, None))

    def _count(self, args: Sequence[Argument]) -> None:
        counter = args[0]
        assert isinstance(counter, ObjectArg)
        number = list(self._ir.counters).index(counter.name)
        index = self._value(args[1])
        self._writer.line(f"index = {index.text}")
        head = self._bounds(index, self._ir.counters[counter.name])
        lines = (f"packets{number}[index] += 1", f"bytes{number}[index] += length")
        self._writer.load("length")
        if head is None:
            for line in lines:
                self._writer.line(line)
        else:
            with self._writer.block(head):
                for line in lines:
                    self._writer.line(line)

    def _register_read(self, args: Sequence[Argument]) -> None:
        target, register = args[0], args[1]
        assert isinstance(target, FieldRef)
        assert isinstance(register, ObjectArg)
        size, width = self._ir.registers[register.name]
        index = self._value(args[2])
        cell = f"register{list(self._ir.registers).index(register.name)}[index]"
        self._writer.line(f"index = {index.text}")
        head = self._bounds(index, size) or "if True"
        with self._writer.block(head):
            self.set_field(target, Code(cell, 0, (1 << width) - 1))

    def _register_write(self, args: Sequence[Argument]) -> None:
        register = args[0]
        assert isinstance(register, ObjectArg)
        size, width = self._ir.registers[register.name]
        index = self._value(args[1])
        value = self._expressions.assigned(self._value(args[2]), width, False)
        self._writer.line(f"index = {index.text}")
        head = self._bounds(index, size) or "if True"
        with self._writer.block(head):
            number = list(self._ir.registers).index(register.name)
            self._writer.line(f"register{number}[index] = {value}")

    @staticmethod
    def _bounds(index: Code, size: int) -> str | None:
        """The test an index needs (BMv2's debug build leaves arrays alone beyond their end)."""
        return None if index.fits(0, size - 1) else f"if 0 <= index < {size}"

    def _exit(self, args: Sequence[Argument]) -> None:
        # BMv2 ends the pipeline after the action, whose further primitives still run.
        self._writer.line("leaving = 1")
