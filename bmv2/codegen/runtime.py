# SPDX-License-Identifier: Apache-2.0
"""Functions that generated code calls: hashes, rare cases of packing, arithmetic with unbounded operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from random import Random
from struct import Struct
from zlib import crc32

from ..calculations import crc16, crc_ccitt, csum16, identity, xor16, xor32

EMPTY = b""
join = EMPTY.join
crcCCITT = crc_ccitt  # noqa: N816 - the algorithm's name in BMv2
cksum16 = csum16
# Wider than any field; a value shifted by more leaves nothing in one.
_WIDEST = 1 << 16
_FINE = 1 << 32
_HOLE = re.compile(r"(?<!\\)\{[^}]*\}")


def packed(parts: Iterable[tuple[int, int, int]]) -> bytes:
    """The valid ones of (valid, value, width) from the most significant bit, zeros at the end."""
    total = bits = 0
    for valid, value, width in parts:
        if valid:
            total = total << width | value
            bits += width
    return (total << -bits % 8).to_bytes(-(-bits // 8))


def peek(frame: bytes, start: int, size: int) -> int:
    """`size` bytes of the frame as an integer; beyond its end there are zeros."""
    return int.from_bytes(frame[start : start + size].ljust(size, b"\0"))


def cell(cells: Sequence[int], index: int) -> int:
    """A cell of a register array; 0 where it has none, where BMv2 aborts."""
    return cells[index] if 0 <= index < len(cells) else 0


def shift_left(value: int, amount: int) -> int:
    """`value << amount`, 0 where nothing could remain in any field."""
    return value << amount if amount < _WIDEST else 0


def divide(left: int, right: int) -> int:
    """Integer division; 0 by 0, where BMv2 aborts."""
    return left // right if right else 0


def modulo(left: int, right: int) -> int:
    """Remainder; 0 by 0, where BMv2 aborts."""
    return left % right if right else 0


def log_text(text: str, values: Sequence[int]) -> str:
    """A log_msg's text with each `{}` replaced by a value; braces after a backslash stand for themselves."""
    parts = iter(values)
    filled = _HOLE.sub(lambda hole: str(next(parts, hole.group())), text)
    return filled.replace("\\{", "{").replace("\\}", "}")


def uniform_of(rng: Random) -> Callable[[int, int], int]:
    """A function that draws an integer between two bounds, both included."""
    bits, fraction, below = rng.getrandbits, rng.random, rng.randrange

    def uniform(low: int, high: int) -> int:
        span = high - low
        if span & (span + 1) == 0:
            return low + bits(span.bit_length())
        if span < _FINE:
            # 53 random bits over at most 32: no value is favoured by more than 2^-21.
            return low + int(fraction() * (span + 1))
        return below(low, high + 1)

    return uniform


__all__ = [
    "EMPTY",
    "Struct",
    "cell",
    "cksum16",
    "crc16",
    "crc32",
    "crcCCITT",
    "csum16",
    "divide",
    "identity",
    "join",
    "log_text",
    "modulo",
    "packed",
    "peek",
    "shift_left",
    "uniform_of",
    "xor16",
    "xor32",
]
