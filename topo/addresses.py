# SPDX-License-Identifier: Apache-2.0
"""IP addresses of both families, as text and as numbers, and those that a generated fabric has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from types import MappingProxyType
from typing import Literal

from topo.graph import Host, Topology

Families = Literal["ipv4", "ipv6", "ipv4+ipv6", "ipv6+ipv4"]
"""The address families of a generated fabric's hosts. Jobs use the first one; switches forward both."""

_IPV6_PREFIX = 0xFD00 << 112
"""Generated IPv6 addresses are unique local ones (RFC 4193). Chosen: the prefix that is easiest to read."""


def canonical_address(text: str) -> str:
    """The address in its usual form (RFC 5952 for IPv6), by which addresses are compared.

    Raises:
        ValueError: neither an IPv4 nor an IPv6 address, or one that no switch forwards to.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            raise ValueError(f"{text!r} stands for an IPv4 address: write {address.ipv4_mapped}")
        if address.is_link_local or address.is_multicast or address.scope_id is not None:
            raise ValueError(
                f"{text!r} means nothing beyond one cable: give a global or unique local address"
            )
    return str(address)


def canonical_prefix(text: str) -> str:
    """An IPv4 or IPv6 prefix in CIDR form, in its usual form. Raises ValueError for anything else."""
    return str(ip_network(text))


def is_ipv6(address: str) -> bool:
    """The family of an address or prefix: IPv6, or else IPv4."""
    return ":" in address


@lru_cache(maxsize=1 << 17)
def number_of(address: str) -> int:
    """An address as a number of 32 or 128 bits. Kept: parsing takes longer than most uses."""
    return int(ip_address(address))


def packed(address: str) -> bytes:
    """The 4 or 16 bytes of an address on the wire."""
    return number_of(address).to_bytes(16 if is_ipv6(address) else 4, "big")


def unpacked(address: bytes) -> str:
    """The text of the 4 or 16 bytes of an address on the wire."""
    return str(IPv4Address(address) if len(address) == 4 else IPv6Address(address))


def host_prefix(address: str) -> str:
    """The prefix that holds this address only."""
    return f"{address}/{128 if is_ipv6(address) else 32}"


def in_families(
    topology: Topology, families: Families, of_hosts: Mapping[str, Families | None] = MappingProxyType({})
) -> Topology:
    """A generated fabric of IPv4 (`topo.generate`) with the addresses of these families.

    `of_hosts` gives single hosts others. A leaf has a prefix of every family that it or one of its hosts has.
    The IPv6 counterpart of leaf i's prefix 10.(i >> 8).(i & 255).0/24 is fd00:0:0:i::/64, with i in hex, and
    that of host .j in it is ::j.
    """
    hosts: list[Host] = []
    of_leaf = {leaf: dict.fromkeys(families.split("+")) for leaf in topology.prefixes}
    for h in topology.hosts:
        own = (of_hosts.get(h.name) or families).split("+")
        of_leaf[h.leaf].update(dict.fromkeys(own))
        ips = [h.ip if family == "ipv4" else _counterpart(h.ip) for family in own]
        hosts.append(replace(h, ip=ips[0], other_ips=tuple(ips[1:])))
    prefixes: dict[str, str] = {}
    others: dict[str, tuple[str, ...]] = {}
    for leaf, prefix in topology.prefixes.items():
        ipv6 = f"{_counterpart(prefix.partition('/')[0])}/64"
        found = [prefix if family == "ipv4" else ipv6 for family in of_leaf[leaf]]
        prefixes[leaf] = found[0]
        if found[1:]:
            others[leaf] = tuple(found[1:])
    return replace(topology, hosts=tuple(hosts), prefixes=prefixes, other_prefixes=others)


def _counterpart(ipv4: str) -> str:
    value = number_of(ipv4)
    return str(IPv6Address(_IPV6_PREFIX | (value >> 8 & 0xFFFF) << 64 | value & 0xFF))
