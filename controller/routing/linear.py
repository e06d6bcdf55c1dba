# SPDX-License-Identifier: Apache-2.0
"""CRC hashes of whole arrays of flows, for any CRC: they are affine over GF(2)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from controller.routing.hash import ROCE_PORT, ROCE_PORTS, UDP

# Where the bytes of the hashed fields are: source 0-3, destination 4-7, protocol 8, ports 9-10 and 11-12.
FIELDS = ("src_addr", "dst_addr", "protocol", "src_port", "dst_port")
_LENGTH = 13


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, initial value 0; what P4's crc16 is on BMv2."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xA001 if value & 1 else 0)
    return value


ALGORITHMS: Mapping[str, Callable[[bytes], int]] = MappingProxyType({"crc32": zlib.crc32, "crc16": crc16})


@dataclass(frozen=True, slots=True)
class HashSpec:
    """A switch's ECMP hash over FIELDS: tier t takes 8 bits of it, from bit slices[t] upward."""

    algorithm: str = "crc32"
    slices: tuple[int, ...] = (0, 8, 16)


OURS = HashSpec()


@cache
def _tables(algorithm: str) -> tuple[int, NDArray[np.uint32]]:
    """(hash of zeros, (13, 256): what each value of each byte XORs into it), from single bits by doubling."""
    crc = ALGORITHMS[algorithm]
    zero = crc(bytes(_LENGTH))
    tables = np.zeros((_LENGTH, 256), dtype=np.uint32)
    for place in range(_LENGTH):
        for bit in range(8):
            data = bytearray(_LENGTH)
            data[place] = 1 << bit
            size = 1 << bit
            tables[place, size : 2 * size] = tables[place, :size] ^ np.uint32(crc(bytes(data)) ^ zero)
    tables.setflags(write=False)
    return zero, tables


def bases(spec: HashSpec, src: NDArray[np.uint32], dst: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The hash of each RoCEv2 flow for source port 0; addresses as 32-bit numbers."""
    zero, tables = _tables(spec.algorithm)
    start = zero ^ int(tables[8][UDP]) ^ int(tables[11][ROCE_PORT >> 8]) ^ int(tables[12][ROCE_PORT & 255])
    result = np.full(len(src), start, dtype=np.uint32)
    for place, address in ((0, src), (4, dst)):
        for i in range(4):
            result ^= tables[place + i][(address >> np.uint32(24 - 8 * i)) & np.uint32(255)]
    return result


@cache
def contributions(algorithm: str) -> NDArray[np.uint32]:
    """What each legal source port XORs into the hash of port 0, (16384,) from 0xC000 on."""
    _, tables = _tables(algorithm)
    port = np.arange(ROCE_PORTS.start, ROCE_PORTS.stop)
    result: NDArray[np.uint32] = tables[9][port >> 8] ^ tables[10][port & 255]
    result.setflags(write=False)
    return result


@dataclass(frozen=True, slots=True)
class Polarisation:
    """How many of the `possible` combinations of choices at successive tiers any source port reaches."""

    reached: int
    possible: int

    @property
    def polarised(self) -> bool:
        """Whether some paths cannot be reached by any port."""
        return self.reached < self.possible


def polarisation(spec: HashSpec, ways: tuple[int, ...]) -> Polarisation:
    """Whether tiers with ways[t] equal choices, bucket b taking choice b mod ways[t], see one another's bits.

    CRC is affine, so another flow or seed shifts the choices but reaches as many combinations.
    """
    value = contributions(spec.algorithm)
    joint = np.zeros(len(value), dtype=np.int64)
    possible = 1
    for shift, n in zip(spec.slices, ways, strict=False):
        joint = joint * n + ((value >> np.uint32(shift)) & np.uint32(255)) % n
        possible *= n
    return Polarisation(len(np.unique(joint)), possible)
