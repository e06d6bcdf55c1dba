# SPDX-License-Identifier: Apache-2.0
"""BMv2's hash algorithms over bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType


def _reflected_table(polynomial: int) -> tuple[int, ...]:
    table = []
    for remainder in range(256):
        for _ in range(8):
            remainder = (remainder >> 1) ^ (polynomial if remainder & 1 else 0)  # noqa: PLW2901
        table.append(remainder)
    return tuple(table)


def _forward_table(polynomial: int) -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte << 8
        for _ in range(8):
            remainder = ((remainder << 1) ^ (polynomial if remainder & 0x8000 else 0)) & 0xFFFF
        table.append(remainder)
    return tuple(table)


_ARC = _reflected_table(0xA001)
_CCITT = _forward_table(0x1021)


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, start 0, no final inversion."""
    remainder = 0
    for byte in data:
        remainder = (remainder >> 8) ^ _ARC[(remainder ^ byte) & 0xFF]
    return remainder


def crc_ccitt(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xFFFF, no final inversion."""
    remainder = 0xFFFF
    for byte in data:
        remainder = ((remainder << 8) & 0xFFFF) ^ _CCITT[(remainder >> 8) ^ byte]
    return remainder


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071), an odd last byte padded with zero on the right."""
    total = int.from_bytes(data) << (8 * (len(data) % 2))
    # Modulo 65535 a 16-bit shift is the identity, so this is the one's complement sum of the words;
    # it yields 0 for 0xFFFF, which only a sum of nothing but zeros may.
    folded = total % 0xFFFF
    return 0xFFFF - folded if folded or not total else 0


def xor16(data: bytes) -> int:
    """Exclusive or of the 16-bit words, an odd last byte padded with zero on the right."""
    padded = data + bytes(len(data) % 2)
    result = 0
    for position in range(0, len(padded), 2):
        result ^= padded[position] << 8 | padded[position + 1]
    return result


def identity(data: bytes) -> int:
    """The first 8 bytes as an integer."""
    return int.from_bytes(data[:8])


ALGORITHMS: Mapping[str, Callable[[bytes], int]] = MappingProxyType(
    {
        "crc32": zlib.crc32,
        "crc16": crc16,
        "crcCCITT": crc_ccitt,
        "csum16": csum16,
        "cksum16": csum16,
        "xor16": xor16,
        "identity": identity,
    }
)
