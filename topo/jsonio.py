# SPDX-License-Identifier: Apache-2.0
"""A fabric as JSON: the form in which one process hands a topology to another."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm_files import ConfigError
from topo.graph import HASH_BITS, OURS, UNKNOWN_HASH, HashSpec, Host, Link, Switch, Tier, Topology

_TIERS = tuple(tier.value for tier in Tier)


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """The topology as plain dictionaries and lists; `topology_from_json` is its inverse."""
    spec = topology.hash
    told: object = {"algorithm": spec.algorithm, "slices": list(spec.slices)} if spec.known else UNKNOWN_HASH
    return {
        "name": topology.name,
        "hosts": [
            {
                "name": h.name,
                "ip": h.ip,
                "mac": h.mac,
                "leaf": h.leaf,
                "leaf_port": h.leaf_port,
                "rate_bps": h.rate_bps,
            }
            | ({"server": h.server} if h.server else {})
            for h in topology.hosts
        ],
        "switches": [
            {"name": s.name, "tier": s.tier.value, "device_id": s.device_id, "mac": s.mac}
            for s in topology.switches
        ],
        "links": [
            {"a": k.a, "a_port": k.a_port, "b": k.b, "b_port": k.b_port, "rate_bps": k.rate_bps}
            for k in topology.links
        ],
        "prefixes": dict(topology.prefixes),
    } | ({} if spec == OURS else {"hash": told})


def topology_from_json(data: object, where: str = "topology") -> Topology:
    """Read what `topology_to_json` wrote. `where` is the path of `data`, for messages.

    Raises:
        ConfigError: unknown or missing keys, wrong types, dangling names, ports wired twice.
    """
    top = _object(data, where, ("name", "hosts", "switches", "links", "prefixes"), ("hash",))
    switches = tuple(
        _switch(item, f"{where}.switches[{i}]") for i, item in enumerate(_list(top, "switches", where))
    )
    names = {s.name for s in switches}
    hosts = tuple(
        _host(item, f"{where}.hosts[{i}]", names) for i, item in enumerate(_list(top, "hosts", where))
    )
    links = tuple(
        _link(item, f"{where}.links[{i}]", names) for i, item in enumerate(_list(top, "links", where))
    )
    prefixes = top["prefixes"]
    if not isinstance(prefixes, Mapping):
        raise ConfigError(f"{where}.prefixes: an object of leaf name to CIDR prefix is needed")
    for leaf, prefix in prefixes.items():
        if leaf not in names:
            raise ConfigError(f"{where}.prefixes: no switch is named {leaf!r}")
        try:
            ipaddress.IPv4Network(prefix)
        except ValueError as error:
            raise ConfigError(f"{where}.prefixes.{leaf}: {error}") from None
    _unique([s.name for s in switches] + [h.name for h in hosts], where)
    _wired_once(hosts, links, where)
    spec = hash_from_json(top["hash"], f"{where}.hash") if "hash" in top else OURS
    return Topology(_text(top, "name", where), hosts, switches, links, dict(prefixes), spec)


def hash_from_json(data: object, where: str) -> HashSpec:
    """The switches' hash: "unknown", or an object of `algorithm` and, per tier, `slices`.

    Raises:
        ConfigError: with what would be legal.
    """
    if data == UNKNOWN_HASH:
        return HashSpec(UNKNOWN_HASH)
    if not isinstance(data, Mapping):
        raise ConfigError(f'{where}: "{UNKNOWN_HASH}", or an object with algorithm and slices')
    item = _object(data, where, ("algorithm", "slices"))
    algorithm, slices = item["algorithm"], item["slices"]
    if not isinstance(algorithm, str) or algorithm not in HASH_BITS:
        raise ConfigError(f"{where}.algorithm: {algorithm!r} is none of {', '.join(HASH_BITS)}")
    last = HASH_BITS[algorithm] - 8
    if not isinstance(slices, list) or len(slices) != len(_TIERS):
        raise ConfigError(f"{where}.slices: a list of {len(_TIERS)} is needed, one for each tier")
    for i, bit in enumerate(slices):
        if not isinstance(bit, int) or isinstance(bit, bool) or not 0 <= bit <= last:
            raise ConfigError(f"{where}.slices[{i}]: the lowest of 8 bits is needed, 0 to {last}")
    return HashSpec(algorithm, tuple(slices))


def _switch(data: object, where: str) -> Switch:
    item = _object(data, where, ("name", "tier", "device_id", "mac"))
    tier = _text(item, "tier", where)
    if tier not in _TIERS:
        raise ConfigError(f"{where}.tier: {tier!r} is none of {', '.join(_TIERS)}")
    return Switch(
        _text(item, "name", where), Tier(tier), _number(item, "device_id", where), _text(item, "mac", where)
    )


def _host(data: object, where: str, switches: set[str]) -> Host:
    item = _object(data, where, ("name", "ip", "mac", "leaf", "leaf_port", "rate_bps"), ("server",))
    try:
        ip = str(ipaddress.IPv4Address(_text(item, "ip", where)))
    except ValueError as error:
        raise ConfigError(f"{where}.ip: {error}") from None
    return Host(
        name=_text(item, "name", where),
        ip=ip,
        mac=_text(item, "mac", where),
        leaf=_known(item, "leaf", where, switches),
        leaf_port=_number(item, "leaf_port", where),
        rate_bps=_number(item, "rate_bps", where),
        server=_text(item, "server", where) if "server" in item else "",
    )


def _link(data: object, where: str, switches: set[str]) -> Link:
    item = _object(data, where, ("a", "a_port", "b", "b_port", "rate_bps"))
    return Link(
        a=_known(item, "a", where, switches),
        a_port=_number(item, "a_port", where),
        b=_known(item, "b", where, switches),
        b_port=_number(item, "b_port", where),
        rate_bps=_number(item, "rate_bps", where),
    )


def _object(data: object, where: str, keys: Sequence[str], optional: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: an object with the keys {', '.join(keys)} is needed")
    wrong = sorted((set(map(str, data)) - set(optional)) ^ set(keys))
    if wrong:
        raise ConfigError(f"{where}: unknown or missing: {', '.join(wrong)}; the keys are {', '.join(keys)}")
    return data


def _list(item: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = item[key]
    if not isinstance(value, list):
        raise ConfigError(f"{where}.{key}: a list is needed")
    return value


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item[key]
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}.{key}: a non-empty string is needed")
    return value


def _number(item: Mapping[str, Any], key: str, where: str) -> int:
    value = item[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}.{key}: a whole number from 1 is needed")
    return value


def _known(item: Mapping[str, Any], key: str, where: str, switches: set[str]) -> str:
    name = _text(item, key, where)
    if name not in switches:
        raise ConfigError(f"{where}.{key}: no switch is named {name!r}")
    return name


def _unique(names: Sequence[str], where: str) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"{where}: several nodes are named {', '.join(twice)}")


def _wired_once(hosts: Sequence[Host], links: Sequence[Link], where: str) -> None:
    seen: set[tuple[str, int]] = set()
    ends = [(h.leaf, h.leaf_port) for h in hosts]
    ends += [end for link in links for end in ((link.a, link.a_port), (link.b, link.b_port))]
    for end in ends:
        if end in seen:
            raise ConfigError(f"{where}: port {end[1]} of {end[0]} is wired twice")
        seen.add(end)
