# SPDX-License-Identifier: Apache-2.0
"""Pipelines as Python source: table lookups, the actions written in place, conditionals as branches."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Conditional, FieldRef, Ir, KeyField, Pipeline, Table
from ..tables import FIRST_PARAM, NO_ACTION
from .actions import Actions
from .expression import Expressions
from .layout import Layout, has_exit
from .writer import Graph, Writer

Follow = Callable[[str | None], None]


class ControlWriter:
    """Writes a pipeline into one function."""

    def __init__(self, layout: Layout, writer: Writer, expressions: Expressions, actions: Actions) -> None:
        self._layout = layout
        self._ir: Ir = layout.ir
        self._writer = writer
        self._expressions = expressions
        self._actions = actions
        self._numbers = {table.name: number for number, table in enumerate(self._ir.tables())}
        self._graph: Graph[str] = Graph(None, lambda _: ())

    def write(self, pipeline: Pipeline) -> None:
        """Write it; `exit` leaves through the `break` of a loop that turns once."""
        graph: Graph[str] = Graph(pipeline.first, pipeline.successors)
        self._graph = graph
        tables = [node for node in pipeline.nodes.values() if isinstance(node, Table)]

        def emit(name: str, follow: Follow) -> None:
            node = pipeline.nodes[name]
            if isinstance(node, Conditional):
                self._conditional(node, follow)
            else:
                self._table(node, follow)

        if any(has_exit(action) for table in tables for action in table.actions.values()):
            with self._writer.block("while True"):
                graph.write(self._writer, emit)
                self._writer.line("break")
        else:
            graph.write(self._writer, emit)

    def _conditional(self, node: Conditional, follow: Follow) -> None:
        if node.if_true == node.if_false:
            return
        with self._writer.block(f"if {self._expressions.condition(node.condition)}"):
            follow(node.if_true)
        with self._writer.block("else"):
            follow(node.if_false)

    def _table(self, table: Table, follow: Follow) -> None:
        default = table.default
        if not table.key and default is not None and default.const_entry:
            self._actions.call(table.actions[default.action], [str(value) for value in default.params])
            self._next(
                table, table.hit_miss[1] if table.hit_miss else table.next_nodes[default.action], follow
            )
            return
        if not self._matters(table):
            return
        number = self._numbers[table.name]
        if not table.key:
            self._writer.line(f"entry = default{number}[0]")
        else:
            self._writer.line(f"key = {self._key(table)}")
            self._writer.line(f"entry = get{number}(key)")
            with self._writer.block("if entry is None"):
                exact = table.kind == "exact"
                self._writer.line(f"entry = default{number}[0]" if exact else f"entry = lookup{number}(key)")
        if table.direct_counter:
            self._writer.load("length")
            with self._writer.block("if entry[1]"):
                self._writer.line("counter = entry[2]")
                self._writer.line("counter[0] += 1")
                self._writer.line("counter[1] += length")
        if table.hit_miss is not None and not self._graph.single(table.name):
            self._writer.line("hit = entry[1]")
        self._dispatch(table, follow)
        if table.hit_miss is not None and not self._graph.single(table.name):
            with self._writer.block("if hit"):
                follow(table.hit_miss[0])
            with self._writer.block("else"):
                follow(table.hit_miss[1])

    def _matters(self, table: Table) -> bool:
        """Whether applying the table can have any effect."""
        busy = any(action.primitives for action in table.actions.values())
        return busy or table.direct_counter or not self._graph.single(table.name)

    def _next(self, table: Table, way: str | None, follow: Follow) -> None:
        if not self._graph.single(table.name):
            follow(way)

    def _key(self, table: Table) -> str:
        parts = [self._key_part(part) for part in table.key]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def _key_part(self, part: KeyField) -> str:
        text = self._expressions.unsigned(part.source).text
        if part.mask is not None:
            text = f"({text} & {hex(part.mask)})"
        if isinstance(part.source, FieldRef) and self._layout.needs_guard(part.source):
            # A table reads the fields of an invalid header as zero.
            text = f"({text} if {self._writer.load(self._layout.valid(part.source.header))} else 0)"
        return text

    def _dispatch(self, table: Table, follow: Follow) -> None:
        """Choose the action's body by its number in the table, and its way on where actions differ in it."""
        branching = table.hit_miss is None and not self._graph.single(table.name)
        choices: list[tuple[int, str | None]] = [(i, name) for i, name in enumerate(table.actions)]
        if table.default is None:
            choices.append((NO_ACTION, None))
        if not branching:
            choices = [choice for choice in choices if choice[1] and table.actions[choice[1]].primitives]
        complete = len(choices) == len(table.actions) + (table.default is None)
        if complete and len(choices) == 1:
            self._branch(table, choices[0][1], branching, follow)
            return
        for position, (index, name) in enumerate(choices):
            head = f"{'elif' if position else 'if'} entry[0] == {index}"
            if complete and position == len(choices) - 1:
                head = "else"
            with self._writer.block(head):
                self._branch(table, name, branching, follow)

    def _branch(self, table: Table, name: str | None, branching: bool, follow: Follow) -> None:
        if name is not None:
            action = table.actions[name]
            self._actions.call(action, [f"entry[{FIRST_PARAM + i}]" for i in range(len(action.params))])
        if branching:
            follow(table.base_next if name is None else table.next_nodes[name])


def lines_of_bindings(ir: Ir) -> list[str]:
    """The lines that bind tables, counters and registers to the names the functions use."""
    lines = []
    for number, table in enumerate(ir.tables()):
        name = repr(table.name)
        lines.append(f"default{number} = tables[{name}].default")
        if table.key:
            lines.append(f"get{number} = tables[{name}].fast.get")
            lines.append(f"lookup{number} = tables[{name}].lookup")
    for number, name in enumerate(ir.counters):
        lines.append(f"packets{number} = counters[{name!r}].packets")
        lines.append(f"bytes{number} = counters[{name!r}].bytes")
    lines += [f"register{number} = registers[{name!r}]" for number, name in enumerate(ir.registers)]
    return lines
