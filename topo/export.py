# SPDX-License-Identifier: Apache-2.0
"""Fabrics to and from networkx graphs, and GraphML files of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import ParseError

import networkx as nx

from polyrhythm_files import ConfigError
from topo.generate import explicit
from topo.graph import Tier, Topology


def to_networkx(topology: Topology) -> nx.MultiGraph:
    """The fabric as an undirected multigraph, with plain attributes that every graph format can hold.

    Nodes carry `tier` ("host" for NICs) and `mac`; a host also `ip`, and `server` where the machine has
    several NICs; a switch `device_id`. Each cable is an edge with `rate_bps` and its ends: `a` on port
    `a_port`, `b` on port `b_port` (0 for a NIC).
    """
    graph = nx.MultiGraph(name=topology.name)
    for s in topology.switches:
        graph.add_node(s.name, tier=s.tier.value, mac=s.mac, device_id=s.device_id)
    for h in topology.hosts:
        server = {"server": h.server} if h.server else {}
        graph.add_node(h.name, tier="host", mac=h.mac, ip=h.ip, **server)
        ends = {"a": h.name, "a_port": 0, "b": h.leaf, "b_port": h.leaf_port}
        graph.add_edge(h.name, h.leaf, rate_bps=h.rate_bps, **ends)
    for k in topology.links:
        ends = {"a": k.a, "a_port": k.a_port, "b": k.b, "b_port": k.b_port}
        graph.add_edge(k.a, k.b, rate_bps=k.rate_bps, **ends)
    return graph


def from_networkx(graph: nx.Graph) -> Topology:
    """A fabric from a graph whose nodes carry `tier` (host, leaf, spine, core) and edges `rate_bps`.

    Addresses and ports are given anew, in the order of the graph; `server` joins NICs to a machine.

    Raises:
        ValueError: an empty or directed graph, a node without a legal tier or of another's name, a host that
            is not on exactly one leaf, a cable from a switch to itself, an edge without rate.
    """
    if graph.is_directed():
        raise ValueError("the graph is directed; a cable goes both ways")
    if not graph.number_of_nodes():
        raise ValueError("the graph is empty")
    tiers: dict[str, str] = {}
    servers: dict[str, str] = {}
    for node, data in graph.nodes(data=True):
        tier = data.get("tier")
        if tier not in ("host", *(t.value for t in Tier)):
            raise ValueError(f"node {node}: tier {tier!r} is none of host, leaf, spine, core")
        if str(node) in tiers:
            raise ValueError(f"node {node}: another node has this name")
        tiers[str(node)] = tier
        if data.get("server"):
            servers[str(node)] = str(data["server"])
    hosts: dict[str, tuple[str, str, int]] = {}
    links = []
    for one, other, data in graph.edges(data=True):
        a, b, rate = str(one), str(other), data.get("rate_bps", 0)
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 1 <= rate <= 10**15:
            raise ValueError(f"edge {a}-{b}: a rate_bps from 1 to 10^15 is needed, not {rate!r}")
        if a == b:
            raise ValueError(f"edge {a}-{b}: a cable joins two different nodes")
        if "host" not in (tiers[a], tiers[b]):
            links.append((a, b, int(rate)))
            continue
        host, leaf = (a, b) if tiers[a] == "host" else (b, a)
        if tiers[leaf] != "leaf" or host in hosts:
            raise ValueError(f"host {host}: it needs one cable, to a leaf")
        hosts[host] = (host, leaf, int(rate))
    found = [hosts.get(name) for name, tier in tiers.items() if tier == "host"]
    if None in found:
        loose = next(name for name, tier in tiers.items() if tier == "host" and name not in hosts)
        raise ValueError(f"host {loose}: it needs one cable, to a leaf")
    switches = [(name, Tier(tier)) for name, tier in tiers.items() if tier != "host"]
    wired = explicit(str(graph.name or "fabric"), switches, [h for h in found if h], links)
    return replace(wired, hosts=tuple(replace(h, server=servers.get(h.name, "")) for h in wired.hosts))


def read_graphml(path: Path) -> Topology:
    """A fabric from a GraphML file with the attributes of `to_networkx`, named as the file if it has no name.

    Raises:
        ConfigError: no GraphML, or no fabric; says why.
        OSError: the file cannot be read.
    """
    try:
        graph = nx.read_graphml(path)
        return from_networkx(nx.MultiGraph(graph, name=graph.name or path.stem))
    except (ParseError, nx.NetworkXException, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: no fabric in GraphML: {error}") from None


def graphml(topology: Topology) -> str:
    """The fabric as the text of a GraphML file."""
    return "\n".join(nx.generate_graphml(to_networkx(topology)))
