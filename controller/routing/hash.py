# SPDX-License-Identifier: Apache-2.0
"""The fabric's ECMP hash, for one flow or for all 65,536 source ports of a flow at once."""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from controller.wire.rocev2 import ROCE_PORT
from topo.graph import OUR_HASH

UDP = 17


def _fields(src: str, dst: str, source_port: int, protocol: int, dest_port: int) -> bytes:
    return struct.pack("!IIBHH", address(src), address(dst), protocol, source_port, dest_port)


@lru_cache(maxsize=1 << 17)
def address(ip: str) -> int:
    """A dotted IPv4 address as a 32-bit number. Kept: parsing takes longer than the hash."""
    return int(ipaddress.IPv4Address(ip))


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, initial value 0; what P4's crc16 is on BMv2."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xA001 if value & 1 else 0)
    return value


ALGORITHMS: Mapping[str, Callable[[bytes], int]] = MappingProxyType({"crc32": zlib.crc32, "crc16": crc16})


def ecmp_hash(
    src: str,
    dst: str,
    source_port: int,
    *,
    protocol: int = UDP,
    dest_port: int = ROCE_PORT,
    algorithm: str = "crc32",
) -> int:
    """CRC of source, destination, protocol and ports, 13 bytes as they are on the wire.

    `src` and `dst` are dotted IPv4 addresses, `algorithm` one of ALGORITHMS.
    """
    return ALGORITHMS[algorithm](_fields(src, dst, source_port, protocol, dest_port))


def bucket(value: int, tier: int, slices: Sequence[int] = OUR_HASH.slices) -> int:
    """The 8 bits of a hash that tier 0, 1 or 2 reads, from bit slices[tier] upward."""
    return (value >> slices[tier]) & 0xFF


@cache
def port_contributions(algorithm: str = "crc32") -> NDArray[np.uint32]:
    """What each source port XORs into the hash of source port 0, shape (65536,).

    CRC is affine over GF(2) at a fixed length: crc(x ^ y) = crc(x) ^ crc(y) ^ crc(0). Sixteen single
    bits give the whole table by doubling.
    """
    crc = ALGORITHMS[algorithm]
    zero = crc(bytes(13))
    table = np.zeros(1, dtype=np.uint32)
    for bit in range(16):
        one = crc(bytes(9) + struct.pack("!H", 1 << bit) + bytes(2)) ^ zero
        table = np.concatenate((table, table ^ np.uint32(one)))
    table.setflags(write=False)
    return table


def source_port_hashes(
    src: str, dst: str, *, protocol: int = UDP, dest_port: int = ROCE_PORT, algorithm: str = "crc32"
) -> NDArray[np.uint32]:
    """`ecmp_hash` of a flow for every source port, shape (65536,): one XOR with the table."""
    base = ecmp_hash(src, dst, 0, protocol=protocol, dest_port=dest_port, algorithm=algorithm)
    return port_contributions(algorithm) ^ np.uint32(base)
