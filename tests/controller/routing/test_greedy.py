# SPDX-License-Identifier: Apache-2.0
"""Greedy max-min routing against a plain Algorithm 1, the optimum, and failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.assign import Assignment, assign_ecmp, with_ports
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures
from controller.routing.greedy import Commodity, connection_order, route
from controller.routing.paths import path_of
from controller.routing.protocol import RoutingProblem
from controller.routing.routings import LeastCongested
from topo.generate import leaf_spine
from topo.graph import Link, Topology

G = 1_000


def fabric(leaves: int, spines: int, hosts: int) -> Topology:
    return leaf_spine(leaves, spines, hosts, host_bps=G, fabric_bps=G)


def assigned(
    topology: Topology,
    flows: list[Commodity],
    down: frozenset[tuple[str, str]] = frozenset(),
    previous: Mapping[str, tuple[tuple[str, ...], int]] | None = None,
) -> Mapping[str, Assignment]:
    """Path and port of each flow, as the planner finds them."""
    standing = previous or {}
    problem = RoutingProblem(
        topology,
        forwarding(topology, down),
        tuple(flows),
        Failures(down),
        {n: path for n, (path, _) in standing.items()},
        None,
        dict,
        dict,
        0,
    )
    chosen = LeastCongested().route(problem).paths
    return with_ports(
        topology,
        problem.forwarding,
        flows,
        chosen,
        fabric=problem.fabric,
        down_links=down,
        previous=standing,
    )


def plain(pairs: list[tuple[str, str]], spines: int) -> list[int]:
    """Algorithm 1 as printed: spine per (source leaf, destination leaf), unit loads."""
    load: Counter[tuple[str, str]] = Counter()
    chosen = []
    for u, v in pairs:
        best = min(range(1, spines + 1), key=lambda k: max(load[u, f"s{k}"], load[f"s{k}", v]))
        load[u, f"s{best}"] += 1
        load[f"s{best}", v] += 1
        chosen.append(best)
    return chosen


def draw(topology: Topology, count: int, rng: random.Random) -> list[Commodity]:
    names = [h.name for h in topology.hosts]
    flows = []
    while len(flows) < count:
        a, b = rng.sample(names, 2)
        if topology.host[a].leaf != topology.host[b].leaf:
            flows.append(Commodity(f"f{len(flows)}", a, b, float(G)))
    return flows


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(1, 40), st.integers(0, 10**6))
def test_equals_the_printed_algorithm(leaves: int, spines: int, count: int, seed: int) -> None:
    topology = fabric(leaves, spines, 2)
    flows = draw(topology, count, random.Random(seed))
    chosen, _ = route(topology, forwarding(topology), flows)
    ends = [(topology.host[c.src].leaf, topology.host[c.dst].leaf) for c in flows]
    assert [chosen[c.name][2] for c in flows] == [f"spine{k}" for k in plain(ends, spines)]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(2, 3), st.integers(1, 6), st.integers(0, 10**6))
def test_within_twice_the_optimum(leaves: int, spines: int, count: int, seed: int) -> None:
    topology = fabric(leaves, spines, 2)
    flows = draw(topology, count, random.Random(seed))
    for spread in (False, True):
        _, found = route(topology, forwarding(topology), flows, spread=spread)
        optimum = min(
            max(
                Counter(
                    link
                    for c, k in zip(flows, spine, strict=True)
                    for link in (
                        (topology.host[c.src].leaf, k),
                        (k, topology.host[c.dst].leaf, "down"),
                    )
                ).values()
            )
            for spine in product(range(spines), repeat=len(flows))
        )
        assert optimum <= found.max_load <= 2 * optimum


def test_goes_by_capacity() -> None:
    plain_fabric = fabric(2, 2, 6)
    links = tuple(
        Link(k.a, k.a_port, k.b, k.b_port, 2 * G if "spine2" in (k.a, k.b) else G) for k in plain_fabric.links
    )
    topology = Topology("uneven", plain_fabric.hosts, plain_fabric.switches, links, plain_fabric.prefixes)
    flows = [Commodity(f"f{i}", f"h{i}", f"h{6 + i}", float(G)) for i in range(1, 7)]
    chosen, found = route(topology, forwarding(topology), flows)
    assert Counter(path[2] for path in chosen.values()) == {"spine1": 2, "spine2": 4}
    assert found.max_load == 2.0


def test_failed_links_are_not_used_and_unreachable_flows_are_left_out() -> None:
    topology = fabric(3, 2, 2)
    dead = frozenset({("leaf1", "spine1"), ("leaf3", "spine1"), ("leaf3", "spine2")})
    flows = [
        Commodity("a", "h1", "h3", 1.0),
        Commodity("b", "h2", "h4", 1.0),
        Commodity("c", "h1", "h5", 1.0),
    ]
    chosen, found = route(topology, forwarding(topology, dead), flows)
    assert {name: path[2] for name, path in chosen.items()} == {"a": "spine2", "b": "spine2"}
    assert found.max_load == 2.0 / G


def test_jobs_that_never_overlap_may_share() -> None:
    topology = fabric(2, 2, 3)
    flows = [
        Commodity("a", "h1", "h4", 900.0, "day"),
        Commodity("b", "h2", "h5", 800.0, "night"),
        Commodity("c", "h3", "h6", 850.0, "all"),
    ]

    def overlap(a: str, b: str) -> float:
        return 0.0 if {a, b} == {"day", "night"} else 1.0

    apart, worse = route(topology, forwarding(topology), flows)
    assert apart["a"][2] != apart["b"][2]
    shared, better = route(topology, forwarding(topology), flows, overlap=overlap)
    assert shared["a"][2] == shared["b"][2] != shared["c"][2]
    assert better < worse


def test_connection_order_is_by_leaf_sets() -> None:
    topology = fabric(3, 2, 3)
    flows = [
        Commodity("one", "h7", "h1", 1.0),
        Commodity("two", "h1", "h4", 1.0),
        Commodity("three", "h2", "h7", 1.0),
    ]
    assert [c.name for c in connection_order(topology, flows)] == ["two", "three", "one"]


def test_standing_flows_stay_and_only_broken_ones_move() -> None:
    topology = fabric(2, 4, 4)
    flows = [Commodity(f"f{i}", f"h{i}", f"h{4 + i}", float(G)) for i in (1, 2, 3)]
    first = assigned(topology, flows)
    now = {n: (a.path, a.source_port) for n, a in first.items() if a.path and a.source_port}
    dead = frozenset({("leaf1", "spine2")})
    again = assigned(topology, flows, dead, now)
    # Fewer members move the groups' buckets: the path stays, the port that leads there may not.
    assert {n for n in now if again[n].path == now[n][0]} == {"f1", "f3"}
    moved = again["f2"].path
    assert moved is not None
    assert moved[2] == "spine4"
    for c in flows:
        port = again[c.name].source_port
        assert port is not None
        assert path_of(topology, forwarding(topology, dead), c.src, c.dst, port) == again[c.name].path
    # A newcomer that goes first does not push anyone off an equally good path.
    wider = [Commodity("f4", "h4", "h8", float(G)), *flows]
    third = assigned(topology, wider, previous=now)
    assert all(third[n].kept for n in now)
    assert len({a.path[2] for a in third.values() if a.path}) == 4


def test_a_better_assignment_beats_standing_still() -> None:
    topology = fabric(2, 2, 2)
    flows = [Commodity("f1", "h1", "h3", float(G)), Commodity("f2", "h2", "h4", float(G))]
    crowded = {
        "f1": (("h1", "leaf1", "spine1", "leaf2", "h3"), 0xC000),
        "f2": (("h2", "leaf1", "spine1", "leaf2", "h4"), 0xC000),
    }
    found = assigned(topology, flows, previous=crowded)
    assert len({a.path[2] for a in found.values() if a.path}) == 2


def test_ecmp_draws_follow_the_hash_and_collide_sometimes() -> None:
    topology = fabric(2, 4, 4)
    table = forwarding(topology)
    flows = [Commodity(f"f{i}", f"h{i}", f"h{4 + i}", float(G)) for i in (1, 2, 3, 4)]
    spines = set()
    for seed in range(20):
        found = assign_ecmp(topology, table, flows, seed=seed)
        for c in flows:
            a = found[c.name]
            assert a.source_port is not None
            assert a.path == path_of(topology, table, c.src, c.dst, a.source_port)
        spines.add(len({a.path[2] for a in found.values() if a.path}))
    assert min(spines) < 4


def test_a_host_without_its_cable_has_no_path() -> None:
    topology = fabric(2, 1, 1)
    flows = [Commodity("f", "h1", "h2", 1.0)]
    cut = frozenset({("h2", "leaf2")})
    for found in (
        assigned(topology, flows, cut),
        assign_ecmp(topology, forwarding(topology, cut), flows, seed=0, down_links=cut),
    ):
        assert found["f"].path is None
        assert "no live path from h1 to h2" in found["f"].why


def test_same_host_pair_gets_different_ports() -> None:
    topology = fabric(2, 1, 1)
    flows = [Commodity(f"f{i}", "h1", "h2", 1.0) for i in range(5)]
    found = assigned(topology, flows)
    assert len({a.source_port for a in found.values()}) == 5
    assert all(a.path and len(list(pairwise(a.path))) == 4 for a in found.values())
