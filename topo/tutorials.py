# SPDX-License-Identifier: Apache-2.0
"""The `topology.json` of p4lang's tutorials as a fabric.

Names, MAC addresses, switch ports and bandwidths are the file's; IPv4 addresses are ours, for each leaf needs
one prefix and the tutorials give every host a subnet of its own. A switch with hosts is a leaf, one without a
spine. The hosts' commands and the switches' run-time files are not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from polyrhythm_files import ConfigError
from topo.graph import Host, Link, Switch, Tier, Topology

DEFAULT_BPS = 100_000_000_000
"""The rate of a cable that the file gives no bandwidth."""
_END = re.compile(r"^(?P<node>.+)-p(?P<port>[0-9]{1,3})$")
_MAC = re.compile(r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$")
_MOST_PORT = 510
_MOST_NODES = 4096


def is_tutorial(data: object) -> bool:
    """Whether the value of a file looks like one: hosts and switches by name, links as lists."""
    return (
        isinstance(data, Mapping)
        and isinstance(data.get("hosts"), Mapping)
        and isinstance(data.get("switches"), Mapping)
        and isinstance(data.get("links"), list)
    )


def read_tutorial(
    data: Mapping[str, Any],
    where: str,
    name: str,
    *,
    default_bps: int = DEFAULT_BPS,
    scale: float = 1.0,
) -> Topology:
    """The fabric of a tutorial's file.

    `default_bps` is the rate of cables without a bandwidth; those in the file, in Mbit/s of an emulation,
    count `scale` times.

    Raises:
        ConfigError: with the path in the value and what would be legal.
    """
    hosts, switches = data["hosts"], data["switches"]
    if not 1 <= len(hosts) <= _MOST_NODES or not 1 <= len(switches) <= _MOST_NODES:
        raise ConfigError(f"{where}: 1 to {_MOST_NODES} hosts and as many switches are needed")
    clash = next((n for n in hosts if n in switches), None)
    if clash is not None:
        raise ConfigError(f"{where}.hosts.{clash}: names a switch too")
    attached: dict[str, tuple[str, int, int]] = {}
    cables: list[tuple[str, int, str, int, int]] = []
    taken: set[tuple[str, int]] = set()
    for i, item in enumerate(data["links"]):
        at = f"{where}.links[{i}]"
        names = item[:2] if isinstance(item, list) and 2 <= len(item) <= 4 else []
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{at}: [end, end, latency, bandwidth] is needed, the last two at will")
        rate = round(scale * _rate(item[3], at)) if len(item) == 4 else default_bps
        ends = sorted((_end(e, at, hosts, switches) for e in names), key=lambda end: end[1] != 0)
        for node, port in ends:
            if port and (node, port) in taken:
                raise ConfigError(f"{at}: port {port} of {node} is taken already")
            taken.add((node, port))
        (a, a_port), (b, b_port) = ends
        if not b_port or a == b:
            raise ConfigError(f"{at}: a cable joins a host and a switch, or two switches")
        if a_port:
            cables.append((a, a_port, b, b_port, rate))
        elif a in attached:
            raise ConfigError(f"{at}: {a} hangs on {attached[a][0]} already")
        else:
            attached[a] = b, b_port, rate
    loose = next((h for h in hosts if h not in attached), None)
    if loose is not None:
        raise ConfigError(f"{where}.hosts.{loose}: no link joins it to a switch")
    return _build(name, hosts, list(switches), attached, cables, where)


def _build(
    name: str,
    hosts: Mapping[str, Any],
    switches: list[str],
    attached: Mapping[str, tuple[str, int, int]],
    cables: list[tuple[str, int, str, int, int]],
    where: str,
) -> Topology:
    leaves = {leaf for leaf, _, _ in attached.values()}
    number = {switch: i for i, switch in enumerate(switches, start=1)}
    built = []
    for switch, i in number.items():
        tier = Tier.LEAF if switch in leaves else Tier.SPINE
        built.append(Switch(switch, tier, i, f"02:0{tier.level + 1}:00:00:{i >> 8:02x}:{i & 255:02x}"))
    placed = []
    used: dict[str, int] = dict.fromkeys(switches, 0)
    for host, settings in hosts.items():
        leaf, port, rate = attached[host]
        i = number[leaf]
        used[leaf] += 1
        j = used[leaf]
        mac = settings.get("mac") if isinstance(settings, Mapping) else None
        if mac is None:
            mac = f"02:00:00:{i >> 8:02x}:{i & 255:02x}:{j:02x}"
        elif not isinstance(mac, str) or not _MAC.match(mac):
            raise ConfigError(f"{where}.hosts.{host}.mac: {mac!r} is no MAC address")
        placed.append(Host(host, f"10.{i >> 8}.{i & 255}.{j}", mac.lower(), leaf, port, rate))
    prefixes = {s: f"10.{i >> 8}.{i & 255}.0/24" for s, i in number.items() if s in leaves}
    return Topology(name, tuple(placed), tuple(built), tuple(Link(*cable) for cable in cables), prefixes)


def _end(text: str, at: str, hosts: Mapping[str, Any], switches: Mapping[str, Any]) -> tuple[str, int]:
    """(node, port) of a link's end; the port of a host is 0."""
    if text in hosts:
        return text, 0
    found = _END.match(text)
    if found and found["node"] in switches and 1 <= int(found["port"]) <= _MOST_PORT:
        return found["node"], int(found["port"])
    raise ConfigError(
        f"{at}: {text!r} is neither a host nor SWITCH-pN with a switch of the file, N from 1 to {_MOST_PORT}"
    )


def _rate(value: object, at: str) -> int:
    try:
        rate = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 10_000_000:
        raise ConfigError(f"{at}: bandwidth {value!r}; Mbit/s above 0 and up to 10000000 are needed")
    return max(1, round(rate * 1e6))
