# SPDX-License-Identifier: Apache-2.0
"""The `topology.json` of p4lang's tutorials as a fabric.

Names, MAC addresses, switch ports and bandwidths are the file's. IPv4 addresses are generated: each leaf
needs one prefix, and the tutorials give every host a subnet of its own. A switch with hosts is a leaf, a
switch without hosts is a spine. The hosts' commands and the switches' run-time files are not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from polyrhythm_files import InvalidValueError, Loc, shown
from topo.file_types import TutorialTopology
from topo.graph import Link, Tier, Topology
from topo.wiring import DEFAULT_BPS, Nic, wired

_END = re.compile(r"^(?P<node>.+)-p(?P<port>[0-9]{1,3})$")
_MAC = re.compile(r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$")
_MAX_PORT = 510
"""Of a switch: v1model's ports have 9 bits, and 511 drops."""


def is_tutorial(data: object) -> bool:
    """Whether the value of a file looks like a tutorial's: hosts and switches by name, links in a list."""
    return (
        isinstance(data, Mapping)
        and isinstance(data.get("hosts"), Mapping)
        and isinstance(data.get("switches"), Mapping)
        and isinstance(data.get("links"), list)
    )


def tutorial_topology(
    given: TutorialTopology, name: str, *, default_bps: int = DEFAULT_BPS, scale: float = 1.0
) -> Topology:
    """The fabric of a tutorial's file.

    `default_bps` is the rate of cables without a bandwidth. Bandwidths of the file are Mbit/s of an emulation
    and count `scale` times.

    Raises:
        InvalidValueError: names, ports, cables or addresses that make no fabric.
    """
    hosts, switches = given.hosts, given.switches
    clash = next((n for n in hosts if n in switches), None)
    if clash is not None:
        raise InvalidValueError(("hosts", clash), "this name is a switch's too; legal: a name of its own")
    attached: dict[str, tuple[str, int, int]] = {}
    cables: list[tuple[str, int, str, int, int]] = []
    taken: set[tuple[str, int]] = set()
    for i, item in enumerate(given.links):
        at: Loc = ("links", i)
        rate = round(scale * _rate(item[3], i)) if len(item) == 4 else default_bps
        found = [_end(end, (*at, k), hosts, switches) for k, end in enumerate(item[:2])]
        ends = sorted(found, key=lambda end: end[1] != 0)
        for node, port in ends:
            if port and (node, port) in taken:
                raise InvalidValueError(at, f"port {port} of {node} has a cable already; legal: one a port")
            taken.add((node, port))
        (a, a_port), (b, b_port) = ends
        if not b_port or a == b:
            raise InvalidValueError(
                at, f"joins {a} and {b}; legal: a host and a switch, or two different switches"
            )
        if a_port:
            cables.append((a, a_port, b, b_port, rate))
        elif a in attached:
            raise InvalidValueError(
                at, f"{a} is connected to {attached[a][0]} already; legal: one cable a host"
            )
        else:
            attached[a] = b, b_port, rate
    loose = next((h for h in hosts if h not in attached), None)
    if loose is not None:
        raise InvalidValueError(("hosts", loose), "no link joins it to a switch; legal: one link each")
    return _build(name, hosts, list(switches), attached, cables)


def _build(
    name: str,
    hosts: Mapping[str, Any],
    switches: list[str],
    attached: Mapping[str, tuple[str, int, int]],
    cables: list[tuple[str, int, str, int, int]],
) -> Topology:
    leaves = {leaf for leaf, _, _ in attached.values()}
    nics = []
    macs: dict[str, str] = {}
    for host, settings in hosts.items():
        mac = settings.get("mac", "") if isinstance(settings, Mapping) else ""
        if mac != "" and (not isinstance(mac, str) or not _MAC.match(mac)):
            raise InvalidValueError(("hosts", host, "mac"), f"{shown(mac)} is wrong; legal: a MAC address")
        if mac and macs.setdefault(mac.lower(), host) != host:
            raise InvalidValueError(
                ("hosts", host, "mac"),
                f"{shown(mac)} is also the MAC address of {macs[mac.lower()]}; legal: of one host",
            )
        nics.append(Nic(host, *attached[host], mac=mac, loc=("hosts", host)))
    tiers = {switch: Tier.LEAF if switch in leaves else Tier.SPINE for switch in switches}
    return wired(name, tiers, nics, [Link(*cable) for cable in cables])


def _end(end: object, at: Loc, hosts: Mapping[str, Any], switches: Mapping[str, Any]) -> tuple[str, int]:
    """(node, port) of a link's end; the port of a host is 0."""
    if isinstance(end, str):
        if end in hosts:
            return end, 0
        found = _END.match(end)
        if found and found["node"] in switches and 1 <= int(found["port"]) <= _MAX_PORT:
            return found["node"], int(found["port"])
    raise InvalidValueError(
        at,
        f"{shown(end)} is wrong; legal: a host, or SWITCH-pN of a switch, N from 1 to {_MAX_PORT}",
    )


def _rate(value: object, link: int) -> int:
    """The bit/s of a bandwidth in Mbit/s, which may be a number or a text with one."""
    try:
        rate = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 10_000_000:
        raise InvalidValueError(
            ("links", link, 3), f"{shown(value)} is wrong; legal: Mbit/s above 0, at most 10000000"
        )
    return max(1, round(rate * 1e6))
