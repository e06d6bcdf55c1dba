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
