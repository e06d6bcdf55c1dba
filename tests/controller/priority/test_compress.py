# SPDX-License-Identifier: Apache-2.0
"""Priority compression against the paper's example and the optimum by enumeration."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.priority.compress import compress

Edges = dict[tuple[str, str], float]


def instance(rng: random.Random, n: int) -> tuple[list[str], Edges]:
    order = [f"j{i}" for i in range(n)]
    weight = sorted((rng.uniform(1, 10) for _ in order), reverse=True)
    edges = {
        (order[a], order[b]): weight[a] for a in range(n) for b in range(a + 1, n) if rng.random() < 0.45
    }
    return order, edges


def optimum(order: list[str], edges: Edges, levels: int) -> float:
    best = 0.0
    for choice in product(range(levels), repeat=len(order)):
        level = dict(zip(order, choice, strict=True))
        if all(level[a] <= level[b] for a, b in edges):
            best = max(best, sum(w for (a, b), w in edges.items() if level[a] != level[b]))
    return best


def test_figure_13() -> None:
    found = compress(["1", "2", "3", "4"], {("1", "2"): 4.0, ("3", "4"): 2.0}, 2)
    assert found.level == {"1": 0, "2": 1, "3": 0, "4": 1}
    assert (found.cut, found.lost) == (6.0, 0.0)


def test_close_to_the_optimum_with_ten_orders_and_exact_with_many() -> None:
    rng = random.Random(5)
    total = reached = 0.0
    for _ in range(60):
        order, edges = instance(rng, rng.randint(2, 6))
        levels = rng.randint(1, 3)
        best = optimum(order, edges, levels)
        ten = compress(order, edges, levels, seed=1)
        assert ten.cut <= best + 1e-9
        assert compress(order, edges, levels, orders=400).cut == pytest.approx(best)
        total, reached = total + best, reached + ten.cut
    assert reached >= 0.995 * total


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 8))
def test_levels_are_valid_and_accounted_for(seed: int, n: int, levels: int) -> None:
    order, edges = instance(random.Random(seed), n)
    found = compress(order, edges, levels, seed=seed)
    assert list(found.level) == order
    assert all(0 <= k < levels for k in found.level.values())
    assert all(found.level[a] <= found.level[b] for a, b in edges)
    assert found.cut == pytest.approx(
        sum(w for (a, b), w in edges.items() if found.level[a] < found.level[b])
    )
    assert found.cut + found.lost == pytest.approx(sum(edges.values()))
    assert found == compress(order, edges, levels, seed=seed)
    if levels >= n:
        assert found.lost == pytest.approx(0.0)


def test_jobs_without_contention_share_the_highest_level() -> None:
    found = compress(["a", "b", "c", "d"], {("b", "d"): 1.0}, 6)
    assert found.level == {"a": 0, "b": 0, "c": 0, "d": 1}


def test_long_chain_uses_every_level() -> None:
    order = [f"j{i}" for i in range(40)]
    edges = {(order[i], order[j]): 1.0 for i in range(40) for j in range(i + 1, 40)}
    found = compress(order, edges, 8)
    sizes = [list(found.level.values()).count(k) for k in range(8)]
    assert sizes == [5] * 8
    assert found.lost == 8 * 10


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        compress(["a"], {}, 0)
    with pytest.raises(ValueError, match="against the priority order"):
        compress(["a", "b"], {("b", "a"): 1.0}, 2)
    assert compress([], {}, 3).level == {}
