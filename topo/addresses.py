# SPDX-License-Identifier: Apache-2.0
"""IP addresses of both families, as text and as numbers, and those that a generated fabric has."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, get_args

from topo.graph import Host, Topology

Families = Literal["ipv4", "ipv6", "ipv4+ipv6", "ipv6+ipv4"]
"""The address families of a generated fabric's hosts. Jobs use the first one; switches forward both."""
FAMILIES: tuple[str, ...] = get_args(Families)

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


def in_families(topology: Topology, families: Families) -> Topology:
    """A generated fabric of IPv4 (`topo.generate`) with the addresses of these families.

    The IPv6 counterpart of leaf i's prefix 10.(i >> 8).(i & 255).0/24 is fd00:0:0:i::/64, with i in hex, and
    host .j in it is ::j.
    """
    if families == "ipv4":
        return topology
    first, _, second = families.partition("+")

    def host(given: Host) -> Host:
        found = {"ipv4": given.ip, "ipv6": _counterpart(given.ip)}
        return replace(given, ip=found[first], other_ips=(found[second],) if second else ())

    prefixes: dict[str, str] = {}
    others: dict[str, tuple[str, ...]] = {}
    for leaf, prefix in topology.prefixes.items():
        ipv6 = f"{_counterpart(prefix.partition('/')[0])}/64"
        found = {"ipv4": prefix, "ipv6": ipv6}
        prefixes[leaf] = found[first]
        if second:
            others[leaf] = (found[second],)
    hosts = tuple(host(h) for h in topology.hosts)
    return replace(topology, hosts=hosts, prefixes=prefixes, other_prefixes=others)


def _counterpart(ipv4: str) -> str:
    value = number_of(ipv4)
    return str(IPv6Address(_IPV6_PREFIX | (value >> 8 & 0xFFFF) << 64 | value & 0xFF))
