# SPDX-License-Identifier: Apache-2.0
"""Generators of regular fabrics."""

from __future__ import annotations

from topo.graph import Host, Link, Switch, Tier, Topology


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    *,
    host_bps: int,
    fabric_bps: int,
    name: str = "leaf_spine",
) -> Topology:
    """A two-tier Clos: every leaf wired once to every spine.

    Leaf ports 1..hosts_per_leaf face hosts, the next `spines` ports face spine1, spine2, ...;
    port i of a spine faces leaf i. Leaf i owns 10.(i >> 8).(i & 255).0/24, host j of it has
    address .j, counting from 1. Rates are in bit/s.
    """
    if not (1 <= leaves <= 4096 and 0 <= spines <= 254 and 1 <= hosts_per_leaf <= 253):
        raise ValueError("leaf_spine needs 1-4096 leaves, 0-254 spines and 1-253 hosts per leaf")
    switches: list[Switch] = []
    hosts: list[Host] = []
    links: list[Link] = []
    prefixes: dict[str, str] = {}
    for i in range(1, leaves + 1):
        leaf = f"leaf{i}"
        switches.append(Switch(leaf, Tier.LEAF, i, f"02:01:00:00:{i >> 8:02x}:{i & 255:02x}"))
        prefixes[leaf] = f"10.{i >> 8}.{i & 255}.0/24"
        for j in range(1, hosts_per_leaf + 1):
            hosts.append(
                Host(
                    name=f"h{(i - 1) * hosts_per_leaf + j}",
                    ip=f"10.{i >> 8}.{i & 255}.{j}",
                    mac=f"02:00:00:{i >> 8:02x}:{i & 255:02x}:{j:02x}",
                    leaf=leaf,
                    leaf_port=j,
                    rate_bps=host_bps,
                )
            )
    for k in range(1, spines + 1):
        switches.append(Switch(f"spine{k}", Tier.SPINE, leaves + k, f"02:02:00:00:00:{k:02x}"))
        for i in range(1, leaves + 1):
            links.append(Link(f"leaf{i}", hosts_per_leaf + k, f"spine{k}", i, fabric_bps))
    return Topology(name, tuple(hosts), tuple(switches), tuple(links), prefixes)


def explicit(
    name: str,
    switches: list[tuple[str, Tier]],
    hosts: list[tuple[str, str, int]],
    links: list[tuple[str, str, int]],
) -> Topology:
    """A fabric from lists of (switch, tier), (host, leaf, bit/s) and (switch, switch, bit/s).

    Addresses and ports follow the order of the lists, as in `leaf_spine`: on each switch the hosts
    take the first ports, then the links.
    """
    built: list[Switch] = []
    prefixes: dict[str, str] = {}
    subnet: dict[str, int] = {}
    for i, (switch, tier) in enumerate(switches, start=1):
        built.append(Switch(switch, tier, i, f"02:0{tier.level + 1}:00:00:{i >> 8:02x}:{i & 255:02x}"))
        if tier is Tier.LEAF:
            subnet[switch] = i
            prefixes[switch] = f"10.{i >> 8}.{i & 255}.0/24"
    next_port = {switch: 1 for switch, _ in switches}

    def take_port(switch: str) -> int:
        next_port[switch] += 1
        return next_port[switch] - 1

    placed: list[Host] = []
    for host, leaf, rate in hosts:
        i, j = subnet[leaf], take_port(leaf)
        if j > 253:
            raise ValueError(f"{leaf} has more than 253 hosts")
        mac = f"02:00:00:{i >> 8:02x}:{i & 255:02x}:{j:02x}"
        placed.append(Host(host, f"10.{i >> 8}.{i & 255}.{j}", mac, leaf, j, rate))
    wired = [Link(a, take_port(a), b, take_port(b), rate) for a, b, rate in links]
    return Topology(name, tuple(placed), tuple(built), tuple(wired), prefixes)
