# SPDX-License-Identifier: Apache-2.0
"""A fabric as frozen values: hosts, switches and the cables between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
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
    the host is the machine. A NIC that takes packets in `any_order` repeats single packets, so switches may
    spray what it sends and receives.
    """

    name: str
    ip: str
    mac: str
    leaf: str
    leaf_port: int
    rate_bps: int
    server: str = ""
    other_ips: tuple[str, ...] = ()
    any_order: bool = False

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
    def directions(self) -> Mapping[tuple[str, int], int]:
        """The number of each direction of a cable by its sending end, (node, port): the ports of the switches
        in the order of `ports`, then the NICs of the hosts, which have port 0."""
        ends = [(switch, port) for switch, ports in self.ports.items() for port in ports]
        ends += [(host.name, 0) for host in self.hosts]
        return MappingProxyType({end: number for number, end in enumerate(ends)})

    @cached_property
    def cables(self) -> Mapping[tuple[str, str], tuple[tuple[str, int], tuple[str, int]]]:
        """The two ends, (node, port), of every cable by its name: its ends, sorted.

        An end is named by its node, or NODE:PORT where several cables join the same two switches. A host's
        end has port 0.
        """
        together = Counter(frozenset((k.a, k.b)) for k in self.links)
        found: dict[tuple[str, str], tuple[tuple[str, int], tuple[str, int]]] = {}
        for host in self.hosts:
            names = sorted((host.name, host.leaf))
            found[names[0], names[1]] = (host.name, 0), (host.leaf, host.leaf_port)
        for k in self.links:
            ends = (k.a, k.a_port), (k.b, k.b_port)
            several = together[frozenset((k.a, k.b))] > 1
            names = sorted(f"{node}:{port}" if several else node for node, port in ends)
            found[names[0], names[1]] = ends
        return MappingProxyType(found)

    @cached_property
    def cable_at(self) -> Mapping[tuple[str, int], tuple[str, str]]:
        """The name of the cable at each port of a switch, (switch, port)."""
        return MappingProxyType(
            {end: name for name, ends in self.cables.items() for end in ends if end[0] in self.switch}
        )

    @cached_property
    def bundles(self) -> Mapping[tuple[str, str], tuple[tuple[str, str], ...]]:
        """The names of the cables of every two switches that several cables join, by their sorted names."""
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for name, ((a, _), (b, _)) in self.cables.items():
            found.setdefault((min(a, b), max(a, b)), []).append(name)
        return MappingProxyType({ends: tuple(names) for ends, names in found.items() if len(names) > 1})

    def is_down(self, link: Link, down_links: Collection[tuple[str, str]]) -> bool:
        """Whether a cable between switches is among what is down: by its own name, or by the sorted names of
        its two switches, which stand for all cables between them."""
        if not down_links:
            return False
        both = (min(link.a, link.b), max(link.a, link.b))
        return both in down_links or (
            both in self.bundles and self.cable_at[link.a, link.a_port] in down_links
        )

    def down_pairs(self, down_links: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """The sorted names of nodes that all cables between them are down."""
        whole = (ends for ends, names in self.bundles.items() if down_links and set(names) <= {*down_links})
        return frozenset((*down_links, *whole))

    def split_bundles(self, down_links: Collection[tuple[str, str]]) -> bool:
        """Whether some of the cables between two switches are down and others are not."""
        return any(
            ends not in down_links and 0 < sum(name in down_links for name in names) < len(names)
            for ends, names in (self.bundles.items() if down_links else ())
        )

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
