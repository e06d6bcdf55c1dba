# SPDX-License-Identifier: Apache-2.0
"""Bytes to integers and back as Python source: decoding and encoding headers, hashing fields."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Const, Expression, FieldRef
from .expression import Code, Expressions
from .layout import Cell, HeaderUse, Layout, struct_code
from .writer import Writer

HASH_BITS = {
    "crc32": 32,
    "crc16": 16,
    "crcCCITT": 16,
    "csum16": 16,
    "cksum16": 16,
    "xor16": 16,
    "identity": 64,
}
CHECKSUMS = ("csum16", "cksum16")


class Structs:
    """The struct formats a program uses, each compiled once, under names of the generated module."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}

    def unpack(self, layout: str) -> str:
        """The name of `unpack_from` for a big-endian format."""
        return self._names.setdefault(("unpack_from", layout), f"unpack{len(self._names)}")

    def pack(self, layout: str) -> str:
        """The name of `pack` for a big-endian format."""
        return self._names.setdefault(("pack", layout), f"pack{len(self._names)}")

    def definitions(self) -> list[str]:
        """The lines that define the names."""
        return [f'{name} = Struct("!{layout}").{method}' for (method, layout), name in self._names.items()]


class Packing:
    """Headers and hashes of one function."""

    def __init__(self, layout: Layout, writer: Writer, expressions: Expressions, structs: Structs) -> None:
        self._layout = layout
        self._writer = writer
        self._expressions = expressions
        self._structs = structs

    def decode(self, use: HeaderUse, position: str) -> None:
        """Decode what the program needs of a header that starts at `position` in the frame."""
        writer, layout = self._writer, self._layout
        codes = ""
        targets: list[str] = []
        derive: list[str] = []
        if use.set_in_parser:
            derive.append(f"{writer.store(layout.dirty(use.header.name))} = 0")
        for cell in use.cells:
            if cell.lazy or not (use.mutable or cell.read or cell.word_read):
                codes += f"{cell.size}x"
                if cell.lazy and use.set_in_parser:
                    derive.append(f"{writer.store(layout.cell_variable(cell))} = None")
                continue
            kept = len(cell.fields) == 1 or (cell.keeps_word and (use.mutable or cell.word_read))
            word = writer.store(layout.cell_variable(cell)) if kept else f"word{len(targets)}"
            code = struct_code(cell.size)
            codes += code or f"{cell.size}s"
            targets.append(word)
            if code is None:
                derive.append(f"{word} = int.from_bytes({word})")
            derive += self._derive_fields(cell, word)
        if targets:
            whole = "" if len(targets) > 1 else ","
            writer.line(f"{', '.join(targets)}{whole} = {self._structs.unpack(codes)}(frame, {position})")
        for line in derive:
            writer.line(line)

    def _derive_fields(self, cell: Cell, word: str) -> list[str]:
        lines = []
        for item in cell.fields:
            if not cell.written and item.name not in cell.read:
                continue
            name = self._writer.store(self._layout.variable(cell.header.name, item.name))
            text = word
            if len(cell.fields) > 1:
                shift = (cell.offset + cell.size) * 8 - item.offset - item.width
                text = f"{word} >> {shift}" if shift else word
                if item.offset > cell.offset * 8:
                    text = f"({text}) & {hex((1 << item.width) - 1)}"
            if item.signed:
                half = 1 << (item.width - 1)
                text = f"((({text}) + {half}) & {hex((1 << item.width) - 1)}) - {half}"
            if text != name:
                lines.append(f"{name} = {text}")
        return lines

    def reset(self, use: HeaderUse) -> None:
        """Set all fields of a header to zero."""
        names = []
        for cell in use.cells:
            if len(cell.fields) == 1 or not cell.written:
                names.append(self._layout.cell_variable(cell))
            if len(cell.fields) > 1:
                kept = [f.name for f in cell.fields if cell.written or f.name in cell.read]
                names += [self._layout.variable(cell.header.name, name) for name in kept]
        if names:
            self._writer.line(" = ".join([self._writer.store(name) for name in names] + ["0"]))

    def encode(self, use: HeaderUse) -> str:
        """Source of the bytes of a header that may have changed."""
        codes, values = "", []
        for cell in use.cells:
            code = struct_code(cell.size)
            if use.extracted and cell.lazy:
                codes += f"{cell.size}s"
                values.append(self._lazy_bytes(use, cell))
                continue
            word = self._word(cell)
            codes += code or f"{cell.size}s"
            values.append(word if code else f"{_wrapped(word)}.to_bytes({cell.size})")
        return f"{self._structs.pack(codes)}({', '.join(values)})"

    def _lazy_bytes(self, use: HeaderUse, cell: Cell) -> str:
        start = self._writer.load(self._layout.start(use.header.name))
        kept = f"frame[{start} + {cell.offset}:{start} + {cell.offset + cell.size}]"
        if not cell.written and not use.added:
            return kept
        name = self._writer.load(self._layout.cell_variable(cell))
        signed = ", signed=True" if len(cell.fields) == 1 and cell.fields[0].signed else ""
        return f"({kept} if {name} is None else {name}.to_bytes({cell.size}{signed}))"

    def _word(self, cell: Cell) -> str:
        """Source of a whole cell as an unsigned integer."""
        if len(cell.fields) > 1 and not cell.written:
            return self._writer.load(self._layout.cell_variable(cell))
        parts = [
            (self._expressions.unsigned(FieldRef(cell.header.name, f.name)), f.width) for f in cell.fields
        ]
        return _joined(parts, cell.size * 8)

    def hash_bits(self, name: str) -> int:
        """The width of a calculation's result."""
        return HASH_BITS[self._layout.ir.calculations[name].algorithm]

    def calculate(self, name: str) -> Code:
        """Source of a calculation's result, an unsigned integer."""
        calculation = self._layout.ir.calculations[name]
        algorithm = calculation.algorithm
        headers = dict.fromkeys(
            source.header
            for source, _ in calculation.inputs
            if isinstance(source, FieldRef) and not self._layout.ir.headers[source.header].metadata
        )
        if algorithm in CHECKSUMS:
            text = self._checksum(name)
        else:
            text = f"{algorithm}({self._packed(self._parts(calculation.inputs))})"
        if headers:
            # BMv2 leaves fields of invalid headers out of the input, so the rest moves up.
            valid = " and ".join(self._writer.load(self._layout.valid(header)) for header in headers)
            text = f"({text} if {valid} else {algorithm}(packed({self._loose(calculation.inputs)})))"
        return Code(text, 0, (1 << self.hash_bits(name)) - 1)

    def _parts(self, inputs: Sequence[tuple[Expression, int]]) -> list[tuple[Code, int]]:
        parts = []
        for source, width in inputs:
            if isinstance(source, FieldRef):
                parts.append((self._expressions.unsigned(source), width))
            else:
                parts.append((self._expressions.integer(source), width))
        return parts

    def _loose(self, inputs: Sequence[tuple[Expression, int]]) -> str:
        """Source of the inputs as (valid, value, width) for the run-time helper."""
        items = []
        for (source, _), (code, width) in zip(inputs, self._parts(inputs), strict=True):
            valid = "1"
            if isinstance(source, FieldRef) and not self._layout.ir.headers[source.header].metadata:
                valid = self._writer.load(self._layout.valid(source.header))
            items.append(f"({valid}, {code.text}, {width})")
        return f"({', '.join(items)},)"

    def _packed(self, parts: Sequence[tuple[Code, int]]) -> str:
        """Source of the bytes of parts put together from the most significant bit, zeros at the end."""
        codes, values = "", []
        run: list[tuple[Code, int]] = []
        for index, part in enumerate(parts):
            run.append(part)
            bits = sum(width for _, width in run)
            last = index == len(parts) - 1
            if bits % 8 and not last:
                continue
            size = -(-bits // 8)
            word = _joined(run, size * 8)
            code = struct_code(size)
            codes += code or f"{size}s"
            values.append(word if code else f"{_wrapped(word)}.to_bytes({size})")
            run = []
        return f"{self._structs.pack(codes)}({', '.join(values)})"

    def _checksum(self, name: str) -> str:
        """Source of the Internet checksum: modulo 65535 a shift by 16 bits is the identity.

        So each input only needs its place within 16 bits, and the sum is folded once.
        """
        bits = sum(width for _, width in self._layout.ir.calculations[name].inputs)
        end = -(-bits // 16) * 16
        terms = []
        position = 0
        for item in self._layout.summands(name):
            if isinstance(item, Cell):
                word, width = self._writer.load(self._layout.cell_variable(item)), item.size * 8
            else:
                source, width = item
                word = self._parts([(source, width)])[0][0].text
                if isinstance(source, Const) and source.value == 0:
                    position += width
                    continue
            position += width
            shift = (end - position) % 16
            terms.append(f"({word} << {shift})" if shift else word)
        # Only a sum of nothing but zeros is 0 in one's complement; any other multiple of 65535 is 65535.
        total = " + ".join(terms) or "0"
        return f"(65535 - s if (s := (t := {total}) % 65535) else 0 if t else 65535)"


def _joined(parts: Sequence[tuple[Code, int]], bits: int) -> str:
    """Source of an integer of `bits` bits with the parts side by side from its most significant one."""
    terms = []
    for code, width in parts:
        bits -= width
        terms.append(f"{code.text} << {bits}" if bits else code.text)
    return " | ".join(terms)


def _wrapped(text: str) -> str:
    return text if text.isidentifier() else f"({text})"
