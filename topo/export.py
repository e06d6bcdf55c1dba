# SPDX-License-Identifier: Apache-2.0
"""Fabrics to and from networkx graphs, and GraphML files of them."""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from xml.etree.ElementTree import ParseError
from xml.sax.saxutils import quoteattr

import networkx as nx

from polyrhythm_files import LARGE, ConfigError, InvalidValueError, Loc, read_text, shown
from topo.generate import explicit
from topo.graph import Tier, Topology

_HOST_CABLE = "a host has no cable, or not one to a leaf; legal: one cable, to a leaf"


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

    Addresses and ports are generated, in the order of the graph. NICs of one `server` are in one machine.

    Raises:
        InvalidValueError: an empty or directed graph, a node without a legal tier or with the name of another
            one, a host that is not connected to exactly one leaf, a cable from a switch to itself, an edge
            without rate. Its path is ("node", name) or ("edge", source, target).
    """
    if graph.is_directed():
        raise InvalidValueError((), "the graph is directed; legal: an undirected graph")
    if not graph.number_of_nodes():
        raise InvalidValueError((), "the graph is empty; legal: one node or more")
    tiers: dict[str, str] = {}
    servers: dict[str, str] = {}
    for node, data in graph.nodes(data=True):
        tier = data.get("tier")
        if tier not in ("host", *(t.value for t in Tier)):
            raise InvalidValueError(
                ("node", str(node)), f"tier {shown(tier)} is wrong; legal: host, leaf, spine, core"
            )
        if str(node) in tiers:
            raise InvalidValueError(
                ("node", str(node)), "another node has this name; legal: a name of its own"
            )
        tiers[str(node)] = tier
        if data.get("server"):
            servers[str(node)] = str(data["server"])
    hosts: dict[str, tuple[str, str, int]] = {}
    links = []
    for one, other, data in graph.edges(data=True):
        a, b, rate = str(one), str(other), data.get("rate_bps", 0)
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 1 <= rate <= 10**15:
            raise InvalidValueError(("edge", a, b), f"rate_bps {shown(rate)} is wrong; legal: 1 to 10^15")
        if a == b:
            raise InvalidValueError(("edge", a, b), "joins a node to itself; legal: two different nodes")
        if "host" not in (tiers[a], tiers[b]):
            links.append((a, b, int(rate)))
            continue
        host, leaf = (a, b) if tiers[a] == "host" else (b, a)
        if tiers[leaf] != "leaf" or host in hosts:
            raise InvalidValueError(("node", host), _HOST_CABLE)
        hosts[host] = (host, leaf, int(rate))
    found = [hosts.get(name) for name, tier in tiers.items() if tier == "host"]
    if None in found:
        loose = next(name for name, tier in tiers.items() if tier == "host" and name not in hosts)
        raise InvalidValueError(("node", loose), _HOST_CABLE)
    switches = [(name, Tier(tier)) for name, tier in tiers.items() if tier != "host"]
    wired = explicit(str(graph.name or "fabric"), switches, [h for h in found if h], links)
    return replace(wired, hosts=tuple(replace(h, server=servers.get(h.name, "")) for h in wired.hosts))


def read_graphml(path: Path) -> Topology:
    """A fabric from a GraphML file with the attributes of `to_networkx`, named as the file if it has no name.

    Raises:
        ConfigError: the file cannot be read, is no GraphML, or holds no fabric; with file and line.
    """
    text = read_text(path, LARGE.max_bytes)
    try:
        graph = nx.read_graphml(BytesIO(text.encode()))
        return from_networkx(nx.MultiGraph(graph, name=graph.name or path.stem))
    except InvalidValueError as error:
        where = "-".join(map(str, error.loc[1:]))
        named = f"{error.loc[0]} {where}: " if error.loc else ""
        raise ConfigError(f"{path}:{_graphml_line(text, error.loc)}: {named}{error.message}") from None
    except ParseError as error:
        raise ConfigError(f"{path}:{error.position[0]}: not GraphML: {error}") from None
    except (nx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}:1: not GraphML: {error}") from None


def _graphml_line(text: str, loc: Loc) -> int:
    """The line of a node or edge in the text of a GraphML file; 1 where it cannot be found."""
    if not loc:
        return 1
    names = [re.escape(quoteattr(str(name))[1:-1]) for name in loc[1:]]
    keys = ("id",) if loc[0] == "node" else ("source", "target")
    wanted = "".join(rf"(?=[^>]*\b{key}=[\"']{name}[\"'])" for key, name in zip(keys, names, strict=True))
    found = re.search(rf"<{loc[0]}\b{wanted}", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def graphml(topology: Topology) -> str:
    """The fabric as the text of a GraphML file."""
    return "\n".join(nx.generate_graphml(to_networkx(topology)))
