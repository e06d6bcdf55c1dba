# SPDX-License-Identifier: Apache-2.0
"""Where sprayed packets go, against a walk of every bucket."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.forwarding import forwarding
from controller.routing.paths import Forwarding, route_to
from controller.routing.spread_portions import spread_portions
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology


def walked(topology: Topology, tables: Forwarding, src: str, dst: str) -> dict[tuple[str, str], float]:
    """Each packet's chance to cross a link, path by path."""
    found: Counter[tuple[str, str]] = Counter()

    def go(node: str, chance: float) -> None:
        if node == dst:
            return
        route = route_to(topology, tables, node, dst)
        assert route is not None
        hops = tables[node].groups[route.id] if route.kind == "group" else (route.id,)
        for hop in hops if len(set(hops)) > 1 else hops[:1]:
            part = chance / len(hops) if len(set(hops)) > 1 else chance
            peer = topology.ports[node][tables[node].next_hops[hop].port].node
            found[node, peer] += part
            go(peer, part)

    found[src, topology.host[src].leaf] += 1.0
    go(topology.host[src].leaf, 1.0)
    return dict(found)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_portions_are_those_of_single_packets(data: st.DataObject) -> None:
    topology = leaf_spine(3, 3, 2, host_bps=10**9, fabric_bps=10**9)
    cables = sorted((min(k.a, k.b), max(k.a, k.b)) for k in topology.links)
    down = frozenset(data.draw(st.lists(st.sampled_from(cables), max_size=2, unique=True)))
    tables = forwarding(topology, down)
    src, dst = data.draw(st.permutations([h.name for h in topology.hosts]))[:2]
    found = spread_portions(topology, tables, src, dst)
    assert found == pytest.approx(walked(topology, tables, src, dst))
    assert next(iter(found))[0] == src
    assert next(reversed(found))[1] == dst


def test_three_tiers_and_one_leaf() -> None:
    topology = three_tier(2, 2, 2, 4, 2, host_bps=10**9, fabric_bps=10**9)
    first, last = topology.hosts[0].name, topology.hosts[-1].name
    found = spread_portions(topology, forwarding(topology), first, last)
    assert sorted(found.values()) == [0.125] * 16 + [0.5] * 4 + [1.0] * 2
    near = next(h.name for h in topology.hosts[1:] if h.leaf == topology.hosts[0].leaf)
    assert list(spread_portions(topology, forwarding(topology), first, near).values()) == [1.0, 1.0]


def test_no_way_is_no_portion() -> None:
    topology = leaf_spine(2, 1, 1, host_bps=10**9, fabric_bps=10**9)
    tables = forwarding(topology, frozenset({("leaf2", "spine1")}))
    assert spread_portions(topology, tables, "h1", "h2") == {}
