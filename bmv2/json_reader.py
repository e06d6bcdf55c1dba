# SPDX-License-Identifier: Apache-2.0
"""Read JSON with errors that say where: each value knows its path in the document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .errors import P4ProgramError

# In bits. p4c refuses bit<N> and int<N> above 2,048 unless it is built otherwise, and bounds a varbit<N> not
# at all; every mask is an integer of its field's width, so an unbounded one could take all memory.
MAX_WIDTH = 65_536
# Bits of a constant. Chosen: several times the widest that p4c writes, and few enough for decimal digits,
# of which Python converts 4,300 digits at most.
MAX_CONSTANT = 14_000

# An array is held in memory whole; no switch has room for more.
MAX_CELLS = 1 << 24


class Reader:
    """A JSON value at a path; every accessor checks the type and raises P4ProgramError with the path."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, message: str) -> P4ProgramError:
        """The error to raise about this value, with its path and, where p4c left it, its P4 source."""
        return P4ProgramError(f"{self.path}{self._source()}: {message}")

    def fragment(self) -> str:
        """The P4 source this came from, or its path in the document where p4c left none."""
        return self._source().strip(" ()") or self.path

    def _source(self) -> str:
        info = self.value.get("source_info") if isinstance(self.value, dict) else None
        if not isinstance(info, dict):
            return ""
        return f" ({info.get('filename', '?')}:{info.get('line', '?')} `{info.get('source_fragment', '')}`)"

    def __getitem__(self, key: str | int) -> Reader:
        if isinstance(key, int):
            items = self.value
            if not isinstance(items, list) or key >= len(items):
                raise self.fail(f"expected a list with at least {key + 1} items")
            return Reader(items[key], f"{self.path}[{key}]")
        value = self.get(key)
        if value is None:
            raise self.fail(f"'{key}' is missing")
        return value

    def members(self) -> dict[str, Any]:
        """The members of an object."""
        if not isinstance(self.value, dict):
            raise self.fail("expected an object")
        return self.value

    def get(self, key: str) -> Reader | None:
        """The member `key`, or None where it is absent or null."""
        value = self.members().get(key)
        return None if value is None else Reader(value, f"{self.path}.{key}")

    def items(self) -> Iterator[Reader]:
        """The items of a list; objects with a name are shown by it in paths."""
        if not isinstance(self.value, list):
            raise self.fail("expected a list")
        for position, item in enumerate(self.value):
            label = item.get("name") if isinstance(item, dict) else None
            yield Reader(item, f"{self.path}[{label if isinstance(label, str) else position}]")

    def list(self, key: str) -> Iterator[Reader]:
        """The items of the member `key`; none where it is absent."""
        member = self.get(key)
        return iter(()) if member is None else member.items()

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            raise self.fail(f"expected a string, got {self.value!r}")
        return self.value

    def integer(self) -> int:
        """An integer."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.fail(f"expected an integer, got {self.value!r}")
        return self.value

    def width(self) -> int:
        """A width in bits that can be worked with."""
        width = self.integer()
        if not 0 <= width <= MAX_WIDTH:
            raise self.fail(f"a width is 0 to {MAX_WIDTH} bits, not {width}")
        return width

    def cells(self) -> int:
        """The size of an array of counters, meters or registers."""
        size = self.integer()
        if not 0 <= size <= MAX_CELLS:
            raise self.fail(f"an array has 0 to {MAX_CELLS} cells, not {size}")
        return size

    def flag(self) -> bool:
        """A truth value; p4c writes 0 and 1 for some."""
        if self.value not in (0, 1):
            raise self.fail(f"expected true or false, got {self.value!r}")
        return bool(self.value)

    def hexadecimal(self) -> int:
        """A `hexstr`: hexadecimal digits with an optional sign and 0x."""
        digits = self.text()
        try:
            value = int(digits, 16)
        except ValueError:
            raise self.fail(f"expected hexadecimal digits, got {digits!r}") from None
        if value.bit_length() > MAX_CONSTANT:
            raise self.fail(f"a constant has at most {MAX_CONSTANT} bits, not {value.bit_length()}")
        return value

    def optional_text(self, key: str) -> str | None:
        """The string member `key`, or None where it is absent or null."""
        member = self.get(key)
        return None if member is None else member.text()

    def optional_flag(self, key: str, default: bool) -> bool:
        """The truth value `key`, or the default where it is absent or null."""
        member = self.get(key)
        return default if member is None else member.flag()
