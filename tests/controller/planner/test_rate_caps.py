# SPDX-License-Identifier: Apache-2.0
"""What a new plan costs and grants: flows taken off their paths, and the rates flows are held to."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model import Flow, Job, Phase, Plan, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.routing.fabric import LeafDemand, TwoTier, UnsuitableError
from controller.routing.incremental import rebalanced
from topo.generate import leaf_spine
from topo.graph import Topology

MS = 1_000_000
G = 25_000_000


def fabric(leaves: int, spines: int) -> TwoTier:
    names = [tuple(f"{kind}{i}" for i in range(n)) for kind, n in (("leaf", leaves), ("spine", spines))]
    return TwoTier(names[0], names[1], np.full((leaves, spines), 1e9))


def most(flows: LeafDemand, choice: np.ndarray) -> tuple[Counter, Counter]:
    return (
        Counter(zip(flows.src.tolist(), choice.tolist(), strict=True)),
        Counter(zip(flows.dst.tolist(), choice.tolist(), strict=True)),
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(1, 8), st.integers(0, 10**6), st.booleans())
def test_from_anywhere_to_balance_with_few_moves(leaves: int, spines: int, seed: int, plain: bool) -> None:
    rng = random.Random(seed)
    pairs = [rng.sample(range(leaves), 2) for _ in range(rng.randint(0, 60))]
    flows = LeafDemand(*(np.array([p[i] for p in pairs], dtype=np.int32) for i in (0, 1)))
    before = np.array([rng.randrange(-1, spines) for _ in pairs], dtype=np.int32)
    made = rebalanced(fabric(leaves, spines), flows, before, plain=plain)
    assert ((made >= 0) & (made < spines)).all()
    again = rebalanced(fabric(leaves, spines), flows, made, plain=plain)
    balanced = all(
        n <= -(-degree[end] // spines)
        for loads, degree in zip(most(flows, made), (Counter(flows.src.tolist()), Counter(flows.dst.tolist())), strict=True)
        for (end, _), n in loads.items()
    )  # fmt: skip
    # Chains longer than the cap are rare on so few leaves, and only they leave an imbalance.
    assert balanced or len(pairs) > 2 * spines
    assert not balanced or (again == made).all()
    cap = rng.randint(0, 5)
    bounded = rebalanced(fabric(leaves, spines), flows, before, cap, plain=plain)
    assert ((bounded != before) & (before >= 0)).sum() <= cap


def test_what_is_not_uniform_is_refused() -> None:
    flows = LeafDemand(
        np.array([0, 1], dtype=np.int32), np.array([1, 0], dtype=np.int32), np.array([1.0, 2.0])
    )
    with pytest.raises(UnsuitableError, match="weights"):
        rebalanced(fabric(2, 2), flows, np.array([0, 0], dtype=np.int32))
    dead = fabric(2, 2)
    dead.up[0, 1] = 0
    with pytest.raises(UnsuitableError, match="down"):
        rebalanced(dead, replace(flows, weight=None), np.array([0, 0], dtype=np.int32))


def job(name: str, src: str, dst: str, *, flops: float = 1e12, up: float = 120) -> Job:
    flows = (Flow(f"{name}/{src}>{dst}", name, src, dst, round(G * up / 8e3)),)
    return Job(name, "m", 2, (src, dst), Profile(260 * MS, (Phase(0, round(up * MS), G),)), flops, flows)


def loads(made: Plan) -> Counter[tuple[str, str]]:
    return Counter(link for f in made.flows.values() if f.path for link in pairwise(f.path[1:-1]))


def crossing(topology: Topology, pairs: list[tuple[int, int]]) -> tuple[Job, ...]:
    """One job for each pair of leaves, each on NICs of its own."""
    used: Counter[int] = Counter()
    jobs = []
    for i, ends in enumerate(pairs):
        nics = []
        for leaf in ends:
            nics.append(topology.hosts[16 * leaf + used[leaf]].name)
            used[leaf] += 1
        jobs.append(job(f"j{i}", *nics))
    return tuple(jobs)


def test_a_departure_rebalances_by_few_moves_and_within_the_bound() -> None:
    """Flows of leaf 1 stay on few spines when the others leave; the plan evens them out."""
    topology = leaf_spine(3, 4, 16, host_bps=G, fabric_bps=G)
    jobs = crossing(topology, [(0, 1 + i % 2) for i in range(12)])
    policy = POLICIES["routing"]
    first = plan(PlanInput(topology, jobs, policy, 0))
    assert max(loads(first).values()) == 3
    spine = Counter(f.path[2] for f in first.flows.values() if f.path)
    stay = tuple(j for j in jobs if first.flows[j.flows[0].name].path[2] in sorted(spine)[:2])
    assert len(stay) == 6
    for max_moves in (None, 3, 1, 0):
        made = plan(
            PlanInput(topology, stay, policy.with_options({"max_moves": max_moves}), 0, previous=first)
        )
        moved = sum(f.path != first.flows[n].path for n, f in made.flows.items())
        assert max_moves is None or moved <= max_moves
        assert max(loads(made).values()) == (2 if moved >= 2 else 3)
        if max_moves in (None, 3):
            assert 2 <= moved <= 3
        kept = [n for n, f in made.flows.items() if f.path == first.flows[n].path]
        assert all(made.flows[n].source_port == first.flows[n].source_port for n in kept)


def caps(policy: str, jobs: tuple[Job, ...], epsilon: float) -> dict[str, float]:
    topology = leaf_spine(2, 1, 4, host_bps=G, fabric_bps=G)
    made = plan(PlanInput(topology, jobs, POLICIES[policy].with_options({"cap_epsilon": epsilon}), 0))
    return {n: f.rate_cap_bps / G for n, f in made.flows.items()}


def test_caps_are_shares_and_a_little_more() -> None:
    pair = (job("a", "h1", "h5", up=200), job("b", "h2", "h6", up=200))
    assert caps("routing", pair, 0.1) == pytest.approx({"a/h1>h5": 0.55, "b/h2>h6": 0.55})
    inside = job("c", "h3", "h4", up=200)
    assert caps("routing", (*pair, inside), 0.0)["c/h3>h4"] == pytest.approx(1.0)
    assert (
        plan(PlanInput(leaf_spine(2, 1, 4, host_bps=G, fabric_bps=G), pair, POLICIES["routing"], 0))
        .flows["a/h1>h5"]
        .rate_cap_bps
        == 0
    )


def test_jobs_that_take_turns_are_not_halved_and_the_weaker_class_is_left_to_the_queues() -> None:
    jobs = (job("a", "h1", "h5"), job("b", "h2", "h6"))
    assert caps("cassini", jobs, 0.05) == pytest.approx({"a/h1>h5": 1.05, "b/h2>h6": 1.05})
    apart = (job("a", "h1", "h5", up=200, flops=9e12), job("b", "h2", "h6", up=200))
    found = caps("crux", apart, 0.05)
    assert found["a/h1>h5"] == pytest.approx(1.05)
    assert found["b/h2>h6"] == 0


@pytest.mark.parametrize("change", [{"max_moves": -1}, {"cap_epsilon": -0.1}, {"cap_epsilon": float("nan")}])
def test_options_that_make_no_sense(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        POLICIES["routing"].with_options(change)
