# SPDX-License-Identifier: Apache-2.0
"""A fabric from nodes and cables as other programs name them, with tiers, ports and addresses of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from polyrhythm_files import InvalidValueError, Loc
from topo.graph import Host, Link, Switch, Tier, Topology

DEFAULT_BPS = 100_000_000_000
"""The rate of a cable that a file gives no rate."""
NAME_LEGAL = "legal: printable text"
_MOST_DIGITS = 18
MAX_NICS = 253
"""NICs of a leaf: what a generated prefix of 256 addresses holds."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A host's NIC and the leaf port that it is connected to. `mac` empty: generated. `loc`: where the file
    names it."""

    name: str
    leaf: str
    leaf_port: int
    rate_bps: int
    server: str = ""
    mac: str = ""
    loc: Loc = ()


@dataclass(slots=True)
class Ports:
    """The ports of switches: those that a file numbers, and the next free ones for the others."""

    _taken: dict[str, dict[int, Loc]] = field(default_factory=dict)

    def take(self, switch: str, port: int, loc: Loc) -> int:
        """Take a port that the file numbers. Raises InvalidValueError."""
        taken = self._taken.setdefault(switch, {})
        if port in taken:
            raise InvalidValueError(loc, f"port {port} of {switch} has a cable already; legal: one a port")
        taken[port] = loc
        return port


def inferred_tiers(
    switches: Mapping[str, Loc], leaves: Collection[str], cables: Iterable[tuple[str, str]]
) -> dict[str, Tier]:
    """The tier of each switch: leaves are given; others are as many cables above the nearest leaf.

    Raises:
        InvalidValueError: a switch that no leaf reaches, or that is above three tiers; at its path.
    """
    joined: dict[str, list[str]] = {name: [] for name in switches}
    for a, b in cables:
        joined[a].append(b)
        joined[b].append(a)
    tiers = list(Tier)
    found = dict.fromkeys(leaves, tiers[0])
    edge = list(found)
    for tier in tiers[1:]:
        edge = [other for switch in edge for other in joined[switch] if other not in found]
        edge = list(dict.fromkeys(edge))
        found |= dict.fromkeys(edge, tier)
    for name, loc in switches.items():
        if name not in found:
            raise InvalidValueError(
                loc,
                f"{name} is not within two cables of a switch with hosts; legal: leaves, spines and cores",
            )
    return {name: found[name] for name in switches}


def wired(
    name: str,
    tiers: Mapping[str, Tier],
    nics: Sequence[Nic],
    cables: Sequence[Link],
    device_ids: Mapping[str, int] | None = None,
) -> Topology:
    """A fabric of these switches (with tiers), NICs and cables, with generated addresses.

    `device_ids` are those of P4Runtime; without it, switches count from 1 in their order. Leaf number i
    has the prefix 10.(i >> 8).(i & 255).0/24, and its NICs count from 1 in it.

    Raises:
        InvalidValueError: a leaf has more NICs than its prefix has addresses.
    """
    number = {switch: i for i, switch in enumerate(tiers, start=1)}
    ids = device_ids or number
    switches = [
        Switch(s, tier, ids[s], f"02:0{tier.level + 1}:00:00:{i >> 8:02x}:{i & 255:02x}")
        for (s, tier), i in zip(tiers.items(), number.values(), strict=True)
    ]
    used: dict[str, int] = {}
    hosts = []
    for nic in nics:
        i = number[nic.leaf]
        j = used[nic.leaf] = used.get(nic.leaf, 0) + 1
        if j > MAX_NICS:
            raise InvalidValueError(nic.loc, f"{nic.leaf} has more hosts; legal: at most {MAX_NICS}")
        mac = nic.mac.lower() or f"02:00:00:{i >> 8:02x}:{i & 255:02x}:{j:02x}"
        ip = f"10.{i >> 8}.{i & 255}.{j}"
        hosts.append(Host(nic.name, ip, mac, nic.leaf, nic.leaf_port, nic.rate_bps, nic.server))
    prefixes = {s: f"10.{i >> 8}.{i & 255}.0/24" for s, i in number.items() if tiers[s] is Tier.LEAF}
    return Topology(name, tuple(hosts), tuple(switches), tuple(cables), prefixes)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts `eth2` before `eth10`."""
    # Python reads no number of thousands of digits.
    return tuple(
        (0, len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    )


def port_numbers(interfaces: Collection[str]) -> dict[str, int]:
    """The port of each interface of a switch: the last number in its name, as 3 in `e1-3` and `Ethernet1/3`.

    Where these are not different numbers from 1, interfaces count from 1 in the order of their names.
    """
    numbers = {name: _last_number(name) for name in interfaces}
    if len(set(numbers.values())) == len(numbers) and all(0 < n < 1 << 32 for n in numbers.values()):
        return numbers
    return {name: i for i, name in enumerate(sorted(interfaces, key=natural), start=1)}


def _last_number(name: str) -> int:
    """The last number in a name; 0: none, or one that no port has."""
    found = re.findall(r"\d+", name)
    return int(found[-1]) if found and len(found[-1]) <= _MOST_DIGITS else 0
