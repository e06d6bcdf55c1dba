# SPDX-License-Identifier: Apache-2.0
"""The generated module: ingress (parser, checks, pipeline) and egress (pipeline, sums, deparser).

What a packet's ingress leaves for its egress crosses the queue as one tuple: the frame, then exactly the
variables that egress reads and ingress may have set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ..errors import ProgramError
from ..ir import Checksum, Ir
from . import runtime
from .actions import Actions
from .control import ControlWriter, lines_of_bindings
from .expression import Expressions
from .layout import Layout
from .packing import Packing, Structs
from .parser import ParserWriter
from .writer import Writer

INSTANCE_REPLICATION = 5


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """The generated source, compiled; `bind` in it makes the two functions for one switch."""

    source: str
    code: CodeType

    def bind(self, **environment: Any) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The functions `ingress`, `egress` and `replica` over one switch's tables, counters and hooks."""
        namespace: dict[str, Any] = dict(vars(runtime))
        exec(self.code, namespace)
        functions: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
        functions = namespace["bind"](**environment)
        return functions


class _Function:
    """The writers of one function."""

    def __init__(self, layout: Layout, structs: Structs) -> None:
        self.layout = layout
        self.writer = Writer()
        self.expressions = Expressions(layout, self.writer)
        self.packing = Packing(layout, self.writer, self.expressions, structs)
        self.actions = Actions(layout, self.writer, self.expressions, self.packing)
        self.control = ControlWriter(layout, self.writer, self.expressions, self.actions)


class _Generator:
    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.layout = Layout(ir)
        self.structs = Structs()
        self.ingress = _Function(self.layout, self.structs)
        self.egress = _Function(self.layout, self.structs)

    def source(self) -> str:
        self._write_egress()
        self._write_ingress()
        state = self._state()
        ingress = self._ingress_head(state) + self.ingress.writer.lines + self._ingress_tail(state)
        egress = self._egress_head(state) + self.egress.writer.lines
        lines = [
            *self.structs.definitions(),
            "",
            "",
            "def bind(tables, counters, registers, rng, DROP, enqueue, multicast):",
            *_indented(lines_of_bindings(self.ir)),
            *_indented(["uniform = uniform_of(rng)", ""]),
            *_indented(["def ingress(port, frame, length, now):", *_indented(ingress), ""]),
            *_indented(
                [
                    "def egress(state, port, qid, enq_time, enq_depth, now, depth):",
                    *_indented(egress),
                    "",
                ]
            ),
            *_indented(["def replica(state, rid):", *_indented(self._replica(state)), ""]),
            *_indented(["return ingress, egress, replica"]),
        ]
        return "\n".join(lines) + "\n"

    def _intrinsic(self, name: str) -> str | None:
        ref = self.ir.intrinsic(name)
        return None if ref is None else self.layout.variable(ref.header, ref.field)

    def _write_egress(self) -> None:
        writer = self.egress.writer
        spec = self._intrinsic("standard_metadata.egress_spec")
        self.egress.actions.track_length = self.ingress.actions.track_length = self._length_read()
        self.egress.control.write(self.ir.egress)
        if spec in writer.stores:
            with writer.block(f"if {writer.load(spec)} == DROP"):
                writer.line("return None")
        for checksum in self.ir.checksums:
            if checksum.update:
                self._update(checksum)
        self._deparse()

    def _length_read(self) -> bool:
        """Whether egress reads packet_length, which add_header and remove_header change."""
        name = self._intrinsic("standard_metadata.packet_length")
        trial = _Function(self.layout, Structs())
        trial.control.write(self.ir.egress)
        return name in trial.writer.loads

    def _update(self, checksum: Checksum) -> None:
        writer, target = self.egress.writer, checksum.target
        item = self.ir.headers[target.header].fields[target.field]

        def body() -> None:
            name = self.layout.variable(target.header, target.field)
            result = self.egress.packing.calculate(checksum.calculation)
            writer.line(f"sum = {self.egress.expressions.assigned(result, item.width, item.signed)}")
            with writer.block(f"if sum != {writer.load(name)}"):
                writer.line(f"{writer.store(name)} = sum")
                self.egress.actions.mark_dirty(target.header)

        if checksum.condition is None:
            body()
        else:
            with writer.block(f"if {self.egress.expressions.condition(checksum.condition)}"):
                body()

    def _deparse(self) -> None:
        writer, layout = self.egress.writer, self.layout
        pieces = []
        for name in self.ir.deparser:
            use = layout.uses[name]
            if not use.emitted:
                continue
            piece = ""
            if use.extracted:
                start = writer.load(layout.start(name))
                piece = f"frame[{start}:{start} + {use.header.size}]"
            if use.mutable:
                encoded = self.egress.packing.encode(use)
                dirty = writer.load(layout.dirty(name)) if use.extracted else ""
                piece = f"{encoded} if {dirty} else {piece}" if use.extracted else encoded
            pieces.append(f"({piece}) if {writer.load(layout.valid(name))} else EMPTY")
        pieces.append(f"frame[{writer.load('payload')}:]")
        writer.line("return join((")
        for piece in pieces:
            writer.line(f"    {piece},")
        writer.line("))")

    def _write_ingress(self) -> None:
        ingress, writer = self.ingress, self.ingress.writer
        ParserWriter(self.layout, writer, ingress.expressions, ingress.packing, ingress.actions).write()
        error = self._intrinsic("standard_metadata.parser_error")
        if error is not None:
            writer.line(f"{writer.store(error)} = parser_error")
        flag = self._intrinsic("standard_metadata.checksum_error")
        for checksum in self.ir.checksums:
            if checksum.verify and flag is not None:
                self._verify(checksum, flag)
        ingress.control.write(self.ir.ingress)

    def _verify(self, checksum: Checksum, flag: str) -> None:
        writer, target = self.ingress.writer, checksum.target
        tests = []
        if not self.ir.headers[target.header].metadata:
            tests.append(writer.load(self.layout.valid(target.header)))
        if checksum.condition is not None:
            condition = self.ingress.expressions.condition(checksum.condition)
            tests += [condition] if condition not in tests else []
        result = self.ingress.packing.calculate(checksum.calculation).text
        tests.append(f"{result} != {self.ingress.expressions.unsigned(target).text}")
        with writer.block(f"if {' and '.join(tests)}"):
            writer.line(f"{writer.store(flag)} = 1")

    def _egress_given(self) -> dict[str, str]:
        """The variables the target sets when egress begins, with the sources of their values."""
        given = {
            "standard_metadata.egress_port": "port",
            "standard_metadata.egress_spec": "DROP + 1",
            "standard_metadata.packet_length": "packet_length",
            "intrinsic_metadata.egress_global_timestamp": "now",
            "queueing_metadata.enq_timestamp": "enq_time",
            "queueing_metadata.enq_qdepth": "enq_depth",
            "queueing_metadata.deq_timedelta": "now - enq_time",
            "queueing_metadata.deq_qdepth": "depth",
            "queueing_metadata.qid": "qid",
        }
        return self._masked(given)

    def _ingress_given(self) -> dict[str, str]:
        """The variables the target sets when a packet arrives."""
        given = {
            "standard_metadata.ingress_port": "port",
            "standard_metadata.packet_length": "length",
            "intrinsic_metadata.ingress_global_timestamp": "now",
        }
        return self._masked(given)

    def _masked(self, given: dict[str, str]) -> dict[str, str]:
        result = {}
        for name, text in given.items():
            ref = self.ir.intrinsic(name)
            if ref is not None:
                mask = hex((1 << self.ir.width(ref)) - 1)
                result[self.layout.variable(ref.header, ref.field)] = f"({text}) & {mask}"
        return result

    def _state(self) -> list[str]:
        """The variables that cross the queue besides the frame, in order."""
        needed = set(self.egress.writer.loads)
        given = self._egress_given()
        length = self._intrinsic("standard_metadata.packet_length")
        if length in needed:
            needed.add("packet_length")
        set_before = self.ingress.writer.stores | set(self._ingress_given()) | {"length", "packet_length"}
        for name in ("standard_metadata.instance_type", "intrinsic_metadata.egress_rid"):
            variable = self._intrinsic(name)
            set_before |= set() if variable is None else {variable}
        return sorted((needed & set_before) - set(given))

    def _ingress_head(self, state: Iterable[str]) -> list[str]:
        used = self.ingress.writer.loads | set(state) | self._routing()
        lines = [f"{name} = {text}" for name, text in sorted(self._ingress_given().items()) if name in used]
        if "packet_length" in used:
            lines.append("packet_length = length")
        given = set(self._ingress_given())
        return lines + self._initial(used, given)

    def _initial(self, used: set[str], given: set[str]) -> list[str]:
        """Lines that give variables their first values, as chains."""
        lines = []
        for value in ("0", "None"):
            names = sorted(n for n in used if self.layout.initial.get(n) == value and n not in given)
            if names:
                lines.append(" = ".join([*names, value]))
        return lines

    def _routing(self) -> set[str]:
        """The variables that say where a packet goes after ingress."""
        names = (
            "standard_metadata.egress_spec",
            "intrinsic_metadata.priority",
            "intrinsic_metadata.mcast_grp",
        )
        return {variable for variable in map(self._intrinsic, names) if variable is not None}

    def _ingress_tail(self, state: list[str]) -> list[str]:
        spec = self._intrinsic("standard_metadata.egress_spec")
        priority = self._intrinsic("intrinsic_metadata.priority") or "0"
        group = self._intrinsic("intrinsic_metadata.mcast_grp")
        kind = self._intrinsic("standard_metadata.instance_type")
        packed = f"({', '.join(['frame', *state])},)"
        lines = []
        if group is not None and group in self.ingress.writer.stores:
            lines.append(f"if {group}:")
            if kind in state:
                lines.append(f"    {kind} = {INSTANCE_REPLICATION}")
            lines += [f"    multicast({group}, {priority}, {packed})", "    return"]
        lines += [f"if {spec} == DROP:", "    return"]
        if kind in state:
            lines.append(f"{kind} = 0")
        lines.append(f"enqueue({spec}, {priority}, {packed})")
        return lines

    def _egress_head(self, state: list[str]) -> list[str]:
        writer, given = self.egress.writer, self._egress_given()
        lines = [f"{', '.join(['frame', *state])}, = state"]
        lines += [f"{name} = {text}" for name, text in sorted(given.items()) if name in writer.loads]
        known = set(state) | set(given)
        return lines + self._initial(writer.loads, known)

    def _replica(self, state: list[str]) -> list[str]:
        rid = self.ir.intrinsic("intrinsic_metadata.egress_rid")
        if rid is None:
            return ["return state"]
        name = self.layout.variable(rid.header, rid.field)
        if name not in state:
            return ["return state"]
        index = state.index(name) + 1
        mask = hex((1 << self.ir.width(rid)) - 1)
        return [f"return (*state[:{index}], rid & {mask}, *state[{index + 1}:])"]


def _indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line if line else line for line in lines]


def generate(ir: Ir) -> GeneratedProgram:
    """Write and compile a program's functions; ProgramError where Python cannot compile them."""
    try:
        source = _Generator(ir).source()
        return GeneratedProgram(source, compile(source, "<p4 program>", "exec"))
    except (RecursionError, SyntaxError) as error:
        # Python's own bounds: 200 nested parentheses, 100 levels of indentation.
        raise ProgramError(f"program: an expression is nested too deeply to be compiled ({error})") from None
