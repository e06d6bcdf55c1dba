# SPDX-License-Identifier: Apache-2.0
"""Byte strings of P4Runtime and the numbers that they stand for (P4Runtime 1.5, section 8.3).

A receiver looks at the value, not at the length, so a padded string is read; everything kept, compared and
sent is the canonical (shortest) form.
"""

from __future__ import annotations

from bmv2.server.errors import OUT_OF_RANGE, StatusError, invalid

# What an error repeats of a number: an IPv6 address and more.
_SHOWN_BYTES = 32


def decode_uint(data: bytes, width: int, what: str) -> int:
    """Read an unsigned big-endian value of at most `width` bits.

    Raises StatusError: INVALID_ARGUMENT for an empty string, OUT_OF_RANGE for a value that does not fit.
    """
    if not data:
        raise invalid(f"{what}: the byte string is empty; zero is the one byte 00")
    value = int.from_bytes(data, "big")
    if value >> width:
        said = f"{value:#x}" if len(data) <= _SHOWN_BYTES else f"a number of {value.bit_length()} bits"
        raise StatusError(OUT_OF_RANGE, f"{what}: {said} does not fit into {width} bits")
    return value


def canonical(data: bytes) -> bytes:
    """The shortest form of a byte string that is a number."""
    return data.lstrip(b"\0") or b"\0"


def encode_uint(value: int) -> bytes:
    """Write an unsigned value in the canonical form: the fewest bytes, at least one."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
