# SPDX-License-Identifier: Apache-2.0
"""The fabric's ECMP hash, for one flow or for all 65,536 source ports of a flow at once."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from controller.wire.rocev2 import ROCE_PORT
from topo.addresses import is_ipv6, packed
from topo.graph import OUR_HASH

UDP = 17


def _fields(src: str, dst: str, source_port: int, protocol: int, dest_port: int) -> bytes:
    return packed(src) + packed(dst) + struct.pack("!BHH", protocol, source_port, dest_port)


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
    """CRC of source, destination, protocol and ports as they are on the wire: 13 bytes, or 37 of IPv6.

    `src` and `dst` are addresses of one family, `algorithm` one of ALGORITHMS.
    """
    return ALGORITHMS[algorithm](_fields(src, dst, source_port, protocol, dest_port))


def bucket(value: int, tier: int, slices: Sequence[int] = OUR_HASH.slices) -> int:
    """The 8 bits of a hash that tier 0, 1 or 2 reads, from bit slices[tier] upward."""
    return (value >> slices[tier]) & 0xFF


@cache
def port_contributions(algorithm: str = "crc32") -> NDArray[np.uint32]:
    """What each source port XORs into the hash of source port 0, shape (65536,).

    CRC is affine over GF(2) at a fixed length: crc(x ^ y) = crc(x) ^ crc(y) ^ crc(0). Sixteen single
    bits give the whole table by doubling. What a bit XORs depends on the bytes behind it only, so the table
    is the same for both families.
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


@lru_cache(maxsize=1 << 17)
def source_number(ip: str, algorithm: str = "crc32") -> int:
    """The 32 bits that stand for a source address in the hash of flows.

    For an IPv4 address these are its own. For an IPv6 address they are those of an IPv4 source with which the
    hash is the same, whatever the ports, if the destination stands for its own address in the same way
    (`destination_number`). There is such an IPv4 address because the hash is affine, and because the 32 bits
    of an IPv4 address reach every value of it. So all that works with arrays of flows knows one length of
    addresses only.
    """
    if not is_ipv6(ip):
        return int.from_bytes(packed(ip), "big")
    crc = ALGORITHMS[algorithm]
    # The difference in length belongs to the source: crc of 37 zeros is not that of 13.
    return _preimage(algorithm, 0, crc(packed(ip) + bytes(21)) ^ crc(bytes(13)))


@lru_cache(maxsize=1 << 17)
def destination_number(ip: str, algorithm: str = "crc32") -> int:
    """The 32 bits that stand for a destination address in the hash of flows; see `source_number`."""
    if not is_ipv6(ip):
        return int.from_bytes(packed(ip), "big")
    crc = ALGORITHMS[algorithm]
    return _preimage(algorithm, 4, crc(bytes(16) + packed(ip) + bytes(5)) ^ crc(bytes(37)))


def _preimage(algorithm: str, at: int, wanted: int) -> int:
    """The IPv4 address at byte `at` of the hashed fields that XORs `wanted` into the hash of 13 zeros."""
    found = 0
    for effect, address in _echelon(algorithm, at):
        if wanted ^ effect < wanted:
            wanted ^= effect
            found ^= address
    assert wanted == 0
    return found


@cache
def _echelon(algorithm: str, at: int) -> tuple[tuple[int, int], ...]:
    """What the bits of an IPv4 address at byte `at` XOR into the hash, in echelon form over GF(2).

    Pairs (effect, address), effects falling, each with a highest bit that no other effect has.
    """
    crc = ALGORITHMS[algorithm]
    zero = crc(bytes(13))
    basis: list[tuple[int, int]] = []
    for bit in range(32):
        address = 1 << bit
        effect = crc(bytes(at) + address.to_bytes(4, "big") + bytes(9 - at)) ^ zero
        for other, of in basis:
            if effect ^ other < effect:
                effect, address = effect ^ other, address ^ of
        if effect:
            basis = sorted([*basis, (effect, address)], reverse=True)
    return tuple(basis)
