# SPDX-License-Identifier: Apache-2.0
"""Fabrics to and from networkx graphs."""

from __future__ import annotations

import networkx as nx

from topo.generate import explicit
from topo.graph import Tier, Topology


def to_networkx(topology: Topology) -> nx.MultiGraph:
    """The fabric as an undirected multigraph.

    Nodes carry `tier` ("host" for NICs); a host also `ip` and `mac`, a switch `device_id`. Each cable is
    an edge with `rate_bps` and the port at each end, `ports` by node name (0 for a NIC).
    """
    graph = nx.MultiGraph(name=topology.name)
    for s in topology.switches:
        graph.add_node(s.name, tier=s.tier.value, device_id=s.device_id)
    for h in topology.hosts:
        graph.add_node(h.name, tier="host", ip=h.ip, mac=h.mac)
        graph.add_edge(h.name, h.leaf, rate_bps=h.rate_bps, ports={h.name: 0, h.leaf: h.leaf_port})
    for k in topology.links:
        graph.add_edge(k.a, k.b, rate_bps=k.rate_bps, ports={k.a: k.a_port, k.b: k.b_port})
    return graph


def from_networkx(graph: nx.Graph) -> Topology:
    """A fabric from a graph whose nodes carry `tier` (host, leaf, spine, core) and edges `rate_bps`.

    Addresses and ports are given anew, in the order of the graph.

    Raises:
        ValueError: a node without a legal tier, a host that is not on exactly one leaf, an edge without rate.
    """
    tiers = {}
    for node, data in graph.nodes(data=True):
        tier = data.get("tier")
        if tier not in ("host", *(t.value for t in Tier)):
            raise ValueError(f"node {node}: tier {tier!r} is none of host, leaf, spine, core")
        tiers[node] = tier
    for a, b, data in graph.edges(data=True):
        if not data.get("rate_bps", 0) > 0:
            raise ValueError(f"edge {a}-{b}: a positive rate_bps is needed")
    hosts, links = [], []
    for node, tier in tiers.items():
        if tier == "host":
            ends = list(graph.edges(node, data=True))
            if len(ends) != 1 or tiers[ends[0][1]] != "leaf":
                raise ValueError(f"host {node}: it needs one cable, to a leaf")
            hosts.append((str(node), str(ends[0][1]), int(ends[0][2]["rate_bps"])))
    for a, b, data in graph.edges(data=True):
        if "host" not in (tiers[a], tiers[b]):
            links.append((str(a), str(b), int(data["rate_bps"])))
    switches = [(str(n), Tier(t)) for n, t in tiers.items() if t != "host"]
    return explicit(str(graph.name or "fabric"), switches, hosts, links)
