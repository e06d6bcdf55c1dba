# SPDX-License-Identifier: Apache-2.0
"""The algorithms behind one interface: kernels against references, optima against bounds and enumeration."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_rig import between, carried, clos, demand, permutation, worst

from controller.routing.algorithms import Options, auto, congestion, solve
from controller.routing.algorithms.annealing import annealing
from controller.routing.algorithms.base import Algorithm
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.ilp import ilp
from controller.routing.algorithms.optimal import optimal
from controller.routing.algorithms.published_annealing import energy, published_annealing
from controller.routing.components import components
from controller.routing.fabric import UnsuitableError, two_tier
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.three_tier import three_tier as arrays_of_three
from topo.generate import three_tier

SEEDS = st.integers(0, 10**6)


def best(fabric, flows) -> int:
    """The smallest largest load over all assignments."""
    ways = fabric.candidates(flows)
    options = [ways.choice[ways.first[p] : ways.first[p + 1]].tolist() for p in ways.pair]
    return min(worst(fabric, flows, np.array(c, dtype=np.int32)) for c in product(*options))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(1, 70), st.integers(1, 120), SEEDS)
def test_greedy_kernels_choose_what_the_printed_algorithm_chooses(leaves, spines, count, seed) -> None:
    rng = random.Random(seed)
    fabric = two_tier(clos(leaves, spines, 1))
    flows = between(leaves, count, rng)
    expected = solve(greedy, fabric, flows, Options(plain=True))
    assert solve(greedy, fabric, flows).tolist() == expected.tolist()
    weighted = replace(flows, weight=np.ones(count))
    assert solve(greedy, fabric, weighted).tolist() == expected.tolist()
    dead = np.array([[rng.random() < 0.3 for _ in range(spines)] for _ in range(leaves)])
    holes = replace(fabric, up=np.where(dead, 0.0, fabric.up))
    expected = solve(greedy, holes, flows, Options(plain=True)).tolist()
    assert solve(greedy, holes, flows).tolist() == expected
    uneven = replace(
        holes, up=holes.up * np.array([[1 + (u + s) % 2 for s in range(spines)] for u in range(leaves)])
    )
    heavy = replace(flows, weight=np.array([rng.choice([1.0, 2.5, 4.0]) for _ in range(count)]))
    expected = solve(greedy, uneven, heavy, Options(plain=True)).tolist()
    assert solve(greedy, uneven, heavy).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(1, 40), st.integers(1, 200), SEEDS)
def test_optimal_meets_the_bound_on_every_leaf(leaves, spines, count, seed) -> None:
    flows = between(leaves, count, random.Random(seed))
    fabric = two_tier(clos(leaves, spines, 1))
    choice = solve(optimal, fabric, flows)
    load = carried(fabric, flows, choice)
    for u in range(leaves):
        for ends, name in (
            (flows.src, lambda s, u=u: (f"leaf{u + 1}", s)),
            (flows.dst, lambda s, u=u: (s, f"leaf{u + 1}")),
        ):
            share = -(-int((ends == u).sum()) // spines)
            assert all(load[name(f"spine{s + 1}")] <= share for s in range(spines))
    assert worst(fabric, flows, choice) == fabric.bound(flows)
    # A plan may not depend on whether the kernels are there yet.
    assert solve(optimal, fabric, flows, Options(plain=True)).tolist() == choice.tolist()


@pytest.mark.parametrize("hosts", [8, 16])
def test_full_load_is_where_greedy_and_optimal_differ(hosts: int) -> None:
    fabric = two_tier(clos(16, hosts, hosts))
    flows = permutation(16, hosts, random.Random(4))
    flows = flows.take(flows.src != flows.dst)
    assert len(flows) >= 0.9 * 16 * hosts
    assert worst(fabric, flows, solve(optimal, fabric, flows)) == 1
    assert worst(fabric, flows, solve(greedy, fabric, flows)) == 2
    assert (solve(auto, fabric, flows) == solve(optimal, fabric, flows)).all()


def test_greedy_is_within_twice_the_optimum_on_all_small_instances() -> None:
    tight = 0
    for spines, failed in ((2, 0), (3, 0), (3, 1)):
        fabric = fabric_of(clos(3, spines, 1), Failures(switches=frozenset({"spine1"} if failed else ())))
        pairs = [(u, v) for u in range(3) for v in range(3) if u != v]
        for count in range(1, 5):
            for chosen in product(pairs, repeat=count):
                flows = demand(list(chosen))
                optimum = worst(fabric, flows, solve(optimal, fabric, flows, Options(plain=True)))
                found = worst(fabric, flows, solve(greedy, fabric, flows, Options(plain=True)))
                assert optimum == fabric.bound(flows) <= found <= 2 * optimum
                tight += found > optimum
    assert tight > 0


def test_with_single_dead_links_greedy_may_be_worse_than_twice_the_optimum() -> None:
    """The counter-example to Theorem 2: each destination has lost all but two of its links."""
    alive = [(0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (4, 6), (0, 4)]
    fabric = two_tier(clos(8, 8, 1))
    up = np.zeros((8, 8))
    up[0] = 1.0
    for leaf, spines in enumerate(alive, start=1):
        up[leaf, list(spines)] = 1.0
    fabric = replace(fabric, up=up)
    flows = demand([(0, leaf) for leaf in range(1, 8)])
    assert worst(fabric, flows, solve(greedy, fabric, flows)) == 3
    assert best(fabric, flows) == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 3), st.integers(2, 3), st.integers(1, 5), SEEDS)
def test_the_ilp_is_the_optimum(leaves, spines, count, seed) -> None:
    pytest.importorskip("highspy")
    rng = random.Random(seed)
    fabric = two_tier(clos(leaves, spines, 1))
    dead = np.array([[rng.random() < 0.3 for _ in range(spines)] for _ in range(leaves)])
    fabric = replace(fabric, up=np.where(dead, 0.0, fabric.up))
    flows = between(leaves, count, rng)
    choice = solve(ilp, fabric, flows)
    assert ((choice < 0) == (solve(greedy, fabric, flows) < 0)).all()
    flows, choice = flows.take(choice >= 0), choice[choice >= 0]
    if len(flows):
        assert worst(fabric, flows, choice) == best(fabric, flows)


@pytest.mark.parametrize("cores", [4, 2, 8])
def test_three_tiers_are_optimal_on_every_tier(cores: int) -> None:
    topology = three_tier(4, 4, 4, cores, 4, host_bps=1, fabric_bps=1)
    fabric = arrays_of_three(topology)
    rng = random.Random(cores)
    for plain in (False, True):
        flows = permutation(16, 4, rng)
        choice = solve(optimal, fabric, flows, Options(plain=plain))
        load = carried(fabric, flows, choice)
        tiers = [
            {k: n for k, n in load.items() if ("core" in "".join(k)) == upper} for upper in (False, True)
        ]
        inter = flows.take(flows.src != flows.dst)
        far = fabric.pods(inter.src) != fabric.pods(inter.dst)
        leaf_bound = max(-(-np.bincount(e).max() // 4) for e in (inter.src, inter.dst))
        pod_bound = max(
            -(-np.bincount(fabric.pods(e[far])).max() // (4 * cores)) for e in (inter.src, inter.dst)
        )
        assert max(tiers[1].values()) == pod_bound
        assert max(tiers[0].values()) == leaf_bound or cores < 4
        assert max(load.values()) == fabric.bound(flows)
        assert choice.tolist() == solve(optimal, fabric, flows, Options(plain=not plain)).tolist()


def test_kernels_and_references_agree_on_three_tiers_with_failures() -> None:
    topology = three_tier(3, 2, 3, 2, 2, host_bps=10, fabric_bps=10)
    down = Failures(frozenset({("leaf2", "spine1")}), frozenset({"core4", "spine6"}))
    fabric = fabric_of(topology, down)
    flows = between(6, 60, random.Random(3))
    with_kernel = solve(greedy, fabric, flows)
    assert with_kernel.tolist() == solve(greedy, fabric, flows, Options(plain=True)).tolist()
    used = {node for link in carried(fabric, flows, with_kernel) for node in link}
    assert not used & {"core4", "spine6"}
    assert ("leaf2", "spine1") not in carried(fabric, flows, with_kernel)
    with pytest.raises(UnsuitableError, match="down"):
        solve(optimal, fabric, flows)
    assert (solve(auto, fabric, flows) == with_kernel).all()


@pytest.mark.parametrize("algorithm", [annealing, auto, ecmp, greedy, ilp, optimal, published_annealing])
def test_every_algorithm_gives_live_paths_and_leaves_out_what_has_none(algorithm: Algorithm) -> None:
    if algorithm is ilp:
        pytest.importorskip("highspy")
    topology = clos(4, 4, 4)
    fabric = fabric_of(topology, Failures(switches=frozenset({"spine2"})))
    flows = permutation(4, 4, random.Random(1))
    choice = solve(algorithm, fabric, flows, Options(seed=3, limit_s=3))
    assert (choice >= 0).all()
    assert not any("spine2" in link for link in carried(fabric, flows, choice))
    dark = fabric_of(topology, Failures(switches=frozenset({"spine1", "spine2", "spine3", "spine4"})))
    nowhere = solve(algorithm, dark, flows, Options(limit_s=1))
    assert ((nowhere < 0) == (flows.src != flows.dst)).all()


def test_the_published_annealing_swaps_paths_and_stops_anywhere() -> None:
    fabric = two_tier(clos(8, 8, 8))
    flows = permutation(8, 8, random.Random(5))
    options = Options(seed=2)
    found = solve(published_annealing, fabric, flows, options)
    assert found.tolist() == solve(published_annealing, fabric, flows, options).tolist()
    # Swaps keep how many flows each spine has, so the result has those of the first random state.
    far = flows.src != flows.dst
    first = (np.random.default_rng(2).random(int(far.sum())) * 8).astype(np.int64)
    assert np.bincount(found[far], minlength=8).tolist() == np.bincount(first, minlength=8).tolist()
    assert (found[far] != first).any()
    # The largest load counts once for each link that has it.
    assert energy(np.array([1.0, 3.0, 3.0, 2.0])) == 6.0


def test_optimal_leaves_out_what_has_no_path_and_colours_the_rest() -> None:
    down = Failures(links=frozenset({("leaf1", f"spine{k}") for k in range(1, 5)}))
    fabric = fabric_of(clos(4, 4, 4), down)
    flows = permutation(4, 4, random.Random(1))
    choice = solve(optimal, fabric, flows)
    lost = (flows.src != flows.dst) & ((flows.src == 0) | (flows.dst == 0))
    assert lost.any()
    assert ((choice < 0) == lost).all()
    rest = flows.take(np.flatnonzero(~lost))
    assert worst(fabric, rest, choice[~lost]) == fabric.bound(rest)
    # With one spine of another leaf down too, the flows that have a path cannot be coloured.
    more = fabric_of(clos(4, 4, 4), Failures(links=down.links | {("leaf2", "spine1")}))
    with pytest.raises(UnsuitableError, match="down"):
        solve(optimal, more, flows)


def test_annealing_beats_the_ecmp_it_starts_from() -> None:
    fabric = two_tier(clos(8, 8, 8))
    flows = permutation(8, 8, random.Random(5))
    start = worst(fabric, flows, solve(ecmp, fabric, flows, Options(seed=2)))
    assert worst(fabric, flows, solve(annealing, fabric, flows, Options(seed=2))) < start


@pytest.mark.parametrize("seed", [1, 2])
def test_annealing_does_the_same_with_and_without_kernels(seed: int) -> None:
    fabric = fabric_of(clos(3, 4, 4), Failures(links=frozenset({("leaf1", "spine1")})))
    flows = permutation(3, 4, random.Random(seed))
    plain = solve(annealing, fabric, flows, Options(seed=seed, plain=True))
    found = solve(annealing, fabric, flows, Options(seed=seed))
    assert found.tolist() == plain.tolist() == solve(annealing, fabric, flows, Options(seed=seed)).tolist()


def test_orders() -> None:
    fabric = two_tier(clos(3, 2, 4))
    flows = demand([(0, 1), (0, 1), (2, 1), (0, 2)], [1.0, 5.0, 2.0, 4.0])
    largest = solve(greedy, fabric, flows, Options(order="largest"))
    assert congestion(fabric, flows, largest) == pytest.approx(5 / (100 * 10**9))
    intense = Options(order="intensity", intensity=np.array([1.0, 2.0, 9.0, 4.0]))
    assert solve(greedy, fabric, flows, intense)[2] == 0
    # Leaf 0 sends to three flows, leaf 1 receives three: flows 0 and 1, then 3, then 2.
    by_size = solve(greedy, fabric, replace(flows, weight=None), Options(order="connections"))
    assert by_size.tolist() == [0, 1, 0, 0]
    with pytest.raises(ValueError, match="order"):
        solve(greedy, fabric, flows, Options(order="odd"))


def test_kept_flows_stay_and_are_counted() -> None:
    fabric = two_tier(clos(2, 3, 4))
    flows = demand([(0, 1)] * 3)
    choice = solve(greedy, fabric, flows, Options(kept=np.array([-1, 0, -1], dtype=np.int32)))
    assert choice.tolist() == [1, 0, 2]


def test_conditions_of_the_optimum_are_told() -> None:
    fabric = two_tier(clos(3, 2, 4))
    with pytest.raises(UnsuitableError, match="weights"):
        solve(optimal, fabric, demand([(0, 1), (1, 2)], [1.0, 2.0]))
    holes = fabric_of(clos(3, 2, 4), Failures(links=frozenset({("leaf1", "spine1")})))
    with pytest.raises(UnsuitableError, match="down"):
        solve(optimal, holes, demand([(0, 1), (1, 2)]))
    # A dead link at a leaf without flows changes nothing.
    elsewhere = demand([(2, 1), (1, 2)])
    assert worst(holes, elsewhere, solve(optimal, holes, elsewhere)) == 1


def test_components_never_share_a_link() -> None:
    fabric = two_tier(clos(8, 2, 4))
    flows = demand([(0, 1), (2, 3), (0, 3), (4, 5), (6, 5), (7, 1), (1, 0)])
    parts = [part.tolist() for part in components(fabric, flows)]
    assert parts == [[0, 1, 2, 5], [3, 4], [6]]


def test_the_ilp_does_not_depend_on_the_unit_of_weights() -> None:
    pytest.importorskip("highspy")
    rng = random.Random(3)
    fabric, flows = two_tier(clos(6, 4, 1)), between(6, 40, rng)
    weight = np.array([rng.choice((1.0, 0.5)) for _ in range(40)])
    uneven = replace(
        fabric, up=fabric.up * np.array([[rng.choice((1, 2, 4)) for _ in range(4)] for _ in range(6)])
    )
    loads = [
        congestion(
            uneven, replace(flows, weight=weight), solve(ilp, uneven, replace(flows, weight=weight * unit))
        )
        for unit in (1.0, 1e11)
    ]
    assert loads[0] == pytest.approx(loads[1])
