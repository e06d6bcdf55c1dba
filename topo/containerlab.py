# SPDX-License-Identifier: Apache-2.0
"""A containerlab topology as a fabric.

https://containerlab.dev/manual/topo-def-file: nodes by name, links between interfaces. A node is a host if
its kind is `linux`, or else a switch; the label `polyrhythm-tier` (host, leaf, spine, core) overrides this.
Links to the machine itself (`host:`, `mgmt-net:`, macvlan, vxlan, dummy) are no cables of the fabric, and
nodes without cables are left out. The file has no rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrhythm_files import Document, InvalidValueError, Loc, shown
from topo.graph import Link, Tier, Topology
from topo.wiring import Nic, Ports, inferred_tiers, port_numbers, wired

TIER_LABEL = "polyrhythm-tier"
_ROLES = ("host", *(t.value for t in Tier))
_NO_NODES = ("host", "mgmt-net", "macvlan")
"""What stands for the machine where an endpoint names a node (containerlab, "links")."""
_CABLES = ("veth", "")
End = tuple[str, str, Loc]
"""Node, interface, and where the file says so."""


def is_containerlab(value: object) -> bool:
    """Whether the value of a file looks like a containerlab topology."""
    topology = value.get("topology") if isinstance(value, Mapping) else None
    return isinstance(topology, Mapping) and "nodes" in topology


def containerlab_topology(document: Document, name: str, *, host_bps: int, fabric_bps: int) -> Topology:
    """The fabric of a containerlab file, with these rates.

    Raises:
        ConfigError: nodes or links that make no fabric; with file and line.
    """
    with document.checks():
        return _fabric(document.value, name, host_bps, fabric_bps)


def _fabric(value: Mapping[str, Any], name: str, host_bps: int, fabric_bps: int) -> Topology:
    topology = value["topology"]
    nodes = _table(topology.get("nodes"), ("topology", "nodes"))
    roles = {node: _role(node, settings, topology) for node, settings in nodes.items()}
    pairs = [pair for pair in _links(topology, nodes) if pair is not None]
    interfaces: dict[str, dict[str, Loc]] = {}
    for end in (end for pair in pairs for end in pair):
        node, interface, loc = end
        if interface in interfaces.setdefault(node, {}):
            raise InvalidValueError(loc, f"{node}:{interface} has a cable already; legal: one an interface")
        interfaces[node][interface] = loc
    switches = {n: ("topology", "nodes", n) for n in nodes if n in interfaces and roles[n] != "host"}
    numbers = {switch: port_numbers(interfaces[switch]) for switch in switches}
    nics: list[Nic] = []
    cables: list[Link] = []
    ports = Ports()
    for pair in pairs:
        (a, a_name, a_loc), (b, b_name, b_loc) = sorted(pair, key=lambda end: roles[end[0]] != "host")
        if roles[b] == "host":
            raise InvalidValueError(b_loc, f"joins the hosts {a} and {b}; legal: a host and a switch")
        if a == b:
            raise InvalidValueError(b_loc, f"joins {a} to itself; legal: two different nodes")
        b_port = ports.take(b, numbers[b][b_name], b_loc)
        if roles[a] == "host":
            several = len(interfaces[a]) > 1
            rank = list(interfaces[a]).index(a_name) + 1
            nic = f"{a}.{rank}" if several else a
            nics.append(Nic(nic, b, b_port, host_bps, a if several else "", loc=a_loc))
        else:
            a_port = ports.take(a, numbers[a][a_name], a_loc)
            cables.append(Link(a, a_port, b, b_port, fabric_bps))
    clash = next((nic for nic in nics if nic.server and nic.name in nodes), None)
    if clash is not None:
        raise InvalidValueError(clash.loc, f"{clash.name} names a node and a NIC of {clash.server}")
    if not nics:
        raise InvalidValueError(("topology", "links"), "no link joins a host to a switch; legal: one or more")
    leaves = dict.fromkeys(nic.leaf for nic in nics)
    tiers = inferred_tiers(switches, leaves, [(k.a, k.b) for k in cables])
    for switch in switches:
        if roles[switch]:
            tiers[switch] = Tier(roles[switch])
    high = next((nic for nic in nics if tiers[nic.leaf] is not Tier.LEAF), None)
    if high is not None:
        raise InvalidValueError(high.loc, f"{high.leaf} has a host and tier {tiers[high.leaf]}; legal: leaf")
    return wired(str(value.get("name") or name), tiers, _in_order(nics, nodes), cables)


def _in_order(nics: list[Nic], nodes: Mapping[str, Any]) -> list[Nic]:
    """NICs in the order of their nodes, for the addresses."""
    place = {node: i for i, node in enumerate(nodes)}
    return sorted(nics, key=lambda nic: place[nic.server or nic.name])


def _role(node: str, settings: object, topology: Mapping[str, Any]) -> str:
    """host, or the tier of a switch; empty: a switch whose tier follows from its cables."""
    own: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
    loc: Loc = ("topology", "nodes", node)
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidValueError(loc, f"{shown(settings)} is wrong; legal: a table with kind and labels")
    defaults = _table(topology.get("defaults"), ("topology", "defaults"))
    groups = _table(topology.get("groups"), ("topology", "groups"))
    named = own.get("group")
    group = groups.get(named) if isinstance(named, str) else None
    group = group if isinstance(group, Mapping) else {}
    kind = own.get("kind") or group.get("kind") or defaults.get("kind")
    if not isinstance(kind, str):
        raise InvalidValueError(
            loc, "kind is missing; legal: a kind of containerlab, such as linux for a host"
        )
    kinds = _table(topology.get("kinds"), ("topology", "kinds"))
    of_kind = kinds.get(kind)
    for level in (own, group, of_kind, defaults):
        labels = level.get("labels") if isinstance(level, Mapping) else None
        if isinstance(labels, Mapping) and TIER_LABEL in labels:
            role = labels[TIER_LABEL]
            if role not in _ROLES:
                where = (*loc, "labels", TIER_LABEL) if level is own else loc
                raise InvalidValueError(where, f"{shown(role)} is wrong; legal: {', '.join(_ROLES)}")
            return str(role)
    return "host" if kind == "linux" else ""


def _links(topology: Mapping[str, Any], nodes: Mapping[str, Any]) -> list[tuple[End, End] | None]:
    links = topology.get("links")
    if not isinstance(links, list):
        raise InvalidValueError(("topology", "links"), "is missing; legal: a list of links")
    return [_pair(link, ("topology", "links", i), nodes) for i, link in enumerate(links)]


def _pair(link: object, loc: Loc, nodes: Mapping[str, Any]) -> tuple[End, End] | None:
    """The ends of a link; None: it leads out of the fabric."""
    if not isinstance(link, Mapping):
        raise InvalidValueError(loc, f"{shown(link)} is wrong; legal: a table with endpoints")
    if link.get("type", "") not in _CABLES:
        return None
    ends = link.get("endpoints")
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidValueError((*loc, "endpoints"), f"{shown(ends)} is wrong; legal: two endpoints")
    found = [_end(end, (*loc, "endpoints", k), nodes) for k, end in enumerate(ends)]
    return (found[0], found[1]) if found[0] and found[1] else None


def _end(end: object, loc: Loc, nodes: Mapping[str, Any]) -> End | None:
    if isinstance(end, str):
        node, _, interface = end.partition(":")
    elif isinstance(end, Mapping):
        node, interface = str(end.get("node") or ""), str(end.get("interface") or "")
    else:
        node = interface = ""
    if node in _NO_NODES and node not in nodes:
        return None
    if not interface:
        raise InvalidValueError(loc, f"{shown(end)} is wrong; legal: NODE:INTERFACE")
    if node not in nodes:
        raise InvalidValueError(loc, f"{shown(node)} is no node; legal: a name in topology.nodes")
    return node, interface, loc


def _table(value: object, loc: Loc) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidValueError(loc, f"{shown(value)} is wrong; legal: a table by name")
    return value
