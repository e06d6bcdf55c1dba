# SPDX-License-Identifier: Apache-2.0
"""The first choice of paths where several cables join two switches: each with its own rate and load."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.assign import with_ports
from controller.routing.assigned import assigned
from controller.routing.cable_fabric import CableFabric
from controller.routing.fabric import Ints, LeafDemand
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures
from controller.routing.greedy import Commodity
from controller.routing.hash import ecmp_hash
from controller.routing.least_congested import OwnedDemand, least_congested
from controller.routing.paths import Path, route_to
from controller.routing.protocol import ArrayRoutes, RoutingProblem
from controller.routing.routings import LeastCongested, held_choices
from topo.generate import leaf_spine
from topo.graph import Link, Topology

G = 10**9


def fabric_with_cables(rng: random.Random, rates: tuple[int, ...], most: int = 3) -> Topology:
    """A leaf-spine with 1 to `most` cables between a leaf and a spine, on the ports in a random order."""
    even = leaf_spine(rng.randint(2, 4), rng.randint(1, 3), 3, host_bps=G, fabric_bps=G)
    ends = [(k.a, k.b) for k in even.links for _ in range(rng.randint(1, most))]
    rng.shuffle(ends)
    last: Counter[str] = Counter({h.leaf: max(even.ports[h.leaf]) for h in even.hosts})
    links = []
    for a, b in ends:
        last.update((a, b))
        links.append(Link(a, last[a], b, last[b], rng.choice(rates)))
    return replace(even, links=tuple(links))


def problem_of(seed: int, rates: tuple[int, ...] = (G, 2 * G, 4 * G), most: int = 3) -> RoutingProblem:
    """Random flows on a random fabric, of whose cables some may be down."""
    rng = random.Random(seed)
    topology = fabric_with_cables(rng, rates, most)
    names = [h.name for h in topology.hosts]
    weights = (float(G), G / 2) if seed % 2 else (float(G),)
    flows = tuple(
        Commodity(f"f{i}", a, b, rng.choice(weights), rng.choice("ab"))
        for i, (a, b) in enumerate(rng.sample(names, 2) for _ in range(rng.randint(1, 30)))
    )
    cables = [name for name, ends in topology.cables.items() if ends[0][1]]
    down = frozenset(rng.sample(cables, rng.randint(0, min(3, len(cables)))))
    return RoutingProblem(
        topology, forwarding(topology, down), flows, Failures(down), {}, None, dict, dict, 0
    )


def cables_by_tables(
    problem: RoutingProblem, flow: Commodity, port: int
) -> tuple[Path, list[tuple[str, int]]]:
    """The path of a flow by the switches' own tables, and its egress ports between switches."""
    topology, tables = problem.topology, problem.forwarding
    host, spec = topology.host, topology.hash
    value = ecmp_hash(host[flow.src].ip, host[flow.dst].ip, port, algorithm=spec.algorithm)
    path, found = [flow.src, host[flow.src].leaf], []
    while path[-1] != host[flow.dst].leaf:
        route = route_to(topology, tables, path[-1], flow.dst)
        assert route is not None
        hop = route.id
        if route.kind == "group":
            hop = tables[path[-1]].groups[hop][value >> spec.slices[route.tier] & 255]
        out = tables[path[-1]].next_hops[hop].port
        found.append((path[-1], out))
        path.append(topology.ports[path[-1]][out].node)
    return (*path, flow.dst), found


def largest_load(problem: RoutingProblem, ports: dict[str, int]) -> float:
    """The largest load of a cable over its rate by the switches' own tables."""
    load: dict[tuple[str, int], float] = defaultdict(float)
    for f in problem.flows:
        if f.name in ports:
            for egress in cables_by_tables(problem, f, ports[f.name])[1]:
                load[egress] += f.weight
    rate = problem.topology.ports
    return max((n / rate[switch][out].rate_bps for (switch, out), n in load.items()), default=0.0)


class BundlesAsLinks(RoutingProblem):
    """The same problem with all cables between two switches as one link, by the names of the paths."""

    cables = None


def ports_of(problem: RoutingProblem, answer: ArrayRoutes) -> dict[str, int]:
    """The source ports of the flows with a path, none of which is wrong."""
    before = np.full(len(problem.flows), -1, dtype=np.int32) if problem.ports is None else problem.ports
    found = assigned(problem, answer, before)
    assert found is not None
    ports = {name: a.source_port for name, a in found.items() if a.path and a.source_port}
    assert all(
        cables_by_tables(problem, f, ports[f.name])[0] == found[f.name].path
        for f in problem.flows
        if f.name in ports
    )
    assert ports.keys() == answer.paths.keys()
    return ports


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_no_cable_carries_more_than_where_bundles_are_links(seed: int, alike: bool) -> None:
    problem = problem_of(seed, (G,)) if alike else problem_of(seed)
    if not problem.topology.bundles:
        return
    routing = LeastCongested(balance=True)
    answer = routing.route(problem)
    assert answer.fabric is problem.cables
    ports = ports_of(problem, answer)
    joint = BundlesAsLinks(**{name: getattr(problem, name) for name in problem.__dataclass_fields__})
    paths = routing.route(joint).paths
    assert paths.keys() == answer.paths.keys()
    flow = {f.name: f for f in problem.flows}
    placed = with_ports(
        problem.topology,
        problem.forwarding,
        [flow[name] for name in paths],
        paths,
        fabric=joint.fabric,
        down_links=problem.failures.links,
    )
    spread = {name: a.source_port for name, a in placed.items() if a.source_port}
    assert largest_load(problem, ports) <= largest_load(problem, spread) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_a_flow_in_force_keeps_its_cables_and_its_port(seed: int, balance: bool) -> None:
    problem = problem_of(seed)
    if not problem.topology.bundles:
        return
    first = LeastCongested(balance=balance).route(problem)
    ports = ports_of(problem, first)
    column = np.array([ports.get(f.name, -1) for f in problem.flows], dtype=np.int32)
    later = replace(problem, previous=dict(first.paths), ports=column)
    assert problem.cables is not None
    held = held_choices(later, problem.cables)
    # Inside a leaf there is one path, whatever its number.
    assert (held == np.where(problem.demand.src == problem.demand.dst, held, first.choice)).all()
    stays = LeastCongested(balance=balance, max_moves=0).route(later)
    assert ports_of(later, stays) == ports
    again = LeastCongested(balance=balance).route(later)
    assert largest_load(later, ports_of(later, again)) <= largest_load(problem, ports) * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_compiled_choice_is_that_of_the_plain_reference(seed: int) -> None:
    problem = problem_of(seed)
    fabric, demand = problem.cables, problem.demand
    if fabric is None:
        return
    far = np.flatnonzero(demand.src != demand.dst)
    owner = problem.owners[0][far]
    held = np.full(len(far), -1, dtype=np.int32)
    some = LeafDemand(demand.src[far], demand.dst[far], problem.weights[far])
    for before in (held, np.where(owner == 0, least(fabric, OwnedDemand(some, owner, held), True), -1)):
        flows = OwnedDemand(some, owner, before.astype(np.int32))
        assert (least(fabric, flows, True) == least(fabric, flows, False)).all()


def least(fabric: CableFabric, flows: OwnedDemand, plain: bool) -> Ints:
    return least_congested(fabric, flows, balance=True, plain=plain)


def test_a_flow_takes_the_faster_of_two_cables() -> None:
    even = leaf_spine(2, 1, 2, host_bps=G, fabric_bps=G)
    links = [
        Link(k.a, k.a_port + 10 * n, k.b, k.b_port + 10 * n, G * (1 + 3 * n))
        for k in even.links
        for n in (0, 1)
    ]
    topology = replace(even, links=tuple(links))
    flows = (Commodity("slow", "h1", "h3", G / 4, "a"), Commodity("fast", "h2", "h4", float(G), "b"))
    problem = RoutingProblem(topology, forwarding(topology), flows, Failures(), {}, None, dict, dict, 0)
    ports = ports_of(problem, LeastCongested(balance=True).route(problem))
    rates = {
        f.name: [topology.ports[a][p].rate_bps for a, p in cables_by_tables(problem, f, ports[f.name])[1]]
        for f in flows
    }
    assert rates == {"slow": [G, G], "fast": [4 * G, 4 * G]}
