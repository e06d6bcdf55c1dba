# SPDX-License-Identifier: Apache-2.0
"""One generated function: its writers, and the variables the target itself sets in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir import FieldRef
from ..structures import REQUESTS, request
from .actions import Actions
from .control import ControlWriter
from .expression import Expressions
from .layout import Layout
from .packing import Packing, Structs
from .parser import ParserWriter
from .steps import StepWriter
from .writer import Writer


class Function:
    """The writers of one function, which share its lines and variables."""

    def __init__(self, layout: Layout, structs: Structs) -> None:
        self.layout = layout
        self.ir = layout.ir
        self.writer = Writer()
        self.expressions = Expressions(layout, self.writer)
        self.packing = Packing(layout, self.writer, self.expressions, structs)
        self.steps = StepWriter(layout, self.writer, self.expressions, self.packing)
        self.actions = Actions(self.steps)
        self.control = ControlWriter(self.steps, self.actions)

    def write_parser(self) -> None:
        """Write the parser; afterwards `payload` and `parser_error` are set."""
        ParserWriter(self.steps, self.actions).write()

    def variable(self, ref: FieldRef) -> str:
        """The variable of a field."""
        return self.layout.variable(ref.header, ref.field)

    def intrinsic(self, name: str) -> str | None:
        """The variable of a field the target knows ("intrinsic_metadata.priority"), if there is one."""
        ref = self.ir.intrinsic(name)
        return None if ref is None else self.variable(ref)

    def masked(self, given: Mapping[str, str]) -> dict[str, str]:
        """Sources of values by the variable of the field the target knows by that name, as wide as it."""
        result = {}
        for name, text in given.items():
            ref = self.ir.intrinsic(name)
            if ref is not None:
                result[self.variable(ref)] = f"({text}) & {hex((1 << self.ir.width(ref)) - 1)}"
        return result

    def initial(self, used: Iterable[str], given: Iterable[str]) -> list[str]:
        """The variables that begin with their first value, as parameters with defaults.

        No caller passes them: Python fills in defaults faster than it runs assignments.
        """
        first = self.layout.initial
        return [f"{name}={first[name]}" for name in sorted(set(used) - set(given)) if name in first]

    def asks(self, name: str) -> bool:
        """Whether the function can make this request of the switch."""
        return self.variable(request(name)) in self.writer.stores

    def request_variables(self) -> set[str]:
        """The variables of all requests."""
        return {self.layout.variable(REQUESTS, name) for name in self.ir.headers[REQUESTS].fields}

    def kept(self, number: str) -> str:
        """Source of the values of the field list with this number, as a tuple."""
        text = "()"
        for identity, fields in self.ir.field_lists.items():
            if fields:
                values = "".join(f"{self.writer.load(self.variable(ref))}, " for ref in fields)
                text = f"({values}) if {number} == {identity} else {text}"
        return text

    def restore(self, number: str) -> list[str]:
        """Lines that give the fields of a list the values in `kept`."""
        lines = []
        for identity, fields in self.ir.field_lists.items():
            if fields:
                names = "".join(f"{self.writer.store(self.variable(ref))}, " for ref in fields)
                lines += [f"if {number} == {identity}:", f"    {names}= kept"]
        return lines
