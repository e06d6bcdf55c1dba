# SPDX-License-Identifier: Apache-2.0
"""Bytes to integers and back as Python source: decoding and encoding headers, hashing fields."""

from __future__ import annotations

from collections.abc import Sequence

from ..calculations import CUSTOM, RESULT_BITS
from ..ir import Calculation, Const, Expression, FieldRef
from ..structures import length_of, request
from .expression import Code, Expressions
from .layout import CHECKSUMS, Cell, HeaderUse, Layout, struct_code
from .writer import Writer

_WORD = 16


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
        if use.header.varbit is not None:
            self._decode_loose(use, position)
            return
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

    def _decode_loose(self, use: HeaderUse, position: str) -> None:
        """Decode a header with a field of `bits` bits, a variable of the function."""
        writer, header = self._writer, use.header
        assert header.varbit is not None
        writer.line(f"word = int.from_bytes(frame[{position}:{position} + {header.size} + (bits >> 3)])")
        after = False
        for item in header.fields.values():
            name = writer.store(self._layout.variable(header.name, item.name))
            shift = header.width - item.offset - (0 if item.name == header.varbit else item.width)
            mask = hex((1 << item.width) - 1)
            if item.name == header.varbit:
                after, mask = True, "((1 << bits) - 1)"
                text = f"(word >> {shift}) & {mask}"
            else:
                text = f"(word >> {shift if after else f'({shift} + bits)'}) & {mask}"
            if item.signed and item.name != header.varbit:
                half = 1 << (item.width - 1)
                text = f"((({text}) + {half}) & {mask}) - {half}"
            writer.line(f"{name} = {text}")
        writer.line(f"{writer.store(self._length(header.name))} = bits")

    def _length(self, header: str) -> str:
        """The variable with the length of a header's field of variable width."""
        ref = length_of(header)
        return self._layout.variable(ref.header, ref.field)

    def _encode_loose(self, use: HeaderUse) -> str:
        header = use.header
        bits = self._writer.load(self._length(header.name))
        terms, after = [], False
        for item in header.fields.values():
            varying = item.name == header.varbit
            shift = header.width - item.offset - (0 if varying else item.width)
            after = after or varying
            ref = FieldRef(header.name, item.name)
            text = (self._expressions.field(ref) if varying else self._expressions.unsigned(ref)).text
            terms.append(f"{text} << {shift}" if after else f"{text} << ({shift} + {bits})")
        return f"({' | '.join(terms)}).to_bytes({header.size} + ({bits} >> 3))"

    def swap(self, one: HeaderUse, two: HeaderUse) -> None:
        """Let two headers of one type change places, with all that is known of them."""
        layout, writer = self._layout, self._writer
        for names in zip(layout.variables(one.header), layout.variables(two.header), strict=True):
            a, b = names
            writer.line(f"{writer.store(a)}, {writer.store(b)} = {writer.load(b)}, {writer.load(a)}")

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
        if use.header.varbit is not None:
            names = [self._layout.variable(use.header.name, name) for name in use.header.fields]
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
        if use.header.varbit is not None:
            return self._encode_loose(use)
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
        return RESULT_BITS[self._layout.ir.calculations[name].algorithm]

    def calculate(self, calculation: Calculation) -> Code:
        """Source of a calculation's result, an unsigned integer."""
        algorithm = calculation.algorithm
        function = f"customs[{calculation.name!r}]" if algorithm in CUSTOM else algorithm
        code = (0, (1 << RESULT_BITS[algorithm]) - 1)
        headers = dict.fromkeys(
            source.header
            for source, _ in calculation.inputs
            if isinstance(source, FieldRef) and not self._layout.ir.headers[source.header].metadata
        )
        varying = any(self._varies(source) for source, _ in calculation.inputs)
        rest = f" + {self.payload()}" if calculation.payload else ""
        loose = f"{function}(packed({self._loose(calculation.inputs)}){rest})"
        if varying:
            return Code(loose, *code)
        if algorithm in CHECKSUMS and not calculation.payload:
            text = self._checksum(calculation)
        else:
            text = f"{function}({self._packed(self._parts(calculation.inputs))}{rest})"
        if headers:
            # BMv2 leaves fields of invalid headers out of the input, so the rest moves up.
            valid = " and ".join(self._writer.load(self._layout.valid(header)) for header in headers)
            text = f"({text} if {valid} else {loose})"
        return Code(text, *code)

    def suspect_sum(self, calculation: Calculation, target: FieldRef) -> str | None:
        """Source of a cheap test that an Internet checksum just parsed may be wrong; None if there is none.

        Where the sum is over a whole header but the field that holds it, a right one makes the header's
        bytes a multiple of 65535; a stored 0 or 65535 is not told by that.
        """
        use = self._layout.uses[target.header]
        fields = [FieldRef(target.header, name) for name in use.header.fields]
        item = use.header.fields[target.field]
        plain = use.extracted and not use.set_in_parser and use.header.varbit is None
        aligned = item.width == _WORD and item.offset % _WORD == 0 and use.header.width % _WORD == 0
        whole = [source for source, _ in calculation.inputs] == [ref for ref in fields if ref != target]
        if calculation.algorithm not in CHECKSUMS or calculation.payload or not (plain and aligned and whole):
            return None
        start = self._writer.load(self._layout.start(target.header))
        stored = self._expressions.unsigned(target).text
        total = f"int.from_bytes(frame[{start}:{start} + {use.header.size}]) % 65535"
        return f"({total} or not 0 < {stored} < 65535)"

    def payload(self) -> str:
        """Source of what the parser has left of the frame, cut where the program has truncated it."""
        text = f"frame[{self._writer.load('payload')}:]"
        if self._layout.truncates:
            ref = request("truncate")
            limit = self._writer.load(self._layout.variable(ref.header, ref.field))
            text = f"({text}[:{limit} - 1] if {limit} else {text})"
        return text

    def _varies(self, source: Expression) -> bool:
        headers = self._layout.ir.headers
        return isinstance(source, FieldRef) and headers[source.header].varbit == source.field

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
            size = str(width)
            if isinstance(source, FieldRef) and self._varies(source):
                size = self._writer.load(self._length(source.header))
            items.append(f"({valid}, {code.text}, {size})")
        return f"({', '.join(items)}{',' if items else ''})"

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

    def _checksum(self, calculation: Calculation) -> str:
        """Source of the Internet checksum: modulo 65535 a shift by 16 bits is the identity.

        So each input only needs its place within 16 bits, and the sum is folded once.
        """
        bits = sum(width for _, width in calculation.inputs)
        end = -(-bits // 16) * 16
        terms = []
        position = 0
        for item in self._layout.summands(calculation):
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
