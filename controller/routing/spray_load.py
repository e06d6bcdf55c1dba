# SPDX-License-Identifier: Apache-2.0
"""Whether sprayed packets can fill a link between switches."""

from __future__ import annotations

from collections import defaultdict

from controller.routing.forwarding import forwarding
from controller.routing.spread_portions import spread_portions
from controller.routing.topology_cache import cached_by_topology
from topo.graph import Topology

_ROUNDING = 1 + 1e-9


@cached_by_topology
def spraying_fits(
    topology: Topology,
    pairs: frozenset[tuple[str, str]],
    down_links: frozenset[tuple[str, str]] = frozenset(),
    down_switches: frozenset[str] = frozenset(),
) -> bool:
    """Whether every link between switches carries all that hosts can send, if all packets are sprayed.

    `pairs` are the pairs of hosts (sender, receiver) with flows. A NIC sends and receives at its rate at
    most, so the load of a link is bounded twice: by the largest portion of a leaf's packets on it, times the
    rates of the senders there, summed over the leaves, and in the same way by the receivers. The lower bound
    counts. So True is certain, and False may be too careful.
    """
    tables = forwarding(topology, down_links, down_switches)
    crossing = {pair for pair in pairs if topology.host[pair[0]].leaf != topology.host[pair[1]].leaf}
    out, into = defaultdict[str, int](int), defaultdict[str, int](int)
    for name in sorted({src for src, _ in crossing}):
        out[topology.host[name].leaf] += topology.host[name].rate_bps
    for name in sorted({dst for _, dst in crossing}):
        into[topology.host[name].leaf] += topology.host[name].rate_bps
    from_leaf = defaultdict[tuple[str, str], dict[str, float]](dict)
    to_leaf = defaultdict[tuple[str, str], dict[str, float]](dict)
    between = {(topology.host[a].leaf, topology.host[b].leaf): (a, b) for a, b in crossing}
    for (first, last), (src, dst) in between.items():
        portions = spread_portions(topology, tables, src, dst)
        if not portions:
            return False
        for link, portion in portions.items():
            if src in link or dst in link:
                continue
            from_leaf[link][first] = max(portion, from_leaf[link].get(first, 0.0))
            to_leaf[link][last] = max(portion, to_leaf[link].get(last, 0.0))
    rate = defaultdict[tuple[str, str], int](int)
    for k in topology.links:
        if not topology.is_down(k, down_links):
            rate[k.a, k.b] += k.rate_bps
            rate[k.b, k.a] += k.rate_bps
    return all(
        min(
            sum(out[leaf] * portion for leaf, portion in from_leaf[link].items()),
            sum(into[leaf] * portion for leaf, portion in to_leaf[link].items()),
        )
        <= rate[link] * _ROUNDING
        for link in from_leaf
    )
