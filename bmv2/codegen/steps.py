# SPDX-License-Identifier: Apache-2.0
"""Primitives on fields and headers as Python source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..ir import Argument, FieldRef, HeaderArg, Ir, ObjectArg
from ..structures import length_of
from .expression import Code, Expressions
from .layout import HeaderUse, Layout
from .packing import Packing
from .writer import Writer

Step = Callable[[Sequence[Argument]], None]


class StepWriter:
    """Writes what changes the packet itself into one function."""

    def __init__(self, layout: Layout, writer: Writer, expressions: Expressions, packing: Packing) -> None:
        self.layout = layout
        self.ir: Ir = layout.ir
        self.writer = writer
        self.expressions = expressions
        self.packing = packing
        self.track_length = False

    def writers(self) -> Mapping[str, Step]:
        """The primitives written here."""
        return {
            "assign": self._assign,
            "assign_header": self._assign_header,
            "add_header": self._add_header,
            "remove_header": self._remove_header,
            "invalidate": self._invalidate,
            "swap_header": self._swap_header,
            "mark_to_drop": self._mark_to_drop,
            "drop": self._drop,
        }

    def set_field(self, ref: FieldRef, code: Code) -> None:
        """Write the assignment of a value to a field."""
        header = self.ir.headers[ref.header]
        item = header.fields[ref.field]
        signed = item.signed and ref.field != header.varbit
        value = self.expressions.assigned(code, item.width, signed)
        self.writer.line(f"{self.writer.store(self.layout.variable(ref.header, ref.field))} = {value}")
        self.mark_dirty(ref.header)

    def mark_dirty(self, header: str) -> None:
        """Note that a header no longer equals its bytes in the frame."""
        if self.layout.uses[header].extracted:
            self.writer.line(f"{self.writer.store(self.layout.dirty(header))} = 1")

    def mark_valid(self, header: str) -> None:
        """Make a header valid; the other headers of its union no longer are."""
        names = [self.writer.store(self.layout.valid(header))]
        self.writer.line(f"{names[0]} = 1")
        others = [self.writer.store(self.layout.valid(name)) for name in self.ir.siblings.get(header, ())]
        if others:
            self.writer.line(f"{' = '.join(others)} = 0")

    def value(self, arg: Argument) -> Code:
        """An integer argument."""
        assert not isinstance(arg, HeaderArg | ObjectArg)
        return self.expressions.integer(arg)

    def _assign(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, FieldRef)
        self.set_field(target, self.value(args[1]))

    def _assign_header(self, args: Sequence[Argument]) -> None:
        target, source = args
        assert isinstance(target, HeaderArg)
        assert isinstance(source, HeaderArg)
        valid = self.writer.store(self.layout.valid(target.header))
        if not self.ir.siblings.get(target.header):
            self.writer.line(f"{valid} = {self._validity(source.header)}")
        else:
            with self.writer.block(f"if {self._validity(source.header)}"):
                self.mark_valid(target.header)
            with self.writer.block("else"):
                self.writer.line(f"{valid} = 0")
        header = self.ir.headers[target.header]
        with self.writer.block(f"if {valid}"):
            for name in header.fields:
                self.set_field(
                    FieldRef(target.header, name), self.expressions.field(FieldRef(source.header, name))
                )
            if header.varbit is not None:
                self.set_field(length_of(target.header), self.expressions.field(length_of(source.header)))

    def _validity(self, header: str) -> str:
        if self.ir.headers[header].metadata:
            return "1"
        return self.writer.load(self.layout.valid(header))

    def _use(self, arg: Argument) -> HeaderUse | None:
        """What is known of the header a primitive is called on; metadata is left alone."""
        assert isinstance(arg, HeaderArg)
        use = self.layout.uses[arg.header]
        return None if use.header.metadata else use

    def _add_header(self, args: Sequence[Argument]) -> None:
        use = self._use(args[0])
        if use is None:
            return
        name = use.header.name
        with self.writer.block(f"if not {self.writer.load(self.layout.valid(name))}"):
            self.mark_valid(name)
            self.packing.reset(use)
            self.mark_dirty(name)
            self._change_length("+", use)

    def _remove_header(self, args: Sequence[Argument]) -> None:
        use = self._use(args[0])
        if use is None:
            return
        valid = self.layout.valid(use.header.name)
        if not self.track_length:
            self.writer.line(f"{self.writer.store(valid)} = 0")
            return
        with self.writer.block(f"if {self.writer.load(valid)}"):
            self.writer.line(f"{self.writer.store(valid)} = 0")
            self._change_length("-", use)

    def _invalidate(self, args: Sequence[Argument]) -> None:
        use = self._use(args[0])
        if use is not None:
            self.writer.line(f"{self.writer.store(self.layout.valid(use.header.name))} = 0")

    def _swap_header(self, args: Sequence[Argument]) -> None:
        uses = [use for use in map(self._use, args) if use is not None]
        if len(uses) == len(args):
            self.packing.swap(*uses)

    def _change_length(self, sign: str, use: HeaderUse) -> None:
        if self.track_length:
            size = str(use.header.size)
            if use.header.varbit is not None:
                bits = self.expressions.field(length_of(use.header.name)).text
                size = f"{size} + ({bits} >> 3)"
            self.writer.line(f"{self.writer.store('packet_length')} {sign}= {size}")
            self.writer.load("packet_length")

    def _mark_to_drop(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, HeaderArg)
        self._set_drop(target.header)

    def _drop(self, args: Sequence[Argument]) -> None:
        self._set_drop("standard_metadata")

    def _set_drop(self, header: str) -> None:
        self.writer.line(f"{self.writer.store(self.layout.variable(header, 'egress_spec'))} = DROP")
        if "mcast_grp" in self.ir.headers[header].fields:
            self.writer.line(f"{self.writer.store(self.layout.variable(header, 'mcast_grp'))} = 0")
