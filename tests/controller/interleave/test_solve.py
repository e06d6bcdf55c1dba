# SPDX-License-Identifier: Apache-2.0
"""From links and jobs to shifts: affinity graphs, merging, loops, quantised periods."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest
from circles import MS, C, job, plain_score, up
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.circle import SharedLink, score, sweep
from controller.interleave.period import choices, quantise, repeat_soon, smooth
from controller.interleave.search import Search
from controller.interleave.solve import TooFineError, interleave
from controller.model import Phase
from polyrhythm.circle_plot import draw
from polyrhythm.commands.interleave import to_text


def graph(rng: random.Random, loops: bool) -> tuple[list[SharedLink], dict[str, int]]:
    """A random affinity graph; without `loops` each new link touches one job that is there already."""
    periods = {"j0": rng.choice([12, 24, 8])}
    members = []
    for _ in range(rng.randint(1, 4)):
        touched = rng.sample(sorted(periods), min(len(periods), rng.choice([1, 2]) if loops else 1))
        new = [f"j{len(periods) + k}" for k in range(rng.randint(1, 2))]
        periods |= {j: rng.choice([12, 24, 8]) for j in new}
        members.append(touched + new)
    phases = {j: job(rng, t) for j, t in periods.items()}
    links = [SharedLink((f"l{i}", ""), C, {j: phases[j] for j in who}) for i, who in enumerate(members)]
    return links, {j: t * MS for j, t in periods.items()}


def common_turn(turns: dict[str, int], periods: dict[str, int]) -> int | None:
    """The c with c = turns[j] (mod periods[j]) for all jobs, by the Chinese remainder theorem."""
    at, modulus = 0, 1
    for j, turn in turns.items():
        common = math.gcd(modulus, periods[j])
        if (turn - at) % common:
            return None
        step = periods[j] // common
        at += modulus * ((turn - at) // common * pow(modulus // common, -1, step) % step)
        modulus *= step
    return at


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_equation_4_6_corrected_on_random_trees(seed: int) -> None:
    links, periods = graph(random.Random(seed), loops=False)
    found = interleave(links, periods)
    assert found.loops == ()
    assert next(iter(found.shifts.values())) == 0
    for circle in found.circles:
        # Each link keeps a best rotation of its own: the link alone, turned by one constant c_l.
        alone = interleave([circle.link], {j: periods[j] for j in circle.link.demands}).shifts
        turns = {j: (found.shifts[j] - alone[j]) % periods[j] for j in alone}
        turn = common_turn(turns, periods)
        assert turn is not None
        assert all((alone[j] + turn) % periods[j] == found.shifts[j] for j in alone)
        assert circle.loss == pytest.approx(0.0, abs=1e-9)
        assert circle.score == pytest.approx(score(circle.link, periods, found.shifts))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_loops_get_the_best_consistent_shifts(seed: int) -> None:
    links, periods = graph(random.Random(seed), loops=True)
    found = interleave(links, periods)
    in_loops = {name for loop in found.loops for name in loop.links}
    for circle in found.circles:
        assert circle.score <= circle.best_score + 1e-12
        if circle.link.name not in in_loops:
            assert circle.loss == pytest.approx(0.0, abs=1e-9)
    jobs = list(periods)
    if found.loops and len(jobs) <= 3:
        best = max(
            sum(plain_score(k, periods, dict(zip(jobs, at, strict=True))) for k in links)
            for at in product((0,), *(range(0, periods[j], MS) for j in jobs[1:]))
        )
        assert sum(c.score for c in found.circles) == pytest.approx(best)


def test_only_links_that_ask_the_same_are_merged() -> None:
    a, b = (up(0, 100),), (up(0, 120),)
    periods = dict.fromkeys("ab", 260 * MS)
    same = [SharedLink((n, ""), C, {"a": a, "b": b}) for n in ("l1", "l2", "l3")]
    assert interleave(same, periods).loops == ()
    other = [*same, SharedLink(("l4", ""), 2 * C, {"a": a, "b": b})]
    (loop,) = interleave(other, periods).loops
    assert {name for name, _ in loop.links} == {"l1", "l2", "l3", "l4"}


def test_jobs_that_share_nothing_keep_shift_and_period() -> None:
    found = interleave([SharedLink(("l", ""), C, {"b": (up(3, 9),)})], {"a": 7, "b": 10 * MS})
    assert found.shifts == {"a": 0, "b": 0}
    assert found.periods == {"a": 7, "b": 10 * MS}
    assert found.circles[0].score == 1.0


def test_demand_above_the_link_is_lost_whatever_the_shifts() -> None:
    phases = {j: (up(0, 10, 3 * C),) for j in "ab"}
    found = interleave([SharedLink(("l", ""), C, phases)], dict.fromkeys("ab", 20 * MS))
    # Each alone asks for three times the link half of the time: 2 C too much, both together all the time.
    assert found.circles[0].score == pytest.approx(-1.0)
    assert found.circles[0].excess_bps == pytest.approx(2 * C)
    assert found.circles[0].best_score == pytest.approx(-1.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(10**6, 10**12), min_size=2, max_size=30))
def test_any_periods_can_be_quantised_with_a_bounded_error(periods: list[int]) -> None:
    for choice in choices(periods):
        errors = choice.errors(periods)
        assert all(choice.perimeter % t == 0 for t in choice.periods)
        assert min(errors) >= 0
        assert choice.perimeter <= 21.1 * max(periods)
    # From ten laps on, an eighth and the perimeter's rounding.
    assert max(smooth(periods, 20).errors(periods)) <= 0.136


def test_periods_that_repeat_soon_stay() -> None:
    assert repeat_soon([[40, 60]])
    assert repeat_soon([[97, 89, 8633]])
    assert not repeat_soon([[97, 89]])
    # Each link repeats soon, all together do not.
    assert repeat_soon([[40, 60], [60, 60 * 19], [60 * 19, 19 * 17 * 60]])


def test_co_prime_periods_are_drawn_together_as_little_as_it_takes() -> None:
    own = {"a": 3_600_007 * MS, "b": 3_600_011 * MS}
    link = SharedLink(("l", ""), C, {j: (half_of(t),) for j, t in own.items()})
    found = interleave([link], own)
    assert found.periods["a"] == found.periods["b"]
    assert 0 <= found.errors["b"] <= found.errors["a"] < 2e-6
    assert found.circles[0].score == pytest.approx(1.0, abs=2e-6)


def half_of(period: int) -> Phase:
    return up(0, period // 2 // MS)


@pytest.mark.slow
def test_fifty_jobs_on_a_link() -> None:
    rng = random.Random(3)
    own = {f"j{i}": rng.randint(100, 140) * MS for i in range(50)}
    link = SharedLink(("l", ""), C, {j: (up(0, 2),) for j in own})
    found = interleave([link], own)
    assert found.circles[0].score > 0.95
    assert max(found.errors.values()) < 0.13
    assert quantise(list(own.values())) is None


def test_a_circle_too_fine_is_refused_in_words() -> None:
    phases = tuple(up(k, k + 0.5) for k in range(5))
    link = SharedLink(("l7", ""), C, {"a": phases, "b": phases})
    with pytest.raises(TooFineError, match=r"link l7: its circle would have .* b repeats every 1e\+06 ms"):
        interleave([link], {"a": 5 * MS, "b": 1_000_000 * MS})


def test_a_search_that_has_spent_its_steps_stops_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of four jobs with thousands of edges: every corner of one has thousands of another's below."""
    rng = random.Random(1)
    periods = {"a": 360_000 * MS, "b": 1_000 * MS, "c": 900 * MS, "d": 400 * MS}
    phases = {
        j: tuple(up(k * t / 8 / MS, (k + 0.4 + rng.random() / 4) * t / 8 / MS) for k in (0, 2, 5))
        for j, t in periods.items()
    }
    pairs = ("ab", "bc", "cd", "da")
    ring = [SharedLink((p, ""), C, {j: phases[j] for j in p}) for p in pairs]
    looked = 0

    def counted(*words: object, **more: object) -> object:
        nonlocal looked
        looked += 1
        return sweep(*words, **more)

    monkeypatch.setattr("controller.interleave.search.sweep", counted)
    search = Search(ring, periods, 0.0)
    search.branch(4.0, dict.fromkeys(periods, 0), 5)
    # Three jobs left are three sweeps of two links for each step, on the way down and once more.
    assert 0 < looked <= 2 * 3 * (5 + 3)


def test_a_link_that_never_fills_leaves_periods_alone() -> None:
    # The periods repeat together after 1,013 s. On the full link b and c have equal periods.
    half, full = (up(0, 400, C // 2),), (up(0, 400),)
    periods = {"a": 1_000 * MS, "b": 1_013 * MS, "c": 1_013 * MS}
    loose = SharedLink(("loose", ""), C, {"a": half, "b": half})
    tight = SharedLink(("tight", ""), C, {"b": full, "c": full})
    found = interleave([loose, tight], periods)
    assert found.periods == periods
    assert found.shifts["c"] != 0
    assert [c.score for c in found.circles] == [1.0, 1.0]
    # One bit/s more, and the link may fill.
    above = SharedLink(("loose", ""), C, {"a": half, "b": (up(0, 400, C // 2 + 1),)})
    assert interleave([above], {j: periods[j] for j in "ab"}).periods != {j: periods[j] for j in "ab"}


def test_a_link_that_never_fills_needs_no_circle() -> None:
    periods = {"a": 1_000 * MS + 1, "b": 1_013 * MS + 7}
    loose = SharedLink(("loose", ""), C, dict.fromkeys("ab", (up(0, 400, C // 2),)))
    (circle,) = interleave([loose], periods).circles
    assert (circle.score, circle.perimeter_ns, circle.excess_bps) == (1.0, 0, 0.0)
    assert "never fill" in to_text(interleave([loose], periods))
    assert "<svg" in draw(interleave([loose], periods))


def coordinate_ascent(
    links: list[SharedLink], periods: dict[str, int], starts: int, rng: random.Random
) -> float:
    """The best sum of scores that moving one job at a time to its best corner finds from random shifts."""
    best = -math.inf
    for _ in range(starts):
        at = {j: rng.randrange(t) for j, t in periods.items()}
        value, before = sum(score(k, periods, at) for k in links), -math.inf
        while value > before + 1e-9:
            before = value
            for j, period in periods.items():
                mine = [sweep(k, j, periods, at) for k in links if j in k.demands]
                corners = sorted({int(c) for found, _ in mine for c in found})
                if not corners:
                    continue
                loss = sum(np.interp(corners, c, v, period=period) for c, v in mine)
                moved = at | {j: corners[int(np.argmin(loss))]}
                if (got := sum(score(k, periods, moved) for k in links)) > value:
                    at, value = moved, got
        best = max(best, value)
    return best


@pytest.mark.parametrize("seed", [5, 9, 10, 37])
def test_loops_are_never_worse_than_coordinate_ascent_from_ten_starts(seed: int) -> None:
    rng = random.Random(seed)
    periods = {f"j{i}": rng.choice([100, 150, 200, 300]) * MS for i in range(rng.randint(5, 7))}
    phases = {}
    for j, t in periods.items():
        a, b = sorted(rng.sample(range(0, t // MS, 5), 2))
        phases[j] = (up(a, b, rng.choice([40, 60, 80, 100]) * C // 100),)
    links = [
        SharedLink((f"l{k}", ""), C, {j: phases[j] for j in rng.sample(sorted(periods), 3)}) for k in range(4)
    ]
    found = interleave(links, periods, seed=seed)
    assert found.periods == periods
    used = {j: t for j, t in periods.items() if any(j in k.demands for k in links)}
    reached = sum(c.score for c in found.circles)
    assert reached >= coordinate_ascent(links, used, 10, rng) - 1e-9
