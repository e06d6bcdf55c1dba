# SPDX-License-Identifier: Apache-2.0
"""A fabric as frozen values: hosts, switches and the cables between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType


class Tier(StrEnum):
    """The place of a switch in the fabric, from the hosts upward."""

    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"

    @property
    def level(self) -> int:
        """0 for a leaf, counting upward; it picks the slice of the ECMP hash."""
        return ("leaf", "spine", "core").index(self.value)


@dataclass(frozen=True, slots=True)
class Host:
    """A NIC of a GPU host: its addresses, and the leaf port that it is connected to.

    Jobs send from and to `ip`, an IPv4 or IPv6 address in its canonical form. The fabric also forwards to
    `other_ips`. `server` is the machine where a machine has several NICs, one on each rail. It is empty where
    the host is the machine.
    """

    name: str
    ip: str
    mac: str
    leaf: str
    leaf_port: int
    rate_bps: int
    server: str = ""
    other_ips: tuple[str, ...] = ()

    @property
    def machine(self) -> str:
        """The machine that the NIC is in."""
        return self.server or self.name


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch: `device_id` is its P4Runtime device id; ports count from 1."""

    name: str
    tier: Tier
    device_id: int
    mac: str


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex cable between two switches, `rate_bps` in each direction."""

    a: str
    a_port: int
    b: str
    b_port: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class Peer:
    """What a switch port is wired to. `port` is the port at the other end; 0 for a host's NIC."""

    node: str
    port: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class HashSpec:
    """The switches' ECMP hash over source, destination, protocol and ports.

    The switches of tier t use 8 bits of it, from bit slices[t] upward. `algorithm` is one of HASH_BITS, or
    UNKNOWN_HASH if the switches' hash is not known.
    """

    algorithm: str = "crc32"
    slices: tuple[int, ...] = (0, 8, 16)

    @property
    def known(self) -> bool:
        """Whether source ports can be computed instead of learned by probes."""
        return self.algorithm != UNKNOWN_HASH


HASH_BITS: Mapping[str, int] = MappingProxyType({"crc32": 32, "crc16": 16})
"""Hash algorithms, and the bits of their hashes."""
UNKNOWN_HASH = "unknown"
OUR_HASH = HashSpec()
"""The hash of our own P4 program (p4/shared)."""


@dataclass(frozen=True)
class Topology:
    """A whole fabric. `prefixes` maps a leaf to its hosts' IPv4 or IPv6 prefix in CIDR form, `other_prefixes`
    to further ones.
    """

    name: str
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    prefixes: Mapping[str, str]
    hash: HashSpec = OUR_HASH
    other_prefixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def host(self) -> Mapping[str, Host]:
        """Hosts by name."""
        return MappingProxyType({h.name: h for h in self.hosts})

    @cached_property
    def machines(self) -> Mapping[str, tuple[Host, ...]]:
        """The NICs of every machine, in the order of the hosts."""
        nics: dict[str, list[Host]] = {}
        for h in self.hosts:
            nics.setdefault(h.machine, []).append(h)
        return MappingProxyType({name: tuple(found) for name, found in nics.items()})

    @cached_property
    def switch(self) -> Mapping[str, Switch]:
        """Switches by name."""
        return MappingProxyType({s.name: s for s in self.switches})

    @cached_property
    def ports(self) -> Mapping[str, Mapping[int, Peer]]:
        """For each switch, its wired ports and what is connected to each."""
        table: dict[str, dict[int, Peer]] = {s.name: {} for s in self.switches}
        for h in self.hosts:
            table[h.leaf][h.leaf_port] = Peer(h.name, 0, h.rate_bps)
        for link in self.links:
            table[link.a][link.a_port] = Peer(link.b, link.b_port, link.rate_bps)
            table[link.b][link.b_port] = Peer(link.a, link.a_port, link.rate_bps)
        return MappingProxyType({n: MappingProxyType(dict(sorted(p.items()))) for n, p in table.items()})

    @cached_property
    def upward(self) -> Mapping[str, tuple[str, ...]]:
        """For each switch, the switches of a higher tier on its ports, in the order of the ports.

        A switch that several cables lead to is there several times.
        """
        level = {s.name: s.tier.level for s in self.switches}
        found: dict[str, list[tuple[int, str]]] = {s.name: [] for s in self.switches}
        for k in self.links:
            for low, port, high in ((k.a, k.a_port, k.b), (k.b, k.b_port, k.a)):
                if level[low] < level[high]:
                    found[low].append((port, high))
        return MappingProxyType({low: tuple(s for _, s in sorted(above)) for low, above in found.items()})

    @cached_property
    def part(self) -> Mapping[str, str]:
        """For each switch, a representative of its connected part of the fabric.

        Two switches can reach each other if and only if their representatives are the same.
        """
        above = {s.name: s.name for s in self.switches}

        def root(name: str) -> str:
            while above[name] != name:
                above[name] = above[above[name]]
                name = above[name]
            return name

        for k in self.links:
            above[root(k.a)] = root(k.b)
        return MappingProxyType({name: root(name) for name in above})

    def __getstate__(self) -> dict[str, object]:
        """Pickle the fields only: the cached look-ups are read-only proxies and are rebuilt."""
        return {
            "name": self.name,
            "hosts": self.hosts,
            "switches": self.switches,
            "links": self.links,
            "prefixes": dict(self.prefixes),
            "hash": self.hash,
            "other_prefixes": dict(self.other_prefixes),
        }
