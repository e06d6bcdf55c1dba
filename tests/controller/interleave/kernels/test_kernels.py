# SPDX-License-Identifier: Apache-2.0
"""The compiled search against its plain reference, plain enumeration, and the FFT against plain sums."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from circles import MS, C, instance, plain_score, up
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.angles import angle_count, demand_by_angle, enumerate_angles, rotation_deg
from controller.interleave.circle import SharedLink, score, sweep
from controller.interleave.compiled_search import CompiledSearch
from controller.interleave.pair_fft import best_pair_shift, excess_by_shift
from controller.interleave.rotate import FAST_NODES, rotate, searcher
from controller.interleave.search import Search

seeds = st.integers(0, 10**6)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 4), st.sampled_from([0.0, 0.1]))
def test_compiled_sweep_is_the_plain_one(seed: int, n: int, slack: float) -> None:
    rng = random.Random(seed)
    link, periods = instance(rng, n)
    shifts = {j: rng.randrange(t) for j, t in periods.items()}
    fast = CompiledSearch([link], periods, slack)
    assert fast.loss(shifts) == pytest.approx(1 - score(link, periods, shifts, slack=slack))
    corners, loss = fast._sweep("j0", shifts)
    at, plain = sweep(link, "j0", periods, shifts, slack=slack)
    assert np.interp(corners, at, plain, period=periods["j0"]) == pytest.approx(loss, abs=1e-9)
    assert np.interp(at, corners, loss, period=periods["j0"]) == pytest.approx(plain, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_compiled_search_finds_the_optimum_of_all_grid_shifts(seed: int) -> None:
    link, periods = instance(random.Random(seed), 3)
    found = rotate([link], periods, nodes=FAST_NODES, fast=True)
    best = max(
        plain_score(link, periods, {"j0": 0, "j1": a * MS, "j2": b * MS})
        for a, b in product(range(periods["j1"] // MS), range(periods["j2"] // MS))
    )
    assert found.exact
    # Edges are whole ms, so some optimum is, too.
    assert 1 - found.loss == pytest.approx(best)
    assert score(link, periods, found.shifts) == pytest.approx(best)
    assert found.shifts["j0"] == 0


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.05]))
def test_four_jobs_on_two_links_as_the_plain_search(seed: int, slack: float) -> None:
    rng = random.Random(seed)
    one, periods = instance(rng, 4)
    two = SharedLink(("z", "y"), C, {j: one.demands[j] for j in ("j1", "j3")})
    fast = rotate([one, two], periods, nodes=FAST_NODES, fast=True, slack=slack, widen=False)
    plain = rotate([one, two], periods, nodes=3_000, slack=slack, widen=False)
    assert fast.exact
    assert fast.loss <= plain.loss + 1e-9
    if plain.exact:
        assert fast.loss == pytest.approx(plain.loss, abs=1e-8)


def test_half_rate_jobs_align_where_nothing_is_lost_yet() -> None:
    # Two halves fill the link only when they coincide, which no partial loss shows.
    link = SharedLink(("x", "y"), C, {"a": (up(0, 6, C // 2),), "b": (up(0, 6, C // 2),), "c": (up(0, 6),)})
    found = rotate([link], dict.fromkeys("abc", 12 * MS), nodes=FAST_NODES, fast=True)
    assert found.loss == pytest.approx(0.0)


def test_ten_jobs_fit_by_descent() -> None:
    link = SharedLink(("x", "y"), C, {f"j{i}": (up(0, 24),) for i in range(10)})
    found = rotate([link], dict.fromkeys(link.demands, 240 * MS), fast=True)
    assert found.loss == pytest.approx(0.0)
    assert sorted(t // MS for t in found.shifts.values()) == list(range(0, 240, 24))


def test_kernels_only_where_asked_for() -> None:
    assert searcher(False) is Search
    assert searcher(True) is CompiledSearch


def test_plain_enumeration_is_the_thesis_table() -> None:
    link, periods = (
        SharedLink(("x", "y"), C, {"a": (up(0, 10),), "b": (up(0, 20),)}),
        {"a": 40 * MS, "b": 60 * MS},
    )
    best, shifts = enumerate_angles(link, periods, 5)
    assert best == pytest.approx(11 / 12)
    assert best == pytest.approx(plain_score(link, periods, shifts))
    one, shifts = enumerate_angles(
        SharedLink(("x", "y"), C, {"a": (up(0, 10),), "b": (up(0, 10),)}), periods, 5
    )
    assert (one, shifts) == (1.0, {"a": 0, "b": 10 * MS})
    assert rotation_deg(shifts["b"], periods["b"], 120 * MS) == 30.0


def test_demand_by_angle_is_half_open() -> None:
    link, periods = (
        SharedLink(("x", "y"), C, {"a": (up(0, 10),), "b": (up(0, 20, C // 5),)}),
        {"a": 40 * MS, "b": 60 * MS},
    )
    by_angle = demand_by_angle(link, periods, {"a": 0, "b": 10 * MS}, 15)
    # 15 degrees are 5 ms: a in 0-10, 40-50, 80-90; b in 10-30, 70-90.
    a = [1, 1, 0, 0, 0, 0, 0, 0] * 3
    b = [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0] * 2
    assert by_angle.tolist() == [C * x + C // 5 * y for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("step", [0, -5, 7, 361])
def test_a_step_divides_the_circle(step: float) -> None:
    with pytest.raises(ValueError, match="divides 360"):
        angle_count(step)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(2, 40), st.integers(1, 5), st.integers(1, 5), st.sampled_from([250, 280]))
def test_fft_is_the_plain_sum_over_slots(seed: int, n: int, first: int, second: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    still, turned = rng.integers(0, first, n) * 100, rng.integers(0, second, n) * 90
    sums = [still + np.roll(turned, k) for k in range(n)]
    plain = [np.where(s > limit, s - 250, 0).mean() for s in sums]
    assert excess_by_shift(still, turned, limit, 250) == pytest.approx(plain, abs=1e-6)


def test_two_jobs_in_fine_slots_go_by_fft() -> None:
    rng = random.Random(5)

    def slots(period: int) -> tuple:
        cuts = sorted(rng.sample(range(period), 80))
        return tuple(up(a, b, rng.choice([C, C // 2])) for a, b in zip(cuts[::2], cuts[1::2], strict=True))

    link = SharedLink(("x", "y"), C, {"a": slots(200), "b": slots(300)})
    periods = {"a": 200 * MS, "b": 300 * MS}
    turned = best_pair_shift(link, periods, 0.0)
    assert turned is not None
    best = max(plain_score(link, periods, {"a": 0, "b": k * MS}) for k in range(300))
    assert 1 - turned[0] == pytest.approx(best)
    assert score(link, periods, {"a": 0, "b": turned[1]}) == pytest.approx(best)
    assert 1 - rotate([link], periods, widen=False).loss == pytest.approx(best)
    few = SharedLink(("x", "y"), C, {"a": (up(0, 10),), "b": (up(0, 10),)})
    assert best_pair_shift(few, periods, 0.0) is None


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_unlike_periods_lose_nothing_by_the_smaller_search(seed: int) -> None:
    # Only shifts modulo a gcd are tried: six rhythms to choose from, against the grid of whole ms.
    link, periods = instance(random.Random(seed), 3, choices=(4, 6, 9, 10, 12, 15))
    found = rotate([link], periods, nodes=FAST_NODES, fast=True)
    best = max(
        plain_score(link, periods, {"j0": 0, "j1": a * MS, "j2": b * MS})
        for a, b in product(range(periods["j1"] // MS), range(periods["j2"] // MS))
    )
    assert found.exact
    assert 1 - found.loss == pytest.approx(best)


def test_periods_whose_common_multiple_has_over_64_bits() -> None:
    primes = (1_000_000_007, 998_244_353, 1_000_000_009)
    periods = {j: p * 2 for j, p in zip("abc", primes, strict=True)} | {"d": 12 * MS, "e": 12 * MS}
    # Two links that share no job's rhythm; the branching sees all five jobs at once.
    one = SharedLink(("one", ""), C, {"d": (up(0, 2), up(6, 8)), "e": (up(0, 6),)})
    others = [SharedLink((j, ""), C, {j: (up(0, 500),)}) for j in "abc"]
    found = rotate([*others, one], periods, nodes=FAST_NODES, fast=True)
    # Six ms do not fit into a pause of four, so the search cannot stop at what is unavoidable.
    assert found.loss == pytest.approx(2 / 12)
