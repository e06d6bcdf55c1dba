# SPDX-License-Identifier: Apache-2.0
"""BMv2's hash algorithms over bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


def xor32(data: bytes) -> int:
    """Exclusive or of the 32-bit words, the last padded with zeros on the right."""
    padded = data + bytes(-len(data) % 4)
    result = 0
    for position in range(0, len(padded), 4):
        result ^= int.from_bytes(padded[position : position + 4])
    return result


@dataclass(frozen=True, slots=True)
class CrcParameters:
    """A cyclic redundancy check in the usual parameters (Ross Williams' model)."""

    width: int
    polynomial: int
    initial: int
    final_xor: int
    reflect_data: bool
    reflect_remainder: bool


class CustomCrc:
    """A check by its parameters; called with bytes it gives the remainder."""

    __slots__ = ("_parameters", "_table")

    def __init__(self, parameters: CrcParameters) -> None:
        self._parameters = parameters
        top, full = 1 << (parameters.width - 1), (1 << parameters.width) - 1
        table = []
        for byte in range(256):
            remainder = byte << (parameters.width - 8)
            for _ in range(8):
                carry = remainder & top
                remainder = (remainder << 1) & full
                if carry:
                    remainder ^= parameters.polynomial
            table.append(remainder)
        self._table = tuple(table)

    def __call__(self, data: bytes) -> int:
        """The check of the bytes."""
        parameters, table = self._parameters, self._table
        shift, full = parameters.width - 8, (1 << parameters.width) - 1
        remainder = parameters.initial
        for byte in data:
            index = _REFLECTED[byte] if parameters.reflect_data else byte
            remainder = ((remainder << 8) & full) ^ table[index ^ (remainder >> shift)]
        if parameters.reflect_remainder:
            remainder = int(format(remainder, f"0{parameters.width}b")[::-1], 2)
        return remainder ^ parameters.final_xor


_REFLECTED = tuple(int(format(byte, "08b")[::-1], 2) for byte in range(256))

# The parameters BMv2 starts its custom checks with.
CUSTOM: Mapping[str, CrcParameters] = MappingProxyType(
    {
        "crc8_custom": CrcParameters(8, 0x07, 0, 0, False, False),
        "crc16_custom": CrcParameters(16, 0x8005, 0, 0, True, True),
        "crc32_custom": CrcParameters(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True, True),
        "crc64_custom": CrcParameters(64, 0x1B, 0, 0, True, True),
    }
)
ALGORITHMS: Mapping[str, Callable[[bytes], int]] = MappingProxyType(
    {
        "crc32": zlib.crc32,
        "crc16": crc16,
        "crcCCITT": crc_ccitt,
        "csum16": csum16,
        "cksum16": csum16,
        "xor16": xor16,
        "xor32": xor32,
        "identity": identity,
    }
)

RESULT_BITS: Mapping[str, int] = MappingProxyType(
    {
        "crc32": 32,
        "crc16": 16,
        "crcCCITT": 16,
        "csum16": 16,
        "cksum16": 16,
        "xor16": 16,
        "xor32": 32,
        "identity": 64,
        **{name: parameters.width for name, parameters in CUSTOM.items()},
    }
)
