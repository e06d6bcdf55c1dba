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

from ..errors import P4ProgramError
from ..ir import Checksum, Ir
from ..structures import request
from . import runtime
from .control import lines_of_bindings
from .copies import (
    RECIRCULATED,
    again_lines,
    copy_lines,
    egress_clone,
    egress_twin,
    ingress_requests,
    replica_lines,
)
from .function import Function
from .layout import Layout, uses_primitive
from .packing import Structs

INSTANCE_REPLICATION = 5
_INGRESS = ("port", "frame", "length", "now", "back=None")
_EGRESS = ("state", "port", "qid", "enq_time", "enq_depth", "now", "depth")
_COPY = ("port", "frame", "length", "now", "session", "fields", "kept")
# What a switch gives the generated code besides its tables and state.
ENVIRONMENT = (
    "tables",
    "counters",
    "registers",
    "meters",
    "customs",
    "value_sets",
    "sessions",
    "rng",
    "DROP",
    "enqueue",
    "multicast",
    "clone",
    "clone_later",
    "again",
    "learn",
    "log",
    "failed",
)


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """The generated source, compiled; `bind` in it makes the two functions for one switch."""

    source: str
    code: CodeType

    def bind(self, **environment: Any) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The functions `ingress`, `egress` and `replica` over one switch's tables, state and hooks."""
        namespace: dict[str, Any] = dict(vars(runtime))
        exec(self.code, namespace)
        functions: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
        functions = namespace["bind"](**environment)
        return functions


class _Generator:
    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.layout = Layout(ir)
        self.structs = Structs()
        self.ingress = Function(self.layout, self.structs)
        self.egress = Function(self.layout, self.structs)
        self.copy = Function(self.layout, self.structs)
        self.comes_again = uses_primitive(ir, "resubmit", "recirculate")

    def source(self) -> str:
        self._write_egress()
        self._write_ingress()
        if self.ingress.asks("clone"):
            self.copy.write_parser()
        again = again_lines(self.ingress) if self.comes_again else []
        state = self._state()
        zeros, head = self._ingress_head(state)
        ingress = head + again + self.ingress.writer.lines + self._ingress_tail(state)
        egress_zeros, egress_head = self._egress_head(state)
        copy_zeros: list[str] = []
        copy = ["return None"]
        if self.ingress.asks("clone"):
            copy_zeros, copy = copy_lines(self.copy, state)
        lines = [
            *self.structs.definitions(),
            "",
            "",
            f"def bind({', '.join(ENVIRONMENT)}):",
            *_indented(lines_of_bindings(self.ir)),
            *_indented(["uniform = uniform_of(rng)", ""]),
            *_defined(["copy", *_COPY, *copy_zeros], copy),
            *_defined(["ingress", *_INGRESS, *zeros], ingress),
            *_defined(["egress", *_EGRESS, *egress_zeros], egress_head + self._egress_body(state)),
            *_defined(["replica", "state", "rid"], replica_lines(self.egress, state)),
            *_indented(["return ingress, egress, replica"]),
        ]
        return "\n".join(lines) + "\n"

    def _write_egress(self) -> None:
        writer = self.egress.writer
        spec = self.egress.intrinsic("standard_metadata.egress_spec")
        for function in (self.egress, self.ingress, self.copy):
            function.steps.track_length = self._length_read()
        self.egress.control.write(self.ir.egress)
        if self.egress.asks("clone"):
            egress_clone(self.egress)
        if spec in writer.stores:
            with writer.block(f"if {writer.load(spec)} == DROP"):
                writer.line("return None")
        for checksum in self.ir.checksums:
            if checksum.update:
                self._update(checksum)
        for step in self.ir.deparser_steps:
            self.egress.actions.primitive(step)
        self._deparse()
        self._leave()

    def _length_read(self) -> bool:
        """Whether egress reads packet_length, which add_header and remove_header change."""
        trial = Function(self.layout, Structs())
        name = trial.intrinsic("standard_metadata.packet_length")
        trial.control.write(self.ir.egress)
        return name in trial.writer.loads

    def _update(self, checksum: Checksum) -> None:
        writer, target = self.egress.writer, checksum.target
        item = self.ir.headers[target.header].fields[target.field]

        def body() -> None:
            name = self.layout.variable(target.header, target.field)
            result = self.egress.packing.calculate(self.ir.calculations[checksum.calculation])
            writer.line(f"sum = {self.egress.expressions.assigned(result, item.width, item.signed)}")
            with writer.block(f"if sum != {writer.load(name)}"):
                writer.line(f"{writer.store(name)} = sum")
                self.egress.steps.mark_dirty(target.header)

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
            if use.extracted and use.header.varbit is None:
                start = writer.load(layout.start(name))
                piece = f"frame[{start}:{start} + {use.header.size}]"
            if use.mutable:
                encoded = self.egress.packing.encode(use)
                dirty = writer.load(layout.dirty(name)) if piece else ""
                piece = f"{encoded} if {dirty} else {piece}" if piece else encoded
            pieces.append(f"({piece}) if {writer.load(layout.valid(name))} else EMPTY")
        pieces.append(f"frame[{writer.load('payload')}:]")
        whole = not self.layout.truncates and not uses_primitive(self.ir, "recirculate")
        writer.line("return join((" if whole else "out = join((")
        for piece in pieces:
            writer.line(f"    {piece},")
        writer.line("))")

    def _leave(self) -> None:
        """Write where a finished frame goes that need not just be sent."""
        writer = self.egress.writer
        round_again, limit = (self.egress.variable(request(name)) for name in ("recirculate", "truncate"))
        again = uses_primitive(self.ir, "recirculate")
        if again:
            with writer.block(f"if {writer.load(round_again)}"):
                kept = self.egress.kept(round_again)
                writer.line(f"again(0, out, {RECIRCULATED}, {round_again}, {kept})")
                writer.line("return None")
        if self.layout.truncates:
            writer.line(f"return out[:{limit} - 1] if {writer.load(limit)} else out")
        elif again:
            writer.line("return out")

    def _write_ingress(self) -> None:
        ingress, writer = self.ingress, self.ingress.writer
        ingress.write_parser()
        error = ingress.intrinsic("standard_metadata.parser_error")
        if error is not None:
            writer.line(f"{writer.store(error)} = parser_error")
        flag = ingress.intrinsic("standard_metadata.checksum_error")
        for checksum in self.ir.checksums:
            if checksum.verify and flag is not None:
                self._verify(checksum, flag)
        ingress.control.write(self.ir.ingress)
        ingress_requests(ingress)

    def _verify(self, checksum: Checksum, flag: str) -> None:
        writer, target = self.ingress.writer, checksum.target
        tests = []
        if not self.ir.headers[target.header].metadata:
            tests.append(writer.load(self.layout.valid(target.header)))
        if checksum.condition is not None:
            condition = self.ingress.expressions.condition(checksum.condition)
            tests += [condition] if condition not in tests else []
        calculation = self.ir.calculations[checksum.calculation]
        suspect = self.ingress.packing.suspect_sum(calculation, target)
        tests += [suspect] if suspect is not None else []
        result = self.ingress.packing.calculate(calculation).text
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
        return self.ingress.masked(given)

    def _ingress_given(self) -> dict[str, str]:
        """The variables the target sets when a packet arrives."""
        given = {
            "standard_metadata.ingress_port": "port",
            "standard_metadata.packet_length": "length",
            "intrinsic_metadata.ingress_global_timestamp": "now",
        }
        return self.ingress.masked(given)

    def _state(self) -> list[str]:
        """The variables that cross the queue besides the frame, in order."""
        needed = set(self.egress.writer.loads)
        given = self._egress_given()
        length = self.ingress.intrinsic("standard_metadata.packet_length")
        if length in needed:
            needed.add("packet_length")
        set_before = self.ingress.writer.stores | set(self._ingress_given()) | {"length", "packet_length"}
        for name in ("standard_metadata.instance_type", "intrinsic_metadata.egress_rid"):
            variable = self.ingress.intrinsic(name)
            set_before |= set() if variable is None else {variable}
        if self.egress.asks("clone"):
            set_before |= self.egress.writer.stores
        if self.layout.truncates:
            set_before.add(self.egress.variable(request("truncate")))
        return sorted((needed & set_before) - set(given))

    def _ingress_head(self, state: Iterable[str]) -> tuple[list[str], list[str]]:
        """The variables that begin at zero, as parameters, and the lines that give others their values."""
        used = self.ingress.writer.loads | set(state) | self._routing()
        lines = [f"{name} = {text}" for name, text in sorted(self._ingress_given().items()) if name in used]
        if "packet_length" in used:
            lines.append("packet_length = length")
        given = set(self._ingress_given())
        return self.ingress.initial(used, given), lines

    def _routing(self) -> set[str]:
        """The variables that say where a packet goes after ingress."""
        names = (
            "standard_metadata.egress_spec",
            "intrinsic_metadata.priority",
            "intrinsic_metadata.mcast_grp",
        )
        return {variable for variable in map(self.ingress.intrinsic, names) if variable is not None}

    def _ingress_tail(self, state: list[str]) -> list[str]:
        spec = self.ingress.intrinsic("standard_metadata.egress_spec")
        priority = self.ingress.intrinsic("intrinsic_metadata.priority") or "0"
        group = self.ingress.intrinsic("intrinsic_metadata.mcast_grp")
        kind = self.ingress.intrinsic("standard_metadata.instance_type")
        packed = f"({', '.join(['frame', *state])},)"
        lines = []
        if group is not None and group in self.ingress.writer.stores:
            lines.append(f"if {group}:")
            if kind in state:
                lines.append(f"    {kind} = {INSTANCE_REPLICATION}")
            # Replicas do not inherit what ingress has asked for.
            requests = self.ingress.request_variables()
            values = ["0" if name in requests else name for name in state]
            lines += [f"    multicast({group}, {priority}, ({', '.join(['frame', *values])},))", "    return"]
        lines += [f"if {spec} == DROP:", "    return"]
        if kind in state:
            lines.append(f"{kind} = 0")
        lines.append(f"enqueue({spec}, {priority}, {packed})")
        return lines

    def _egress_head(self, state: list[str]) -> tuple[list[str], list[str]]:
        writer, given = self.egress.writer, self._egress_given()
        lines = [f"{', '.join(['frame', *state])}, = state"]
        lines += [f"{name} = {text}" for name, text in sorted(given.items()) if name in writer.loads]
        known = set(state) | set(given)
        return self.egress.initial(writer.loads, known), lines

    def _egress_body(self, state: list[str]) -> list[str]:
        lines = []
        for line in self.egress.writer.lines:
            if line.strip() == "TWIN":
                lines += egress_twin(self.egress, state, line[: -len("TWIN")])
            else:
                lines.append(line)
        return lines


def _defined(signature: list[str], body: list[str]) -> list[str]:
    """A function's definition within `bind`: its name and parameters, then its lines."""
    name, *parameters = signature
    return _indented([f"def {name}({', '.join(parameters)}):", *_indented(body), ""])


def _indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line if line else line for line in lines]


def generate(ir: Ir) -> GeneratedProgram:
    """Write and compile a program's functions; P4ProgramError where Python cannot compile them."""
    try:
        source = _Generator(ir).source()
        return GeneratedProgram(source, compile(source, "<p4 program>", "exec"))
    except (RecursionError, SyntaxError) as error:
        # Python's own bounds: 200 nested parentheses, 100 levels of indentation.
        raise P4ProgramError(f"program: an expression is nested too deeply to be compiled: {error}") from None
