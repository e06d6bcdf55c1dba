# SPDX-License-Identifier: Apache-2.0
"""The cables that a source port leads along, against the switches' hash, entry by entry."""

from __future__ import annotations

import pytest
from bundles_rig import bundled
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.cable_links import CableLinks, cable_rates
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import parse_failures
from controller.routing.hash import ecmp_hash
from controller.routing.paths import Forwarding, path_of, paths, route_to
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology

LEAF_SPINE = bundled(leaf_spine(2, 2, 2, host_bps=10, fabric_bps=10), 3)
FABRICS = {
    "leaf-spine": (LEAF_SPINE, ()),
    "one cable down": (LEAF_SPINE, ("leaf1:3-spine1:1",)),
    "one cable left": (LEAF_SPINE, ("leaf2:3-spine1:2", "leaf2:5-spine1:4")),
    "three tiers": (bundled(three_tier(2, 2, 2, 2, 2, host_bps=10, fabric_bps=10), 2), ()),
}


def walked(topology: Topology, tables: Forwarding, src: str, dst: str, port: int) -> list[tuple[str, str]]:
    """The links of a flow, by the entries of each switch: cables of bundles by their own names."""
    spec = topology.hash
    value = ecmp_hash(topology.host[src].ip, topology.host[dst].ip, port)
    found, at = [(src, topology.host[src].leaf)], topology.host[src].leaf
    while at != dst:
        route = route_to(topology, tables, at, dst)
        assert route is not None
        hop = route.id
        if route.kind == "group":
            hop = tables[at].groups[route.id][value >> spec.slices[route.tier] & 0xFF]
        out = tables[at].next_hops[hop].port
        peer = topology.ports[at][out]
        bundle = (min(at, peer.node), max(at, peer.node)) in topology.bundles
        found.append((f"{at}:{out}", f"{peer.node}:{peer.port}") if bundle else (at, peer.node))
        at = peer.node
    return found


@pytest.mark.parametrize("name", list(FABRICS))
@settings(max_examples=25)
@given(data=st.data())
def test_the_way_of_a_port_is_that_of_its_packets(name: str, data: st.DataObject) -> None:
    topology, words = FABRICS[name]
    down = parse_failures(topology, words).links
    tables = forwarding(topology, down)
    cables = CableLinks(topology, tables)
    names = [h.name for h in topology.hosts]
    src = data.draw(st.sampled_from(names))
    dst = data.draw(st.sampled_from([n for n in names if n != src]))
    port = data.draw(st.integers(0xC000, 0xFFFF))
    path = path_of(topology, tables, src, dst, port)
    way = cables.way(path, port)
    assert list(way) == walked(topology, tables, src, dst, port)
    assert not {k for link in way for k in (link, link[::-1])} & down
    assert way in cables.ways(path, 256)
    assert cables.path(way) == path
    # A port for the same way: the lowest, and the next one if that is taken.
    first = cables.port(path, way, ())
    assert first is not None
    assert first <= port
    second = cables.port(path, way, {first})
    for found in (first, second):
        assert found is None or walked(topology, tables, src, dst, found) == list(way)
    assert second is None or second > first


def test_every_cable_is_a_way() -> None:
    tables = forwarding(LEAF_SPINE)
    cables = CableLinks(LEAF_SPINE, tables)
    ways = [w for p in paths(LEAF_SPINE, tables, "h1", "h3") for w in cables.ways(p, 256)]
    # Two spines, three cables up to each and three down from it.
    assert len(set(ways)) == len(ways) == 2 * 3 * 3
    rates = cable_rates(LEAF_SPINE)
    assert all(rates[link] == 10 for way in ways for link in way[1:-1])


def test_without_a_port_a_bundle_is_one_link() -> None:
    cables = CableLinks(LEAF_SPINE, forwarding(LEAF_SPINE))
    path = ("h1", "leaf1", "spine1", "leaf2", "h3")
    plain = (("h1", "leaf1"), ("leaf1", "spine1"), ("spine1", "leaf2"), ("leaf2", "h3"))
    assert cables.way(path, None) == plain
    # Nor is there one of a port outside those of RoCE, or of one that leads elsewhere.
    assert cables.way(path, 80) == plain
    assert cables.way((), 50_000) == ()
