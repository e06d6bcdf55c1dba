# SPDX-License-Identifier: Apache-2.0
"""Compression on arrays: kernel against reference, both against the optimum; hysteresis; the DAG."""

import random
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.priority.compress import compress, compress_graph
from controller.priority.graph import Graph, graph_of_edges, graph_of_links

FIGURE_14 = {("1", "2"): 5.0, ("1", "3"): 5.0, ("2", "4"): 4.0, ("1", "5"): 5.0, ("5", "3"): 1.0}


def instance(n: int, share: float, seed: int, ties: bool = False) -> Graph:
    rng = np.random.default_rng(seed)
    links = [[e for e in range(12) if rng.random() < share] for _ in range(n)]
    intensity = rng.integers(0, 3, n).astype(float) if ties else rng.lognormal(size=n)
    return graph_of_links(links, np.sort(intensity)[::-1])


def optimum(graph: Graph, levels: int) -> float:
    low, high = graph.inferior, graph.superior
    best = 0.0
    for choice in product(range(levels), repeat=graph.size):
        level = np.array(choice)
        if (level[high] <= level[low]).all():
            best = max(best, graph.cut(level))
    return best


def contiguous(graph: Graph, levels: int) -> float:
    """The best cut of the order itself, with every split tried: no monotonicity assumed."""
    n = graph.size
    weight = np.zeros((n, n))
    weight[graph.superior, graph.inferior] = graph.weight
    value = np.zeros(n + 1)
    for _ in range(1, levels):
        value = np.array([max(value[j] + weight[:j, j:i].sum() for j in range(i + 1)) for i in range(n + 1)])
    return float(value[n])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_kernel_equals_reference(seed: int, n: int, levels: int, known: bool) -> None:
    pytest.importorskip("numba")
    rng = random.Random(seed)
    graph = instance(n, rng.choice([0.02, 0.1, 0.3, 1.0]), seed, ties=rng.random() < 0.5)
    previous = [rng.randint(-1, levels) for _ in range(n)] if known else None
    kernel = compress_graph(graph, levels, seed=seed, previous=previous, plain=False)
    plain = compress_graph(graph, levels, seed=seed, previous=previous, plain=True)
    assert kernel.tolist() == plain.tolist()
    assert kernel.min() >= 0
    assert kernel.max() < levels
    assert (kernel[graph.superior] <= kernel[graph.inferior]).all()


@pytest.mark.parametrize("plain", [True, False])
def test_one_order_is_cut_as_well_as_it_can_be(plain: bool) -> None:
    for seed in range(40):
        graph = instance(4 + seed % 14, 0.3, seed)
        # The chain joins all jobs, so that no part is cut apart from the others.
        chain = graph_of_edges(
            [str(i) for i in range(graph.size)],
            {
                (str(a), str(b)): float(w)
                for a, b, w in zip(graph.superior, graph.inferior, graph.weight, strict=True)
            }
            | {(str(a), str(b)): 0.5 for a, b in pairwise(range(graph.size))},
        )
        for levels in (1, 2, 3, 5):
            found = compress_graph(chain, levels, orders=1, plain=plain)
            assert chain.cut(found) == pytest.approx(contiguous(chain, levels))


def test_close_to_the_optimum_of_small_graphs() -> None:
    reached = total = 0.0
    for seed in range(50):
        graph = instance(3 + seed % 5, 0.12, seed)
        best = optimum(graph, 3)
        ten = graph.cut(compress_graph(graph, 3, seed=seed))
        assert ten <= best + 1e-9
        assert graph.cut(compress_graph(graph, 3, orders=300)) == pytest.approx(best)
        reached, total = reached + ten, total + best
    assert total > 0
    assert reached >= 0.995 * total


def test_every_edge_of_figure_14_is_cut_by_three_levels() -> None:
    found = compress(["1", "2", "5", "4", "3"], FIGURE_14, 3)
    assert found.lost == 0
    assert found.level["1"] == 0
    assert found.level["2"] == found.level["5"] == 1


def test_the_dag_has_an_edge_for_each_pair_that_shares_a_link() -> None:
    graph = graph_of_links([["x", "y"], ["y"], ["x", "y", "z"], [], ["z"]], [9.0, 7.0, 5.0, 3.0, 1.0])
    edges = {
        (int(a), int(b)): float(w)
        for a, b, w in zip(graph.superior, graph.inferior, graph.weight, strict=True)
    }
    assert edges == {(0, 1): 9.0, (0, 2): 9.0, (1, 2): 7.0, (2, 4): 5.0}


def arrival(seed: int) -> tuple[list[str], dict[tuple[str, str], float]]:
    rng = random.Random(seed)
    order = [f"j{i}" for i in range(24)]
    value = {name: rng.lognormvariate(0, 1) for name in order}
    order.sort(key=lambda name: -value[name])
    edges = {(a, b): value[a] for i, a in enumerate(order) for b in order[i + 1 :] if rng.random() < 0.25}
    return order, edges


def without(order: list[str], edges: dict[tuple[str, str], float], job: str) -> dict[str, int]:
    rest = {pair: w for pair, w in edges.items() if job not in pair}
    return dict(compress([n for n in order if n != job], rest, 4).level)


def test_an_arrival_moves_few_jobs_and_costs_little() -> None:
    moved_freely = moved = 0
    for seed in range(20):
        order, edges = arrival(seed)
        before = without(order, edges, "j7")
        free = compress(order, edges, 4)
        held = compress(order, edges, 4, previous=before)
        moved_freely += sum(free.level[n] != k for n, k in before.items())
        moved += sum(held.level[n] != k for n, k in before.items())
        assert held.cut >= 0.9 * free.cut
        assert all(held.level[a] <= held.level[b] for a, b in edges)
    assert moved <= 0.35 * moved_freely


def test_what_changes_nothing_moves_nobody_and_a_lone_job_stays() -> None:
    order, edges = arrival(3)
    before = dict(compress(order, edges, 4).level)
    assert compress(order, edges, 4, previous=before, seed=9).level == before
    assert compress(["a", "b"], {}, 4, previous={"a": 3}).level == {"a": 3, "b": 0}


def test_a_move_that_gains_enough_is_made() -> None:
    held = compress(["a", "b"], {("a", "b"): 1.0}, 2, previous={"a": 0, "b": 0})
    assert held.level == {"a": 0, "b": 1}
    assert compress(["a", "b"], {("a", "b"): 1.0}, 2, previous={"a": 1, "b": 1}, hysteresis=1.0).lost == 1.0


def test_levels_that_are_gone_hold_nobody() -> None:
    assert compress(["a", "b"], {("a", "b"): 1.0}, 2, previous={"a": 5, "b": 5}).lost == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"levels": 0}, "levels must be at least 1"),
        ({"orders": 0}, "orders must be at least 1"),
        ({"hysteresis": 1.5}, "hysteresis must be in"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, float], says: str) -> None:
    options = {"levels": 2, "orders": 10, "hysteresis": 0.1} | change
    with pytest.raises(ValueError, match=says):
        compress(
            ["a"], {}, int(options["levels"]), orders=int(options["orders"]), hysteresis=options["hysteresis"]
        )


def test_a_weight_that_is_no_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 and finite"):
        compress(["a", "b"], {("a", "b"): float("nan")}, 2)


@pytest.mark.parametrize("weights", [np.zeros(1), np.array([1e300]), np.array([5e-324])])
def test_weights_of_any_size(weights: NDArray[np.float64]) -> None:
    graph = Graph(np.array([0, 0, 1]), np.array([0]), weights)
    found = compress_graph(graph, 2)
    assert found.tolist() == ([0, 1] if weights[0] else [0, 0])
