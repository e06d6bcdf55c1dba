# SPDX-License-Identifier: Apache-2.0
"""The planner's choice of paths on arrays, against the same choice in plain Python by names."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.kernel import available
from controller.routing.algorithms.base import loads
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures
from controller.routing.greedy import Commodity, route
from controller.routing.least_congested import (
    OwnedDemand,
    congestion_of,
    greedy_around,
    least_congested,
    lower_bound,
)
from controller.routing.protocol import RoutingProblem
from controller.routing.routings import LeastCongested, held_choices
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology

G = 1_000
SHARES = {("a", "b"): 0.5, ("a", "c"): 1.0, ("b", "c"): 0.0}


def overlap(x: str, y: str) -> float:
    return 1.0 if x == y else SHARES[min(x, y), max(x, y)]


def fabrics(seed: int) -> Topology:
    """A leaf-spine, a three-tier Clos, or a leaf-spine with links of different rates."""
    rng = random.Random(seed)
    kind = seed % 3
    if kind == 1:
        return three_tier(2, 2, 2, 2, 2, host_bps=G, fabric_bps=G)
    even = leaf_spine(rng.randint(2, 4), rng.randint(1, 4), 3, host_bps=G, fabric_bps=G)
    if kind == 0:
        return even
    return replace(even, links=tuple(replace(k, rate_bps=rng.choice((G, 2 * G))) for k in even.links))


def problem_of(seed: int, owners: bool, down: int) -> RoutingProblem:
    rng = random.Random(seed)
    topology = fabrics(seed)
    names = [h.name for h in topology.hosts]
    pairs = [rng.sample(names, 2) for _ in range(rng.randint(1, 30))]
    weights = (float(G), G / 2, G / 3) if seed % 2 else (float(G),)
    flows = tuple(
        Commodity(f"f{i}", a, b, rng.choice(weights), rng.choice("abc")) for i, (a, b) in enumerate(pairs)
    )
    cut = frozenset(
        (min(k.a, k.b), max(k.a, k.b)) for k in rng.sample(topology.links, min(down, len(topology.links)))
    )
    table = forwarding(topology, cut)
    first, _ = route(topology, table, flows[: len(flows) // 2])
    return RoutingProblem(
        topology, table, flows, Failures(cut), first, overlap if owners else None, dict, dict, 0
    )


def arrays(problem: RoutingProblem, held: bool) -> tuple[OwnedDemand, list[Commodity]]:
    """The flows between leaves, for the functions under test and for `route`."""
    far = np.flatnonzero(problem.demand.src != problem.demand.dst)
    owner, part = problem.owners
    demand = replace(problem.demand, weight=problem.weights).take(far)
    kept = held_choices(problem, problem.fabric)[far] if held else np.full(len(far), -1, dtype=np.int32)
    return OwnedDemand(demand, owner[far], kept, part), [problem.flows[i] for i in far]


@pytest.mark.parametrize("plain", [True, False])
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(0, 2))
def test_equals_the_plain_choice_by_names(
    plain: bool, seed: int, owners: bool, held: bool, down: int
) -> None:
    if not plain and not available():
        return
    problem = problem_of(seed, owners, down)
    flows, named = arrays(problem, held)
    choice = greedy_around(problem.fabric, flows, plain=plain)
    kept = {c.name: problem.previous[c.name] for c in named if held and c.name in problem.previous}
    wanted, congestion = route(
        problem.topology, problem.forwarding, named, kept=kept, overlap=problem.overlap, spread=True
    )
    rows = zip(named, flows.demand.src.tolist(), flows.demand.dst.tolist(), choice.tolist(), strict=True)
    found = {c.name: (c.src, *problem.fabric.nodes(u, v, w), c.dst) for c, u, v, w in rows if w >= 0}
    assert found == wanted
    measured = congestion_of(problem.fabric, flows, choice)
    assert measured.max_load == pytest.approx(congestion.max_load, abs=2e-9)
    assert measured.squares == pytest.approx(congestion.squares, abs=1e-6)


# Thirds of a rate: a sum that is off by a rounding decides a tie otherwise.
@example(489, True, False, 1)
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(0, 2))
def test_the_compiled_choice_is_that_of_the_plain_reference(
    seed: int, owners: bool, held: bool, down: int
) -> None:
    """A process plans with the references until its kernels are there: its plans may not change with that."""
    problem = problem_of(seed, owners, down)
    flows, _ = arrays(problem, held)
    choices = [least_congested(problem.fabric, flows, balance=True, plain=plain) for plain in (True, False)]
    assert choices[0].tolist() == choices[1].tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 4))
def test_no_more_held_flows_move_than_allowed(seed: int, most: int) -> None:
    problem = problem_of(seed, False, 0)
    flows, _ = arrays(problem, held=True)
    choice = least_congested(problem.fabric, flows, balance=True, max_moves=most, plain=True)
    held = flows.held >= 0
    assert (choice[held] != flows.held[held]).sum() <= most
    stay = greedy_around(problem.fabric, flows, plain=True)
    assert congestion_of(problem.fabric, flows, choice) <= congestion_of(problem.fabric, flows, stay) or most


def test_balance_reaches_the_optimum() -> None:
    topology = leaf_spine(8, 4, 4, host_bps=G, fabric_bps=G)
    names = [h.name for h in topology.hosts]
    for seed in range(10):
        rng = random.Random(seed)
        flows = tuple(
            Commodity(f"f{i}", a, b, float(G))
            for i, (a, b) in enumerate(zip(names, rng.sample(names, len(names)), strict=True))
            if a != b
        )
        problem = RoutingProblem(topology, forwarding(topology), flows, Failures(), {}, None, dict, dict, 0)
        made, _ = arrays(problem, held=False)
        choice = least_congested(problem.fabric, made, balance=True, plain=True)
        assert loads(problem.fabric, made.demand, choice).max() == problem.fabric.bound(made.demand)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 2))
def test_no_flow_moves_where_the_others_find_even_paths_around_them(seed: int, down: int) -> None:
    problem = problem_of(6 * seed, False, down)  # Links and flows are alike.
    flows, _ = arrays(problem, held=True)
    held = flows.held >= 0
    stay = greedy_around(problem.fabric, flows, plain=True)
    choice = least_congested(problem.fabric, flows, balance=True, plain=True)
    now, around = (congestion_of(problem.fabric, flows, x) for x in (choice, stay))
    assert now.max_load <= around.max_load
    if around.max_load <= lower_bound(problem.fabric, flows.demand):
        assert (choice[held] == flows.held[held]).all()
        assert now.squares <= around.squares + 1e-9


def test_nothing_to_route() -> None:
    topology = leaf_spine(2, 1, 1, host_bps=G, fabric_bps=G)
    problem = RoutingProblem(topology, forwarding(topology), (), Failures(), {}, None, dict, dict, 0)
    assert LeastCongested(balance=True).route(problem).paths == {}


def test_no_spine_is_alive() -> None:
    topology = leaf_spine(2, 1, 1, host_bps=G, fabric_bps=G)
    dead = Failures(switches=frozenset({"spine1"}))
    flows = (Commodity("f", "h1", "h2", 1.0),)
    table = forwarding(topology, frozenset(), dead.switches)
    before = {"f": ("h1", "leaf1", "spine1", "leaf2", "h2")}
    problem = RoutingProblem(topology, table, flows, dead, before, None, dict, dict, 0)
    assert LeastCongested(balance=True).route(problem).paths == {}
