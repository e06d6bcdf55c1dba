# SPDX-License-Identifier: Apache-2.0
"""A whole fabric as JSON: the form in which one process passes a topology to another."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from typing import Any

from polyrhythm_files import InvalidValueError, Loc, convert, value_document
from topo.file_types import WholeTopology, hash_of
from topo.graph import OUR_HASH, UNKNOWN_HASH, Host, Link, Switch, Tier, Topology


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """The topology as plain dictionaries and lists; `topology_from_json` is its inverse."""
    spec = topology.hash
    described: object = (
        {"algorithm": spec.algorithm, "slices": list(spec.slices)} if spec.known else UNKNOWN_HASH
    )
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
    } | ({} if spec == OUR_HASH else {"hash": described})


def topology_from_json(data: object) -> Topology:
    """The topology that `topology_to_json` wrote.

    Raises:
        ConfigError: unknown or missing keys, wrong types, unknown names, ports wired twice; with the path.
    """
    document = value_document(data)
    whole = convert(document, WholeTopology)
    with document.checks():
        return whole_topology(whole)


def whole_topology(given: WholeTopology) -> Topology:
    """The topology that a file holds as a whole.

    Raises:
        InvalidValueError: unknown names, two nodes of one name, illegal addresses, ports wired twice.
    """
    nodes: list[tuple[Loc, str]] = [(("switches", i, "name"), s.name) for i, s in enumerate(given.switches)]
    nodes += [(("hosts", i, "name"), h.name) for i, h in enumerate(given.hosts)]
    count = Counter(name for _, name in nodes)
    for loc, name in nodes:
        if count[name] > 1:
            raise InvalidValueError(loc, f"{count[name]} nodes are named {name!r}; legal: a name of its own")
    switches = {s.name for s in given.switches}
    wired: set[tuple[str, int]] = set()
    for loc, switch, port in _ends(given):
        if switch not in switches:
            raise InvalidValueError(loc, f"no switch is named {switch!r}; legal: a name in switches")
        if (switch, port) in wired:
            raise InvalidValueError(loc, f"port {port} of {switch} is wired twice; legal: one cable a port")
        wired.add((switch, port))
    for leaf, prefix in given.prefixes.items():
        if leaf not in switches:
            raise InvalidValueError(("prefixes", leaf), "no switch has this name; legal: a name in switches")
        try:
            ipaddress.IPv4Network(prefix)
        except ValueError as error:
            raise InvalidValueError(
                ("prefixes", leaf), f"{error}; legal: an IPv4 prefix in CIDR form"
            ) from None
    return Topology(
        given.name,
        tuple(
            Host(h.name, _address(h.ip, i), h.mac, h.leaf, h.leaf_port, h.rate_bps, h.server or "")
            for i, h in enumerate(given.hosts)
        ),
        tuple(Switch(s.name, Tier(s.tier), s.device_id, s.mac) for s in given.switches),
        tuple(Link(k.a, k.a_port, k.b, k.b_port, k.rate_bps) for k in given.links),
        dict(given.prefixes),
        hash_of(given.hash),
    )


def _ends(given: WholeTopology) -> Iterator[tuple[Loc, str, int]]:
    """(path in the file, switch, port) of every end of a cable on a switch."""
    for i, host in enumerate(given.hosts):
        yield ("hosts", i, "leaf"), host.leaf, host.leaf_port
    for i, link in enumerate(given.links):
        yield ("links", i, "a"), link.a, link.a_port
        yield ("links", i, "b"), link.b, link.b_port


def _address(text: str, host: int) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise InvalidValueError(("hosts", host, "ip"), f"{error}; legal: an IPv4 address") from None
