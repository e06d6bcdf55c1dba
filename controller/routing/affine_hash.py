# SPDX-License-Identifier: Apache-2.0
"""CRC hashes of whole arrays of flows, for any CRC: they are affine over GF(2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from controller.routing.hash import ALGORITHMS, UDP
from controller.wire.rocev2 import ROCE_PORT, ROCE_SOURCE_PORTS
from topo.graph import HashSpec, Tier, Topology

# Where the bytes of the hashed fields are: source 0-3, destination 4-7, protocol 8, ports 9-10 and 11-12.
FIELDS = ("src_addr", "dst_addr", "protocol", "src_port", "dst_port")
_LENGTH = 13


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
    """The hash of each RoCEv2 flow for source port 0; addresses as in `ports.sources` and `destinations`."""
    zero, tables = _tables(spec.algorithm)
    start = zero ^ int(tables[8][UDP]) ^ int(tables[11][ROCE_PORT >> 8]) ^ int(tables[12][ROCE_PORT & 255])
    of_source, of_destination = _of_address(tables[:4], src), _of_address(tables[4:8], dst)
    result: NDArray[np.uint32] = np.uint32(start) ^ of_source ^ of_destination
    return result


def _of_address(tables: NDArray[np.uint32], address: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What the four bytes of each address XOR into the hash."""
    result: NDArray[np.uint32] = tables[0][address >> np.uint32(24)]
    for i in range(1, 4):
        result ^= tables[i][(address >> np.uint32(24 - 8 * i)) & np.uint32(255)]
    return result


@cache
def contributions(algorithm: str) -> NDArray[np.uint32]:
    """What each legal source port XORs into the hash of port 0, (16384,) from 0xC000 on."""
    _, tables = _tables(algorithm)
    port = np.arange(ROCE_SOURCE_PORTS.start, ROCE_SOURCE_PORTS.stop)
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


def uplink_choices(topology: Topology) -> tuple[int, ...]:
    """Per tier, from the leaves upward, the most cables that a switch can choose among on the way up."""
    most: dict[int, int] = {}
    for s in topology.switches:
        ways = len(topology.upward[s.name])
        most[s.tier.level] = max(most.get(s.tier.level, 1), ways, 1)
    return tuple(most.get(tier.level, 1) for tier in Tier)


def polarisation_of(topology: Topology) -> Polarisation | None:
    """What the fabric's tiers do to one another's choices; None where the hash is not known."""
    return polarisation(topology.hash, uplink_choices(topology)) if topology.hash.known else None


def polarised_words(topology: Topology) -> str:
    """A line that says which tiers share bits of the hash, and what that costs; empty where none do."""
    found, spec = polarisation_of(topology), topology.hash
    if found is None or not found.polarised:
        return ""
    ways = uplink_choices(topology)
    tiers = [t for t in Tier if ways[t.level] > 1]
    shared = [
        f"{a.value} and {b.value} switches read common bits ({spec.slices[a.level]} and "
        f"{spec.slices[b.level]} upward)"
        for i, a in enumerate(tiers)
        for b in tiers[i + 1 :]
        if abs(spec.slices[a.level] - spec.slices[b.level]) < 8
    ]
    why = "; ".join(shared) or "the hash has too few independent bits"
    return (
        f"polarised: {why}: source ports reach {found.reached} of {found.possible} combinations of uplinks, "
        "whatever the seed; give each tier bits of its own"
    )
