# SPDX-License-Identifier: Apache-2.0
"""The portion of a flow's packets on each link, where every switch sprays them over its ECMP group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from controller.routing.forwarding import BUCKETS
from controller.routing.paths import Forwarding, route_to
from topo.graph import Topology

Portions = Mapping[tuple[str, str], float]
"""By (from, to), in the order of the hops: the part of the packets on this link, above 0 and at most 1."""


def spread_portions(topology: Topology, forwarding: Forwarding, src: str, dst: str) -> Portions:
    """Where the packets from `src` to `dst` go if every switch gives each bucket of a group the same part.

    A member of a group gets as many parts as it has buckets, so weights and what is down count. Parallel
    cables between two switches are one link. Empty if a switch on the way has no route.
    """
    leaf = topology.host[src].leaf
    found: dict[tuple[str, str], float] = {(src, leaf): 1.0}
    here = {leaf: 1.0}
    while here:
        after: dict[str, float] = {}
        for switch, part in here.items():
            route = route_to(topology, forwarding, switch, dst)
            if route is None:
                return {}
            table = forwarding[switch]
            buckets = table.groups[route.id] if route.kind == "group" else (route.id,) * BUCKETS
            for hop, times in Counter(buckets).items():
                node = topology.ports[switch][table.next_hops[hop].port].node
                share = part * times / len(buckets)
                found[switch, node] = found.get((switch, node), 0.0) + share
                if node != dst:
                    after[node] = after.get(node, 0.0) + share
        here = after
    return found
