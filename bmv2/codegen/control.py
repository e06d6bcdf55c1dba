# SPDX-License-Identifier: Apache-2.0
"""Pipelines as Python source: table lookups, the actions written in place, conditionals as branches."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Conditional, FieldRef, Ir, KeyField, Pipeline, Table
from ..tables import FIRST_PARAM, NO_ACTION, SELECT
from .actions import Actions
from .expression import Code
from .layout import has_exit
from .steps import StepWriter
from .writer import ControlFlowGraph

Follow = Callable[[str | None], None]


class ControlWriter:
    """Writes a pipeline into one function."""

    def __init__(self, steps: StepWriter, actions: Actions) -> None:
        self._steps = steps
        self._layout = steps.layout
        self._ir: Ir = steps.ir
        self._writer = steps.writer
        self._expressions = steps.expressions
        self._actions = actions
        self._numbers = {table.name: number for number, table in enumerate(self._ir.tables())}
        self._graph: ControlFlowGraph[str] = ControlFlowGraph(None, lambda _: ())

    def write(self, pipeline: Pipeline) -> None:
        """Write it; `exit` leaves through the `break` of a loop that turns once."""
        graph: ControlFlowGraph[str] = ControlFlowGraph(pipeline.first, pipeline.successors)
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
            self._lookup(table, number)
        self._entry_state(table)
        self._select(table)
        if table.hit_miss is not None and not self._graph.single(table.name):
            self._writer.line("hit = entry[1]")
        self._dispatch(table, follow)
        if table.hit_miss is not None and not self._graph.single(table.name):
            with self._writer.block("if hit"):
                follow(table.hit_miss[0])
            with self._writer.block("else"):
                follow(table.hit_miss[1])

    def _lookup(self, table: Table, number: int) -> None:
        """Write the lookup of a key; that of many fields is not put together for an empty table."""
        key = self._key(table)
        if table.kind != "exact":
            self._writer.line(f"key = {key}")
            self._writer.line(f"entry = get{number}(key)")
            with self._writer.block("if entry is None"):
                self._writer.line(f"entry = lookup{number}(key)")
            return
        found = f"get{number}({key})"
        self._writer.line(
            f"entry = {found} if fast{number} else None" if len(table.key) > 1 else f"entry = {found}"
        )
        with self._writer.block("if entry is None"):
            self._writer.line(f"entry = default{number}[0]")

    def _entry_state(self, table: Table) -> None:
        """Write what a hit does to the entry's own counter, age and meter, before the action runs."""
        if not table.stateful:
            return
        with self._writer.block("if entry[1]"):
            self._writer.line("state = entry[2]")
            if table.direct_counter:
                self._writer.load("length")
                self._writer.line("state[0] += 1")
                self._writer.line("state[1] += length")
            if table.timeout:
                self._writer.line("state[2] = now")
            target = None if table.direct_meter is None else self._ir.meters[table.direct_meter].target
            if target is not None:
                self._writer.load("length")
                self._steps.set_field(target, Code("state[3].execute(length, now)", 0, 2))

    def _select(self, table: Table) -> None:
        """Write the choice of a group's member by the selector's hash, of which BMv2 keeps 32 bits."""
        selector = None if table.profile is None else self._ir.profiles[table.profile].selector
        if selector is None:
            return
        with self._writer.block(f"if entry[0] == {SELECT}"):
            self._writer.line(f"hashed = {self._steps.packing.calculate(selector).text} & 0xffffffff")
            self._writer.line(f"members = entry[{FIRST_PARAM}]")
            # An empty group is a hit without an action.
            empty = f"({NO_ACTION}, 1, None)"
            self._writer.line(f"entry = members[hashed % len(members)] if members else {empty}")

    def _matters(self, table: Table) -> bool:
        """Whether applying the table can have any effect."""
        busy = any(action.primitives for action in table.actions.values())
        return busy or table.stateful or not self._graph.single(table.name)

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
        missing = table.default is None or table.profile is not None
        if missing:
            choices.append((NO_ACTION, None))
        if not branching:
            choices = [choice for choice in choices if choice[1] and table.actions[choice[1]].primitives]
        complete = len(choices) == len(table.actions) + missing
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
            lines.append(f"fast{number} = tables[{name}].fast")
            lines.append(f"get{number} = fast{number}.get")
            lines.append(f"lookup{number} = tables[{name}].lookup")
    for number, name in enumerate(ir.counters):
        lines.append(f"packets{number} = counters[{name!r}].packets")
        lines.append(f"bytes{number} = counters[{name!r}].bytes")
    lines += [f"meter{number} = meters[{name!r}]" for number, name in enumerate(ir.meters)]
    for number, (name, mask) in enumerate(ir.set_views()):
        lines.append(f"vset{number} = value_sets[{name!r}].view({mask})")
    lines += [f"register{number} = registers[{name!r}]" for number, name in enumerate(ir.registers)]
    return lines
