# SPDX-License-Identifier: Apache-2.0
"""Paths of drawn source ports for all flows at once are those that the switches' tables give one by one."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput
from controller.planner.demand import Demands
from controller.planner.drawn_paths import drawn_paths, drawn_ways
from controller.routing.ecmp import draw_port
from controller.routing.from_topology import Failures
from controller.routing.paths import path_of
from topo.generate import leaf_spine, three_tier

RATE = 100_000_000_000
FABRICS = {
    "leaf-spine": leaf_spine(4, 3, 3, host_bps=RATE, fabric_bps=RATE),
    "one spine": leaf_spine(3, 1, 2, host_bps=RATE, fabric_bps=RATE),
    "one leaf": leaf_spine(1, 0, 4, host_bps=RATE, fabric_bps=RATE),
    "three tiers": three_tier(2, 2, 2, 2, 2, host_bps=RATE, fabric_bps=RATE),
}


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_drawn_paths_are_those_of_the_tables(name: str, seed: int) -> None:
    topology, rng = FABRICS[name], Random(seed)
    hosts = [h.name for h in topology.hosts]
    pairs = [rng.sample(hosts, 2) for _ in range(rng.randint(1, 20))]
    flows = tuple(Flow(f"a/{n}", "a", a, b, 10**6) for n, (a, b) in enumerate(pairs))
    job = Job("a", "test", 8, tuple(hosts), Profile(100, (Phase(0, 50, RATE),)), 1e15, flows)
    # Cables of hosts too.
    cables = sorted(topology.cables)
    down = frozenset(rng.sample(cables, rng.choice((0, 1, 4))))
    demands = Demands(PlanInput(topology, (job,), POLICIES["polyrhythm"], 0, down_links=down, seed=seed))
    names = [f.name for f in flows]
    wanted = {
        f.name: path_of(topology, demands.forwarding, f.src, f.dst, draw_port(f.name, seed)) for f in flows
    }
    assert drawn_paths(topology, Failures(down), flows, seed) == wanted
    drawn = drawn_ways(demands, names)[0]
    assert drawn == {name: tuple(pairwise(path)) for name, path in wanted.items()}
