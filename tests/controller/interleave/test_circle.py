# SPDX-License-Identifier: Apache-2.0
"""Circles, scores and rotations against the thesis' vectors and plain sums by the millisecond."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.circle import SharedLink, perimeter, random_score, score, sweep
from controller.interleave.link_sharing import overlapping, unavoidable_loss
from controller.interleave.rotate import rotate
from controller.model import Phase

MS = 1_000_000
C = 50_000


def up(start: float, end: float, rate: int = C) -> Phase:
    return Phase(round(start * MS), round(end * MS), rate)


def two(t1: int, up1: int, t2: int, up2: int) -> tuple[SharedLink, dict[str, int]]:
    return SharedLink(("x", "y"), C, {"a": (up(0, up1),), "b": (up(0, up2),)}), {"a": t1 * MS, "b": t2 * MS}


def instance(rng: random.Random, n: int) -> tuple[SharedLink, dict[str, int]]:
    periods = {f"j{i}": rng.choice([12, 12, 24, 8]) for i in range(n)}
    demands = {}
    for job, t in periods.items():
        cuts = sorted(rng.sample(range(t + 1), rng.choice([2, 2, 4])))
        demands[job] = tuple(
            up(a, b, rng.choice([C, C // 2, C // 5])) for a, b in zip(cuts[::2], cuts[1::2], strict=True)
        )
    return SharedLink(("x", "y"), C, demands), {j: t * MS for j, t in periods.items()}


def plain_score(link: SharedLink, periods: dict[str, int], shifts: dict[str, int]) -> float:
    """Table 4.1 with one slot per millisecond, for whole-millisecond phases and shifts."""
    slots = perimeter(list(periods.values())) // MS
    excess = 0
    for t in range(slots):
        total = 0
        for job, phases in link.demands.items():
            at = (t * MS - shifts[job]) % periods[job]
            total += sum(p.rate_bps for p in phases if p.start_ns <= at < p.end_ns)
        excess += max(0, total - link.rate_bps)
    return 1 - excess / slots / link.rate_bps


def test_vectors_40_60() -> None:
    link, periods = two(40, 10, 60, 10)
    assert score(link, periods, {"a": 0, "b": 10 * MS}) == 1.0
    found = rotate([link], periods)
    assert found.loss == pytest.approx(0.0)
    assert found.exact
    # 10 ms is 30 degrees of the unified circle.
    assert found.shifts == {"a": 0, "b": 10 * MS}
    assert perimeter(list(periods.values())) == 120 * MS
    assert 1 - rotate(*_listed(two(40, 10, 60, 20))).loss == pytest.approx(11 / 12)
    assert 1 - rotate(*_listed(two(40, 20, 60, 20))).loss == pytest.approx(5 / 6)


def _listed(pair: tuple[SharedLink, dict[str, int]]) -> tuple[list[SharedLink], dict[str, int]]:
    return [pair[0]], pair[1]


def test_vgg16_pair() -> None:
    # Down 141 ms from angle 0, Up the remaining 114.
    link = SharedLink(("x", "y"), C, {"a": (up(141, 255),), "b": (up(141, 255),)})
    periods = {"a": 255 * MS, "b": 255 * MS}
    for shift in range(255):
        compatible = score(link, periods, {"a": 0, "b": shift * MS}) == 1.0
        assert compatible == (114 <= shift <= 141)
    assert rotate([link], periods).shifts["b"] == pytest.approx(127.5 * MS, abs=MS / 2)


def test_two_vgg19_and_snapshot_1_leave_equal_gaps() -> None:
    link, periods = two(260, 120, 260, 120)
    assert rotate([link], periods).shifts["b"] == 130 * MS
    assert score(link, periods, {"a": 0, "b": 120 * MS}) == 1.0
    link, periods = two(300, 138, 300, 148)
    assert rotate([link], periods).shifts["b"] == 145 * MS


def test_guard_gaps_of_four_jobs_are_even() -> None:
    link = SharedLink(("x", "y"), C, {j: (up(0, 60),) for j in "abcd"})
    periods = dict.fromkeys("abcd", 300 * MS)
    starts = sorted(rotate([link], periods).shifts.values())
    gaps = [(b - a) / MS - 60 for a, b in zip(starts, [*starts[1:], starts[0] + 300 * MS], strict=True)]
    assert gaps == pytest.approx([15] * 4, abs=1.5)


def test_demands_that_fit_together_are_no_overlap() -> None:
    link = SharedLink(("x", "y"), C, {"big": (up(0, 200, 42_000),), "small": (up(0, 200, 8_000),)})
    periods = {"big": 300 * MS, "small": 300 * MS}
    assert score(link, periods, {}) == 1.0
    noisy = SharedLink(("x", "y"), C, {"big": (up(0, 200, 42_300),), "small": (up(0, 200, 8_100),)})
    assert score(noisy, periods, {}) < 1.0
    assert score(noisy, periods, {}, slack=0.02) == 1.0
    # It fits anywhere, and yet it is put where it overlaps least.
    shift = rotate([link], periods).shifts["small"]
    assert not 10 * MS < shift < 90 * MS


def test_score_can_be_negative() -> None:
    link = SharedLink(("x", "y"), C, {j: (up(0, 10),) for j in "abcd"})
    assert score(link, dict.fromkeys("abcd", 10 * MS), {}) == -2.0


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_score_and_sweep_equal_plain_sums(seed: int, n: int) -> None:
    rng = random.Random(seed)
    link, periods = instance(rng, n)
    shifts = {j: rng.randrange(t // MS) * MS for j, t in periods.items()}
    assert score(link, periods, shifts) == pytest.approx(plain_score(link, periods, shifts))
    corners, losses = sweep(link, "j0", periods, shifts)
    for at, loss in zip(corners.tolist(), losses.tolist(), strict=True):
        assert 1 - loss == pytest.approx(plain_score(link, periods, shifts | {"j0": at}))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_rotation_equals_the_optimum_of_all_grid_shifts(seed: int) -> None:
    link, periods = instance(random.Random(seed), 3)
    found = rotate([link], periods)
    assert found.shifts["j0"] == 0
    # Edges are whole milliseconds, so some optimal rotation is, too.
    best = max(
        plain_score(link, periods, {"j0": 0, "j1": a * MS, "j2": b * MS})
        for a, b in product(range(periods["j1"] // MS), range(periods["j2"] // MS))
    )
    assert score(link, periods, found.shifts) == pytest.approx(1 - found.loss)
    assert found.exact
    assert 1 - found.loss == pytest.approx(best)


def test_many_jobs_by_descent() -> None:
    link = SharedLink(("x", "y"), C, {f"j{i}": (up(0, 20),) for i in range(10)})
    found = rotate([link], dict.fromkeys(link.demands, 240 * MS))
    assert found.loss == pytest.approx(0.0)


def test_random_score_is_the_mean_over_shifts() -> None:
    rng = random.Random(2)
    for _ in range(10):
        link, periods = instance(rng, 2)
        mean = sum(
            plain_score(link, periods, {"j0": a * MS, "j1": b * MS})
            for a, b in product(range(periods["j0"] // MS), range(periods["j1"] // MS))
        ) / (periods["j0"] // MS * (periods["j1"] // MS))
        # Periods with a common divisor see only some relative places, but all equally often.
        assert random_score(link, periods) == pytest.approx(mean)
        shifts = {"j0": 0, "j1": 3 * MS}
        assert random_score(link, periods, [shifts]) == pytest.approx(score(link, periods, shifts))


def test_overlapping_names_the_pairs_that_meet() -> None:
    link = SharedLink(("x", "y"), C, {j: (up(0, 100),) for j in "abc"})
    periods = dict.fromkeys("abc", 300 * MS)
    assert overlapping(link, periods, {"a": 0, "b": 100 * MS, "c": 200 * MS}) == frozenset()
    assert overlapping(link, periods, {"a": 0, "b": 50 * MS, "c": 200 * MS}) == {("a", "b")}


def test_silent_jobs_do_no_harm() -> None:
    link = SharedLink(("x", "y"), C, {"a": (), "b": (up(0, 10),)})
    periods = {"a": 10 * MS, "b": 20 * MS}
    assert rotate([link], periods).loss == 0.0
    assert rotate([], {}).shifts == {}


def test_no_shifts_lose_less_than_the_unavoidable_loss() -> None:
    rng = random.Random(9)
    positive = 0
    for _ in range(60):
        slow, fast = 24, rng.choice([2, 3, 4])
        cuts = sorted(rng.sample(range(slow + 1), 2))
        demands = {"a": (up(*cuts, rng.choice([C, C // 2])),), "b": (up(0, 1, rng.choice([C, C // 2])),)}
        link, periods = SharedLink(("x", "y"), C, demands), {"a": slow * MS, "b": fast * MS}
        bound = unavoidable_loss(link, periods, 0.02)
        least = min(1 - score(link, periods, {"a": 0, "b": t * MS // 4}, slack=0.02) for t in range(4 * fast))
        assert bound <= least + 1e-9
        positive += bound > 0
    assert positive > 20
