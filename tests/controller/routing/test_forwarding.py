# SPDX-License-Identifier: Apache-2.0
"""Forwarding state of Clos fabrics, intact and with failures."""

from __future__ import annotations

import pickle

from controller.routing.forwarding import BUCKETS, NextHop, Route, forwarding
from controller.routing.paths import path_of, paths, port_for_path
from topo.generate import leaf_spine
from topo.graph import Host, Link, Switch, Tier, Topology

G = 25_000_000


def three_tier(spines: int = 8, cores_per_spine: int = 8) -> Topology:
    """Two pods of one leaf each; spine k of either pod hangs on the same cores."""
    switches, links, hosts = [], [], []
    for pod in (1, 2):
        switches.append(Switch(f"leaf{pod}", Tier.LEAF, pod, f"02:01:00:00:00:{pod:02x}"))
        hosts.append(Host(f"h{pod}", f"10.0.{pod}.1", f"02:00:00:00:{pod:02x}:01", f"leaf{pod}", 1, G))
        for k in range(1, spines + 1):
            name = f"p{pod}spine{k}"
            switches.append(Switch(name, Tier.SPINE, 10 * pod + k, f"02:02:00:00:{pod:02x}:{k:02x}"))
            links.append(Link(f"leaf{pod}", 1 + k, name, 1, G))
            for c in range(1, cores_per_spine + 1):
                links.append(Link(name, 1 + c, f"core{(k - 1) * cores_per_spine + c}", pod, G))
    for c in range(1, spines * cores_per_spine + 1):
        switches.append(Switch(f"core{c}", Tier.CORE, 100 + c, f"02:03:00:00:00:{c:02x}"))
    prefixes = {"leaf1": "10.0.1.0/24", "leaf2": "10.0.2.0/24"}
    return Topology("three_tier", tuple(hosts), tuple(switches), tuple(links), prefixes)


def test_leaf_spine_intact() -> None:
    topology = leaf_spine(3, 4, 2, host_bps=G, fabric_bps=G)
    table = forwarding(topology)
    leaf = table["leaf1"]
    assert leaf.edge_ports == {1, 2}
    assert leaf.next_hops[1] == NextHop(1, topology.switch["leaf1"].mac, topology.host["h1"].mac)
    assert leaf.next_hops[3] == NextHop(3, topology.switch["leaf1"].mac, topology.switch["spine1"].mac)
    assert leaf.routes == {
        "10.0.1.1/32": Route("next_hop", 1, 0),
        "10.0.1.2/32": Route("next_hop", 2, 0),
        "10.0.2.0/24": Route("group", 1, 0),
        "10.0.3.0/24": Route("group", 1, 0),
    }
    assert list(leaf.groups) == [1]
    assert len(leaf.groups[1]) == BUCKETS
    assert leaf.groups[1][:6] == (3, 4, 5, 6, 3, 4)
    spine = table["spine2"]
    assert spine.edge_ports == frozenset()
    assert spine.groups == {}
    assert spine.routes["10.0.3.0/24"] == Route("next_hop", 3, 1)


def test_failed_link_moves_only_what_used_it() -> None:
    topology = leaf_spine(4, 3, 1, host_bps=G, fabric_bps=G)
    before, after = forwarding(topology), forwarding(topology, frozenset({("leaf2", "spine1")}))
    assert after["leaf1"].routes["10.0.3.0/24"] == before["leaf1"].routes["10.0.3.0/24"]
    moved = after["leaf1"].routes["10.0.2.0/24"]
    assert set(after["leaf1"].groups[moved.id]) == {3, 4}
    assert "10.0.2.0/24" not in after["spine1"].routes
    assert after["spine2"] == before["spine2"]
    assert set(after["leaf2"].groups[after["leaf2"].routes["10.0.1.0/24"].id]) == {3, 4}
    assert set(after["leaf2"].groups) & set(before["leaf2"].groups) == set()


def test_dead_switch_is_avoided_and_no_valley_is_taken() -> None:
    topology = leaf_spine(3, 2, 1, host_bps=G, fabric_bps=G)
    dead = forwarding(topology, frozenset(), frozenset({"spine1"}))
    assert paths(topology, dead, "h1", "h2") == (("h1", "leaf1", "spine2", "leaf2", "h2"),)
    # leaf1 has only spine2, leaf2 only spine1: leaf3 must not be used as a bridge.
    split = forwarding(topology, frozenset({("leaf1", "spine1"), ("leaf2", "spine2")}))
    assert paths(topology, split, "h1", "h2") == ()
    assert path_of(topology, split, "h1", "h2", 0xC000) == ()
    assert len(paths(topology, split, "h1", "h3")) == 1


def test_leaves_that_cables_join_are_crossed_to_once() -> None:
    names = ("s1", "s2", "s3")
    switches = tuple(Switch(s, Tier.LEAF, i, f"02:01:00:00:00:{i:02x}") for i, s in enumerate(names, start=1))
    hosts = tuple(
        Host(f"h{i}", f"10.0.{i}.1", f"02:00:00:00:{i:02x}:01", s, 1, G) for i, s in enumerate(names, start=1)
    )
    cables = (Link("s1", 2, "s2", 2, G), Link("s1", 3, "s3", 2, G), Link("s2", 3, "s3", 3, G))
    triangle = Topology(
        "triangle", hosts, switches, cables, {s: f"10.0.{i + 1}.0/24" for i, s in enumerate(names)}
    )
    whole = forwarding(triangle)
    for a in hosts:
        for b in hosts:
            if a is not b:
                assert paths(triangle, whole, a.name, b.name) == ((a.name, a.leaf, b.leaf, b.name),)
    # A second crossing could loop: without its own cable a pair has no way, and nobody else loses one.
    cut = forwarding(triangle, frozenset({("s1", "s2")}))
    assert paths(triangle, cut, "h1", "h2") == ()
    assert paths(triangle, cut, "h1", "h3") == (("h1", "s1", "s3", "h3"),)
    # With a spine over two of them, the crossing is the shorter way, and the spine the other one.
    spine = Switch("s4", Tier.SPINE, 4, "02:02:00:00:00:01")
    over = (*cables, Link("s1", 4, "s4", 1, G), Link("s2", 4, "s4", 2, G))
    both = Topology("both", hosts, (*switches, spine), over, triangle.prefixes)
    assert paths(both, forwarding(both), "h1", "h2") == (("h1", "s1", "s2", "h2"),)
    assert paths(both, forwarding(both, frozenset({("s1", "s2")})), "h1", "h2") == (
        ("h1", "s1", "s4", "s2", "h2"),
    )


def test_three_tiers_use_independent_slices_of_the_hash() -> None:
    topology = three_tier()
    table = forwarding(topology)
    every = set(paths(topology, table, "h1", "h2"))
    assert len(every) == 64
    taken = {path_of(topology, table, "h1", "h2", port) for port in range(0xC000, 0xC000 + 128)}
    assert taken == every
    for path in every:
        port = port_for_path(topology, table, path)
        assert port is not None
        assert path_of(topology, table, "h1", "h2", port) == path


def test_three_tiers_climb_to_the_core_around_a_failure() -> None:
    topology = three_tier(spines=2, cores_per_spine=2)
    table = forwarding(topology, frozenset({("core1", "p2spine1"), ("leaf2", "p2spine2")}))
    assert paths(topology, table, "h1", "h2") == (
        ("h1", "leaf1", "p1spine1", "core2", "p2spine1", "leaf2", "h2"),
    )


def test_forwarding_pickles() -> None:
    table = forwarding(leaf_spine(2, 2, 1, host_bps=G, fabric_bps=G))
    assert pickle.loads(pickle.dumps(table)) == table
