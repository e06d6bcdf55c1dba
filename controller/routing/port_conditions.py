# SPDX-License-Identifier: Apache-2.0
"""Which ports lead a connection along a path, as conditions on single bits of its two ports.

CRC is affine over GF(2): each bit of the hash is the parity of some bits of the hashed fields. So "the hash
chooses this path" is a set of parities of port bits, and whoever knows both ports checks them without knowing
the hash, addresses or tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np

from controller.routing.forwarding import BUCKETS
from controller.routing.hash import ecmp_hash
from controller.routing.paths import Forwarding, Path, route_to
from topo.graph import Topology

_BITS = 8
_PORT_BITS = 16


@dataclass(frozen=True, slots=True)
class PortCondition:
    """The number of set bits in (source port & `source_mask`) and (destination port & `dest_mask`) together
    is odd, or even."""

    source_mask: int
    dest_mask: int
    odd: bool

    def holds(self, source_port: int, dest_port: int) -> bool:
        """Whether a connection with these ports fulfils the condition."""
        bits = (source_port & self.source_mask).bit_count() + (dest_port & self.dest_mask).bit_count()
        return bool(bits % 2) == self.odd


def port_conditions(
    topology: Topology, forwarding: Forwarding, path: Path, protocol: int
) -> tuple[PortCondition, ...] | None:
    """Conditions that make the hash of the switches choose `path` (host to host) for packets of `protocol`.

    They are sufficient. Where a group's size is no power of two, other ports may lead along the path too.
    None if the hash is not known, or if the forwarding does not allow the path.
    """
    spec = topology.hash
    if not spec.known:
        return None
    wanted: dict[int, bool] = {}
    for switch, toward in pairwise(path[1:]):
        route = route_to(topology, forwarding, switch, path[-1])
        if route is None:
            return None
        table, ports = forwarding[switch], topology.ports[switch]
        hops = table.groups[route.id] if route.kind == "group" else (route.id,)
        leads = tuple(ports[table.next_hops[hop].port].node == toward for hop in hops)
        if not any(leads):
            return None
        if route.kind != "group":
            continue
        mask, value = _coset(leads)
        for bit in range(_BITS):
            if mask >> bit & 1:
                place, set_ = spec.slices[route.tier] + bit, bool(value >> bit & 1)
                if wanted.setdefault(place, set_) != set_:
                    return None
    src, dst = topology.host[path[0]].ip, topology.host[path[-1]].ip
    base = ecmp_hash(src, dst, 0, protocol=protocol, dest_port=0, algorithm=spec.algorithm)
    source, dest = _masks(spec.algorithm)
    return tuple(
        PortCondition(source[bit], dest[bit], set_ != bool(base >> bit & 1))
        for bit, set_ in sorted(wanted.items())
    )


def all_hold(conditions: Iterable[PortCondition], source_port: int, dest_port: int) -> bool:
    """Whether a connection with these ports fulfils all conditions."""
    return all(c.holds(source_port, dest_port) for c in conditions)


@cache
def _masks(algorithm: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each bit of the hash, which bits of the source port flip it, and which of the destination port."""

    def effect(source_port: int, dest_port: int) -> int:
        return ecmp_hash("0.0.0.0", "0.0.0.0", source_port, dest_port=dest_port, algorithm=algorithm)

    zero = effect(0, 0)
    source = [effect(1 << bit, 0) ^ zero for bit in range(_PORT_BITS)]
    dest = [effect(0, 1 << bit) ^ zero for bit in range(_PORT_BITS)]

    def masks(effects: list[int]) -> tuple[int, ...]:
        return tuple(
            sum((of >> hash_bit & 1) << port_bit for port_bit, of in enumerate(effects))
            for hash_bit in range(32)
        )

    return masks(source), masks(dest)


@lru_cache(maxsize=4096)
def _coset(leads: tuple[bool, ...]) -> tuple[int, int]:
    """(mask, value) with the fewest bits in `mask` such that all buckets b with b & mask == value lead there.

    `leads` (BUCKETS,) says which do; at least one does.
    """
    buckets = np.arange(BUCKETS)
    good = np.array(leads)
    for mask in sorted(range(BUCKETS), key=int.bit_count):
        bad = np.zeros(BUCKETS, dtype=np.bool_)
        bad[buckets[~good] & mask] = True
        values = buckets[good] & mask
        fits = values[~bad[values]]
        if len(fits):
            return mask, int(fits[0])
    raise AssertionError("a single bucket always fits")
