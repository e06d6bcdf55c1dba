# SPDX-License-Identifier: Apache-2.0
"""Generators of regular fabrics."""

from __future__ import annotations

from dataclasses import replace

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
    """A two-tier Clos: every leaf has one cable to every spine.

    Leaf ports 1..hosts_per_leaf lead to hosts, the next `spines` ports to spine1, spine2, and so on. Port i
    of a spine leads to leaf i. Leaf i has the prefix 10.(i >> 8).(i & 255).0/24, and its host j the address
    .j in it, counting from 1. Rates are in bit/s.
    """
    if not (1 <= leaves <= 4096 and 0 <= spines <= 254 and 1 <= hosts_per_leaf <= 253):
        raise ValueError("leaf_spine needs 1-4096 leaves, 0-254 spines and 1-253 hosts per leaf")
    switches: list[Switch] = []
    hosts: list[Host] = []
    links: list[Link] = []
    prefixes: dict[str, str] = {}
    for i in range(1, leaves + 1):
        switches.append(_switch(f"leaf{i}", Tier.LEAF, i, i))
        prefixes[f"leaf{i}"] = _prefix(i)
        for j in range(1, hosts_per_leaf + 1):
            hosts.append(_host(f"h{(i - 1) * hosts_per_leaf + j}", i, j, host_bps))
    for k in range(1, spines + 1):
        switches.append(_switch(f"spine{k}", Tier.SPINE, k, leaves + k))
        for i in range(1, leaves + 1):
            links.append(Link(f"leaf{i}", hosts_per_leaf + k, f"spine{k}", i, fabric_bps))
    return Topology(name, tuple(hosts), tuple(switches), tuple(links), prefixes)


def three_tier(
    pods: int,
    leaves_per_pod: int,
    spines_per_pod: int,
    cores_per_spine: int,
    hosts_per_leaf: int,
    *,
    host_bps: int,
    fabric_bps: int,
    name: str = "three_tier",
) -> Topology:
    """A three-tier Clos: in each pod every leaf is wired to every spine, and spine j of every pod to the
    cores of group j.

    Leaves, spines and cores are numbered pod by pod and group by group; addresses are as in `leaf_spine`.
    Switch ports: downward links first, in order, then upward ones. Rates are in bit/s.
    """
    leaves = pods * leaves_per_pod
    if min(pods, leaves_per_pod, spines_per_pod, cores_per_spine, hosts_per_leaf) < 1:
        raise ValueError("three_tier needs at least one pod, leaf, spine, core and host of each kind")
    if leaves > 4096 or hosts_per_leaf > 253 or hosts_per_leaf + spines_per_pod > 510:
        raise ValueError("three_tier has at most 4096 leaves, 253 hosts and 510 ports per leaf")
    if pods > 510 or leaves_per_pod + cores_per_spine > 510 or spines_per_pod * pods > 65535:
        raise ValueError("three_tier has at most 510 ports per switch and 65535 spines")
    switches = [_switch(f"leaf{i}", Tier.LEAF, i, i) for i in range(1, leaves + 1)]
    switches += [_switch(f"spine{i}", Tier.SPINE, i, leaves + i) for i in range(1, pods * spines_per_pod + 1)]
    cores = spines_per_pod * cores_per_spine
    switches += [_switch(f"core{i}", Tier.CORE, i, len(switches) + i) for i in range(1, cores + 1)]
    hosts = [
        _host(f"h{(i - 1) * hosts_per_leaf + j}", i, j, host_bps)
        for i in range(1, leaves + 1)
        for j in range(1, hosts_per_leaf + 1)
    ]
    links: list[Link] = []
    for p in range(pods):
        for j in range(1, spines_per_pod + 1):
            spine = f"spine{p * spines_per_pod + j}"
            for i in range(1, leaves_per_pod + 1):
                leaf = f"leaf{p * leaves_per_pod + i}"
                links.append(Link(leaf, hosts_per_leaf + j, spine, i, fabric_bps))
            for c in range(1, cores_per_spine + 1):
                core = f"core{(j - 1) * cores_per_spine + c}"
                links.append(Link(spine, leaves_per_pod + c, core, p + 1, fabric_bps))
    prefixes = {f"leaf{i}": _prefix(i) for i in range(1, leaves + 1)}
    return Topology(name, tuple(hosts), tuple(switches), tuple(links), prefixes)


def rail(
    groups: int,
    rails: int,
    spines: int,
    servers_per_group: int,
    *,
    host_bps: int,
    fabric_bps: int,
    name: str = "rail",
) -> Topology:
    """A rail-optimised leaf-spine: NIC r of every server of a group is wired to the group's leaf r.

    Server n is called "hn" and its NIC on rail r "hn.r"; leaf (g - 1) * rails + r is rail r of group g.
    Rates are in bit/s.
    """
    if groups < 1 or rails < 1 or servers_per_group < 1:
        raise ValueError("rail needs at least one group, rail and server")
    wired = leaf_spine(
        groups * rails, spines, servers_per_group, host_bps=host_bps, fabric_bps=fabric_bps, name=name
    )
    hosts = [
        replace(
            wired.hosts[((n // servers_per_group) * rails + r) * servers_per_group + n % servers_per_group],
            name=f"h{n + 1}.{r + 1}",
            server=f"h{n + 1}",
        )
        for n in range(groups * servers_per_group)
        for r in range(rails)
    ]
    return replace(wired, hosts=tuple(hosts))


def _prefix(leaf: int) -> str:
    return f"10.{leaf >> 8}.{leaf & 255}.0/24"


def _switch(name: str, tier: Tier, number: int, device_id: int) -> Switch:
    return Switch(name, tier, device_id, f"02:0{tier.level + 1}:00:00:{number >> 8:02x}:{number & 255:02x}")


def _host(name: str, leaf: int, number: int, rate_bps: int) -> Host:
    """Host `number` of leaf number `leaf`; both count from 1."""
    mac = f"02:00:00:{leaf >> 8:02x}:{leaf & 255:02x}:{number:02x}"
    return Host(name, f"10.{leaf >> 8}.{leaf & 255}.{number}", mac, f"leaf{leaf}", number, rate_bps)


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
