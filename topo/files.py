# SPDX-License-Identifier: Apache-2.0
"""Topology files: JSON that names a generator, lists the nodes, holds a whole fabric, or is a tutorial's; or
GraphML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyrhythm_files import ConfigError
from topo.generate import explicit, leaf_spine, rail, three_tier
from topo.graph import Tier, Topology
from topo.jsonio import hash_from_json, topology_from_json
from topo.tutorials import DEFAULT_BPS, is_tutorial, read_tutorial

# kind -> (generator, whole-number parameters in its order). All kinds take host_gbps and fabric_gbps.
_GENERATORS: Mapping[str, tuple[Callable[..., Topology], tuple[str, ...]]] = {
    "leaf_spine": (leaf_spine, ("leaves", "spines", "hosts_per_leaf")),
    "three_tier": (
        three_tier,
        ("pods", "leaves_per_pod", "spines_per_pod", "cores_per_spine", "hosts_per_leaf"),
    ),
    "rail": (rail, ("groups", "rails", "spines", "servers_per_group")),
}
KINDS = (*_GENERATORS, "explicit")
_MAX_BYTES = 200_000_000
_MAX_NODES = 200_000


def load_topology(path: Path, *, default_bps: int = DEFAULT_BPS, scale: float = 1.0) -> Topology:
    """Read a topology file; `default_bps` and `scale` are for a tutorial's cables (see `read_tutorial`).

    Raises:
        ConfigError: the file cannot be read, is no JSON, or describes no fabric; says where.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES // 1_000_000} MB")
        if path.suffix == ".graphml":
            # networkx takes long to import, and few files are graphs.
            from topo.export import read_graphml

            return read_graphml(path)
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if is_tutorial(data):
        return read_tutorial(data, str(path), path.stem, default_bps=default_bps, scale=scale)
    return read_topology(data, str(path), path.stem or "fabric")


def read_topology(data: object, where: str, name: str) -> Topology:
    """A fabric from the value of a file: `{"kind": ...}`, or what `topology_to_json` wrote.

    Raises:
        ConfigError: with the path in the value and what would be legal.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: an object with a `kind` is needed: {', '.join(KINDS)}")
    if "kind" not in data:
        if "prefixes" in data:
            return topology_from_json(data, where)
        raise ConfigError(f"{where}.kind: missing; legal: {', '.join(KINDS)}")
    if "hash" in data:
        spec = hash_from_json(data["hash"], f"{where}.hash")
        rest = {key: value for key, value in data.items() if key != "hash"}
        return replace(read_topology(rest, where, name), hash=spec)
    kind = data["kind"]
    if kind == "explicit":
        return _explicit(data, where, name)
    if not isinstance(kind, str) or kind not in _GENERATORS:
        raise ConfigError(f"{where}.kind: {kind!r} is not legal; legal: {', '.join(KINDS)}")
    generator, parameters = _GENERATORS[kind]
    _keys(data, where, ("kind", *parameters, "host_gbps", "fabric_gbps"), ("name",))
    numbers = [_whole(data[key], f"{where}.{key}", 0 if key == "spines" else 1) for key in parameters]
    try:
        return generator(
            *numbers,
            host_bps=_bps(data["host_gbps"], f"{where}.host_gbps"),
            fabric_bps=_bps(data["fabric_gbps"], f"{where}.fabric_gbps"),
            name=str(data.get("name", name)),
        )
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where}: {error}") from None


def _explicit(data: Mapping[str, Any], where: str, name: str) -> Topology:
    _keys(data, where, ("kind", "switches", "hosts", "links"), ("name",))
    rows = {key: _rows(data[key], f"{where}.{key}") for key in ("switches", "hosts", "links")}
    switches: dict[str, Tier] = {}
    tiers = [t.value for t in Tier]
    for i, item in enumerate(rows["switches"]):
        at = f"{where}.switches[{i}]"
        _keys(item, at, ("name", "tier"))
        if item["tier"] not in tiers:
            raise ConfigError(f"{at}.tier: {item['tier']!r} is none of {', '.join(tiers)}")
        switches[_fresh(item["name"], f"{at}.name", switches)] = Tier(item["tier"])
    hosts: dict[str, tuple[str, str, int]] = {}
    for i, item in enumerate(rows["hosts"]):
        at = f"{where}.hosts[{i}]"
        _keys(item, at, ("name", "leaf", "gbps"))
        host = _fresh(item["name"], f"{at}.name", hosts)
        if host in switches:
            raise ConfigError(f"{at}.name: {host!r} names a switch already")
        if not isinstance(item["leaf"], str) or switches.get(item["leaf"]) is not Tier.LEAF:
            raise ConfigError(f"{at}.leaf: {item['leaf']!r} is no leaf")
        hosts[host] = (host, item["leaf"], _bps(item["gbps"], f"{at}.gbps"))
    links = []
    for i, item in enumerate(rows["links"]):
        at = f"{where}.links[{i}]"
        _keys(item, at, ("a", "b", "gbps"))
        for end in ("a", "b"):
            if not isinstance(item[end], str) or item[end] not in switches:
                raise ConfigError(f"{at}.{end}: {item[end]!r} is no switch")
        if item["a"] == item["b"]:
            raise ConfigError(f"{at}: a cable joins two different switches")
        links.append((item["a"], item["b"], _bps(item["gbps"], f"{at}.gbps")))
    try:
        return explicit(str(data.get("name", name)), list(switches.items()), list(hosts.values()), links)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _keys(data: object, where: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: an object with the keys {', '.join(keys)} is needed")
    unknown = sorted(set(map(str, data)) - set(keys) - set(optional))
    missing = [key for key in keys if key not in data]
    if unknown or missing:
        wrong = [f"unknown: {', '.join(unknown)}"] if unknown else []
        wrong += [f"missing: {', '.join(missing)}"] if missing else []
        raise ConfigError(f"{where}: {'; '.join(wrong)}; the keys are {', '.join(keys)}")


def _rows(value: object, where: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_NODES:
        raise ConfigError(f"{where}: a list of at most {_MAX_NODES} is needed")
    return value


def _fresh(value: object, where: str, taken: Mapping[str, object]) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: a non-empty string is needed")
    if value in taken:
        raise ConfigError(f"{where}: {value!r} names another node already")
    return value


def _whole(value: object, where: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_NODES:
        raise ConfigError(f"{where}: a whole number from {least} to {_MAX_NODES} is needed")
    return value


def _bps(value: object, where: str) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 10_000:
        raise ConfigError(f"{where}: Gbit/s above 0 and up to 10000 are needed")
    return max(1, round(value * 1e9))
