# SPDX-License-Identifier: Apache-2.0
"""A whole fabric as JSON: the form in which one process passes a topology to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from polyrhythm_files import InvalidValueError, Loc, convert, value_document
from topo.addresses import canonical_address, canonical_prefix, is_ipv6
from topo.file_types import WholeHost, WholeTopology, hash_of
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
            | ({"other_ips": list(h.other_ips)} if h.other_ips else {})
            | ({"any_order": True} if h.any_order else {})
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
        **({} if spec == OUR_HASH else {"hash": described}),
        **(
            {"other_prefixes": {leaf: list(more) for leaf, more in topology.other_prefixes.items()}}
            if topology.other_prefixes
            else {}
        ),
    }


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
    prefixes = {leaf: _prefix(text, ("prefixes", leaf), switches) for leaf, text in given.prefixes.items()}
    other_prefixes = {
        leaf: tuple(_prefix(text, ("other_prefixes", leaf), switches) for text in more)
        for leaf, more in (given.other_prefixes or {}).items()
    }
    hosts = tuple(
        _host(i, h, (prefixes.get(h.leaf, ""), *other_prefixes.get(h.leaf, ())))
        for i, h in enumerate(given.hosts)
    )
    return Topology(
        given.name,
        hosts,
        tuple(Switch(s.name, Tier(s.tier), s.device_id, s.mac) for s in given.switches),
        tuple(Link(k.a, k.a_port, k.b, k.b_port, k.rate_bps) for k in given.links),
        prefixes,
        hash_of(given.hash),
        other_prefixes,
    )


def _ends(given: WholeTopology) -> Iterator[tuple[Loc, str, int]]:
    """(path in the file, switch, port) of every end of a cable on a switch."""
    for i, host in enumerate(given.hosts):
        yield ("hosts", i, "leaf"), host.leaf, host.leaf_port
    for i, link in enumerate(given.links):
        yield ("links", i, "a"), link.a, link.a_port
        yield ("links", i, "b"), link.b, link.b_port


def _host(index: int, given: WholeHost, prefixes: Collection[str]) -> Host:
    """A host. Each of its addresses is of a family that `prefixes`, those of its leaf, have."""
    loc = ("hosts", index)
    ip = _address(given.ip, (*loc, "ip"))
    others = tuple(_address(text, (*loc, "other_ips")) for text in given.other_ips or ())
    for key, address in (("ip", ip), *(("other_ips", text) for text in others)):
        if not any(is_ipv6(address) == is_ipv6(prefix) for prefix in prefixes if prefix):
            family = "IPv6" if is_ipv6(address) else "IPv4"
            raise InvalidValueError(
                (*loc, key),
                f"{given.leaf} has no {family} prefix; legal: an address of a family of the leaf's prefixes",
            )
    rest = given.mac, given.leaf, given.leaf_port, given.rate_bps, given.server or ""
    return Host(given.name, ip, *rest, others, given.any_order)


def _address(text: str, loc: Loc) -> str:
    try:
        return canonical_address(text)
    except ValueError as error:
        raise InvalidValueError(loc, f"{error}; legal: an IPv4 or IPv6 address") from None


def _prefix(text: str, loc: Loc, switches: Collection[str]) -> str:
    if loc[1] not in switches:
        raise InvalidValueError(loc, "no switch has this name; legal: a name in switches")
    try:
        return canonical_prefix(text)
    except ValueError as error:
        raise InvalidValueError(loc, f"{error}; legal: an IPv4 or IPv6 prefix in CIDR form") from None
