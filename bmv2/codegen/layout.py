# SPDX-License-Identifier: Apache-2.0
"""Which parts of which headers a program uses, and which Python variables hold them while a packet passes.

A received header is not decoded as a whole. Its cells (runs of fields that begin and end on byte boundaries)
become integers only if the program reads them. A cell that the program may write but never reads is `None`
until it is written; None means "as in the frame". A header that nothing changed leaves as the slice of the
frame in which it arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ir import (
    Action,
    Advance,
    Argument,
    Calculation,
    Conditional,
    Expression,
    Extract,
    ExtractNext,
    Field,
    FieldRef,
    Header,
    HeaderArg,
    Ir,
    ObjectArg,
    Primitive,
    Table,
    Verify,
    walk,
)
from ..structures import length_of

# Primitives that assign to the field they name first; all others only read what they name.
ASSIGNING = ("assign", "modify_field_with_hash_based_offset", "modify_field_rng_uniform", "register_read")
# The Internet checksum under its two names: summed cell by cell, where others hash bytes.
CHECKSUMS = ("csum16", "cksum16")
_STRUCT_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def struct_code(size: int) -> str | None:
    """The struct module's code of an unsigned integer of so many bytes, if there is one."""
    return _STRUCT_CODES.get(size)


@dataclass(slots=True)
class Cell:
    """Fields of a header that together fill whole bytes; distances and sizes in bytes."""

    header: Header
    offset: int
    size: int
    fields: list[Field]
    number: int
    read: set[str] = field(default_factory=set)
    written: bool = False
    word_read: bool = False

    @property
    def keeps_word(self) -> bool:
        """Whether the cell as one integer stays true: nothing writes its fields one by one."""
        return len(self.fields) > 1 and not self.written

    @property
    def lazy(self) -> bool:
        """Whether nothing needs its value on arrival, so that None can stand for it."""
        return not self.read and not self.word_read and (len(self.fields) == 1 or not self.written)


@dataclass(slots=True)
class HeaderUse:
    """What may happen to a header."""

    header: Header
    cells: list[Cell]
    extracted: bool = False
    added: bool = False
    removed: bool = False
    set_in_parser: bool = False
    written: set[str] = field(default_factory=set)

    @property
    def mutable(self) -> bool:
        """Whether it can leave other than it came, as far as is known where its length varies."""
        return self.added or bool(self.written) or self.header.varbit is not None

    @property
    def emitted(self) -> bool:
        """Whether it can be valid at all."""
        return self.extracted or self.added


class Layout:
    """The uses of all headers, and the names of all per-packet variables with their first values."""

    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.uses: dict[str, HeaderUse] = {}
        self.truncates = uses_primitive(
            ir, "truncate", "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"
        )
        self.initial: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}
        for number, header in enumerate(ir.headers.values()):
            plain = not header.metadata and header.varbit is None
            cells = _cells(header) if plain else []
            self.uses[header.name] = HeaderUse(header, cells)
            self._name_variables(header, number)
        self._collect()
        for use in self.uses.values():
            for cell in use.cells:
                cell.written = any(f.name in use.written for f in cell.fields)
                if cell.lazy:
                    self.initial[self.cell_variable(cell)] = "None"

    def variable(self, header: str, field_name: str) -> str:
        """The variable of a field."""
        return self._names[header, field_name]

    def cell_variable(self, cell: Cell) -> str:
        """The variable of a whole cell: its field's where there is one only."""
        if len(cell.fields) == 1:
            return self.variable(cell.header.name, cell.fields[0].name)
        return self._names[cell.header.name, f"${cell.number}"]

    def valid(self, header: str) -> str:
        """The variable that is 1 where the header is valid."""
        return self._names[header, "$valid"]

    def dirty(self, header: str) -> str:
        """The variable that is 1 where the header no longer equals its bytes in the frame."""
        return self._names[header, "$dirty"]

    def start(self, header: str) -> str:
        """The variable with the header's place in the frame."""
        return self._names[header, "$start"]

    def variables(self, header: Header) -> list[str]:
        """All variables of a header, those of headers of one type in the same order."""
        names = [variable for (owner, _), variable in self._names.items() if owner == header.name]
        if header.varbit is not None:
            length = length_of(header.name)
            names.append(self.variable(length.header, length.field))
        return names

    def needs_guard(self, ref: FieldRef) -> bool:
        """Whether the variable may hold something else than 0 while the header is invalid."""
        use = self.uses[ref.header]
        if use.header.metadata:
            return False
        return use.added or use.removed or ref.field in use.written

    def _name_variables(self, header: Header, number: int) -> None:
        stem = "_" * header.name[:1].isdigit() + re.sub(r"[^A-Za-z0-9_]", "_", header.name)
        for index, name in enumerate(header.fields):
            self._declare(header.name, name, f"{stem}_{number}_{index}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}")
        for role in ("valid", "dirty", "start"):
            self._declare(header.name, f"${role}", f"{stem}_{number}_{role}")
        for index in range(header.size):
            self._declare(header.name, f"${index}", f"{stem}_{number}_cell{index}")

    def _declare(self, header: str, role: str, variable: str) -> None:
        self._names[header, role] = variable
        self.initial[variable] = "0"

    def _collect(self) -> None:
        for expression in _expressions(self.ir):
            self._read(expression)
        for primitive in _primitives(self.ir):
            self._collect_primitive(primitive)
        for state in self.ir.states.values():
            for op in state.ops:
                if isinstance(op, Extract | ExtractNext):
                    for part in op.elements if isinstance(op, ExtractNext) else (op,):
                        self.uses[part.header].extracted = True
                elif isinstance(op, Primitive):
                    self._collect_in_parser(op)
        for name in self.ir.siblings:
            self.uses[name].removed = True
        for checksum in self.ir.checksums:
            self._read_inputs(self.ir.calculations[checksum.calculation])
            self._read(checksum.target)
            if checksum.update:
                self.uses[checksum.target.header].written.add(checksum.target.field)
        for meter in self.ir.meters.values():
            if meter.target is not None:
                self.uses[meter.target.header].written.add(meter.target.field)
        for profile in self.ir.profiles.values():
            if profile.selector is not None:
                self._read_inputs(profile.selector)
        self._level_stacks()
        # A cell can be summed as a whole only if nothing writes its parts, so this comes last.
        selectors = [profile.selector for profile in self.ir.profiles.values()]
        for calculation in (*self.ir.calculations.values(), *selectors):
            if calculation is not None and calculation.algorithm in CHECKSUMS:
                self._note_words(calculation)
        self._level_stacks()

    def _level_stacks(self) -> None:
        """Let the elements of a stack be decoded alike, for they change places."""
        for stack in self.ir.stacks.values():
            rows = [self.ir.unions.get(element, (element,)) for element in stack.elements]
            for column in zip(*rows, strict=True):
                uses = [self.uses[name] for name in column]
                for flag in ("extracted", "added", "removed", "set_in_parser"):
                    common = any(getattr(use, flag) for use in uses)
                    for use in uses:
                        setattr(use, flag, common)
                written = set().union(*(use.written for use in uses))
                for use in uses:
                    use.written.update(written)
                for cells in zip(*(use.cells for use in uses), strict=True):
                    read = set().union(*(cell.read for cell in cells))
                    for cell in cells:
                        cell.read.update(read)
                        cell.word_read = any(other.word_read for other in cells)

    def _collect_in_parser(self, primitive: Primitive) -> None:
        for step in primitive.flat():
            for arg in step.args:
                if isinstance(arg, FieldRef | HeaderArg):
                    self.uses[arg.header].set_in_parser = True

    def _collect_primitive(self, primitive: Primitive) -> None:
        op, args = primitive.op, primitive.args
        first = args[0] if args else None
        if op == "add_header" and isinstance(first, HeaderArg):
            self.uses[first.header].added = True
        elif op in ("remove_header", "invalidate") and isinstance(first, HeaderArg):
            self.uses[first.header].removed = True
        elif op == "swap_header":
            for arg in args:
                if isinstance(arg, HeaderArg):
                    self.uses[arg.header].added = self.uses[arg.header].removed = True
        elif op == "assign_header" and isinstance(first, HeaderArg) and isinstance(args[1], HeaderArg):
            target = self.uses[first.header]
            target.added = target.removed = True
            target.written.update(target.header.fields)
            for name in self.ir.headers[args[1].header].fields:
                self._read(FieldRef(args[1].header, name))
        for arg in args:
            if isinstance(arg, ObjectArg) and arg.name in self.ir.calculations:
                self._read_inputs(self.ir.calculations[arg.name])
        target_field = args[2] if op == "execute_meter" else first if op in ASSIGNING else None
        if isinstance(target_field, FieldRef):
            self.uses[target_field.header].written.add(target_field.field)

    def _read_inputs(self, calculation: Calculation) -> None:
        for source, _ in calculation.inputs:
            self._read(source)

    def _read(self, expression: Expression) -> None:
        for part in walk(expression):
            if isinstance(part, FieldRef):
                for cell in self.uses[part.header].cells:
                    if any(f.name == part.field for f in cell.fields):
                        cell.read.add(part.field)

    def _note_words(self, calculation: Calculation) -> None:
        for run in self.summands(calculation):
            if isinstance(run, Cell):
                run.word_read = True

    def summands(self, calculation: Calculation) -> list[Cell | tuple[Expression, int]]:
        """A calculation's inputs, whole unwritten cells in place of their fields."""
        inputs = calculation.inputs
        result: list[Cell | tuple[Expression, int]] = []
        position = 0
        while position < len(inputs):
            source, width = inputs[position]
            cell = self._cell_at(source)
            length = 0 if cell is None else len(cell.fields)
            if cell is not None and [s for s, _ in inputs[position : position + length]] == [
                FieldRef(cell.header.name, f.name) for f in cell.fields
            ]:
                result.append(cell)
                position += length
            else:
                result.append((source, width))
                position += 1
        return result

    def _cell_at(self, source: Expression) -> Cell | None:
        if isinstance(source, FieldRef):
            use = self.uses[source.header]
            for cell in use.cells:
                names = [f.name for f in cell.fields]
                if len(names) > 1 and names[0] == source.field and not use.written.intersection(names):
                    return cell
        return None


def _cells(header: Header) -> list[Cell]:
    cells: list[Cell] = []
    run: list[Field] = []
    for item in header.fields.values():
        run.append(item)
        end = item.offset + item.width
        if end % 8 == 0:
            start = run[0].offset // 8
            cells.append(Cell(header, start, end // 8 - start, run, len(cells)))
            run = []
    return cells


def _primitives(ir: Ir) -> Iterator[Primitive]:
    """All primitives of the program, those within others included."""
    for action in ir.actions:
        for step in action.primitives:
            yield from step.flat()
    for state in ir.states.values():
        for op in state.ops:
            if isinstance(op, Primitive):
                yield from op.flat()
    for step in ir.deparser_steps:
        yield from step.flat()


def _arguments(primitive: Primitive) -> Iterator[Argument]:
    """The arguments that are read."""
    yield from primitive.args[1:] if primitive.op in ASSIGNING else primitive.args


def _expressions(ir: Ir) -> Iterator[Expression]:
    """All expressions the program reads."""
    for primitive in _primitives(ir):
        for arg in _arguments(primitive):
            if not isinstance(arg, HeaderArg | ObjectArg):
                yield arg
    for state in ir.states.values():
        for source, _ in state.key:
            yield source
        for op in state.ops:
            if isinstance(op, Verify):
                yield from (op.condition, op.error)
            elif isinstance(op, Advance):
                yield op.bits
            elif isinstance(op, Extract | ExtractNext):
                taken = op.elements[0] if isinstance(op, ExtractNext) else op
                if taken.length is not None:
                    yield taken.length
    for digest in ir.digests.values():
        for source, _ in digest.fields:
            yield source
    for pipeline in (ir.ingress, ir.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, Conditional):
                yield node.condition
            elif isinstance(node, Table):
                for part in node.key:
                    yield part.source
    for checksum in ir.checksums:
        if checksum.condition is not None:
            yield checksum.condition


def has_exit(action: Action) -> bool:
    """Whether the action may end the pipeline."""
    return any(step.op == "exit" for primitive in action.primitives for step in primitive.flat())


def uses_primitive(ir: Ir, *names: str) -> bool:
    """Whether the program has one of these primitives anywhere."""
    return any(primitive.op in names for primitive in _primitives(ir))
