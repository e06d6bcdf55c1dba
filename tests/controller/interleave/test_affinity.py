# SPDX-License-Identifier: Apache-2.0
"""Affinity graph, quantised periods, and who is held."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.affinity import align, traverse
from controller.interleave.circle import SharedLink, score
from controller.interleave.period import quantise
from controller.interleave.slot_schedule import MIN_STRETCH, TOLERANCE, schedule_slots
from controller.model import Phase

MS = 1_000_000
C = 50_000


def link(name: str, ups: dict[str, int], rate: int = C) -> SharedLink:
    demands = {j: (Phase(0, u * MS, C),) for j, u in ups.items()}
    return SharedLink((name, "y"), rate, demands)


def tree(rng: random.Random) -> tuple[list[SharedLink], dict[str, int]]:
    """A random loop-free affinity graph: every new link touches one job that is there already."""
    periods = {"j0": rng.choice([120, 240, 60]) * MS}
    links = []
    for i in range(rng.randint(1, 4)):
        members = [rng.choice(list(periods))]
        for _ in range(rng.randint(1, 2)):
            job = f"j{len(periods)}"
            periods[job] = rng.choice([120, 240, 60]) * MS
            members.append(job)
        links.append(link(f"l{i}", {j: rng.randint(5, periods[j] // MS * 6 // 10) for j in members}))
    return links, periods


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_trees_keep_every_links_best_rotation(seed: int) -> None:
    rng = random.Random(seed)
    links, periods = tree(rng)
    own = [{j: rng.randrange(periods[j] // MS) * MS for j in k.demands} for k in links]
    shifts = traverse(own, periods)
    assert shifts[next(iter(own[0]))] == 0
    for k, at in zip(links, own, strict=True):
        # Equation 4.6, corrected: for some c, t_j = t_j^l + c (mod T_j) for all jobs of the link;
        # by the Chinese remainder theorem it is enough that every two agree modulo their gcd.
        turn = {j: shifts[j] - at[j] for j in at}
        for a, b in combinations(turn, 2):
            assert (turn[a] - turn[b]) % math.gcd(periods[a], periods[b]) == 0
        assert score(k, periods, shifts) == pytest.approx(score(k, periods, at))
    found = align(links, periods)
    assert found.loops == ()
    assert [f.loss for f in found.links] == pytest.approx([0.0] * len(links), abs=1e-6)
    for f, k in zip(found.links, links, strict=True):
        assert f.score == pytest.approx(score(k, periods, found.shifts))


def test_links_with_the_same_jobs_are_no_loop() -> None:
    ups = {"a": 100, "b": 120}
    found = align([link("l1", ups), link("l2", ups), link("l3", ups)], dict.fromkeys(ups, 260 * MS))
    assert found.loops == ()
    assert [f.score for f in found.links] == [1.0] * 3
    assert found.shifts == {"a": 0, "b": 120 * MS}


def test_loop_gets_the_best_compromise_and_says_what_it_costs() -> None:
    links = [link("l1", {"a": 12, "b": 12}), link("l2", {"b": 12, "c": 12}), link("l3", {"a": 12, "c": 12})]
    periods = dict.fromkeys("abc", 30 * MS)
    found = align(links, periods)
    assert len(found.loops) == 1
    assert set(found.loops[0].jobs) == {"a", "b", "c"}
    assert [f.best_score for f in found.links] == pytest.approx([1.0] * 3)
    best = min(
        sum(1 - score(k, periods, {"a": 0, "b": x * MS, "c": y * MS}) for k in links)
        for x, y in product(range(30), repeat=2)
    )
    assert best > 0.1
    assert sum(f.loss for f in found.links) == pytest.approx(best)


def test_loop_that_fits_loses_nothing() -> None:
    links = [link("l1", {"a": 8, "b": 8}), link("l2", {"b": 8, "c": 8}), link("l3", {"a": 8, "c": 8})]
    found = align(links, dict.fromkeys("abc", 30 * MS))
    assert len(found.loops) == 1
    assert [f.score for f in found.links] == pytest.approx([1.0] * 3)


def test_quantise_measured_periods() -> None:
    measured = [337_600_000, 337_600_000, 169_300_000]
    found = quantise(measured, min_stretch=MIN_STRETCH)
    assert found is not None
    p, q, half = found.periods
    assert p == q == 2 * half == found.perimeter
    for t, longer in zip(measured, found.periods, strict=True):
        assert MIN_STRETCH * t <= longer <= (1 + TOLERANCE) * t


def test_quantise_leaves_small_multiples_alone() -> None:
    found = quantise([40 * MS, 60 * MS])
    assert found is not None
    assert (found.periods, found.perimeter) == ((40 * MS, 60 * MS), 120 * MS)


@pytest.mark.parametrize(
    "periods", [[3_600_000_000_007, 7], [t * MS for t in (1000, 617, 351, 129, 479, 951, 773, 887, 541)]]
)
def test_quantise_gives_up_on_what_never_repeats(periods: list[int]) -> None:
    assert quantise(periods) is None


@given(
    st.lists(st.integers(10**6, 10**9), min_size=1, max_size=5),
    st.sampled_from([1.0, MIN_STRETCH]),
    st.floats(0, 1),
)
def test_quantised_periods_divide_the_perimeter_within_bounds(
    periods: list[int], least: float, stretch: float
) -> None:
    found = quantise(periods, min_stretch=least, stretch=stretch)
    if found is not None:
        for t, longer in zip(periods, found.periods, strict=True):
            assert found.perimeter % longer == 0
            assert least * t <= longer <= 1.02 * t
        assert found.perimeter <= 20 * 1.02 * max(periods)


def test_quantise_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="positive"):
        quantise([0, 5])
    with pytest.raises(ValueError, match="must not exceed"):
        quantise([100], min_stretch=1.1)


def test_compatible_jobs_are_held_with_room_on_both_sides() -> None:
    links = [link("l1", {"a": 138, "b": 148})]
    found = schedule_slots(links, {"a": 301_600_000, "b": 301_900_000}, ["a", "b"])
    a, b = found.slots["a"], found.slots["b"]
    assert a.period_ns == b.period_ns == math.ceil(301_900_000 * MIN_STRETCH)
    assert a.group == b.group
    spare = a.period_ns - 286 * MS
    assert (b.shift_ns - a.shift_ns - 138 * MS) == pytest.approx(spare / 2, abs=2)
    assert found.fits[0].score == 1.0


def test_a_little_more_time_may_make_it_fit() -> None:
    found = schedule_slots([link("l1", {"a": 131, "b": 132})], {"a": 260 * MS, "b": 260 * MS}, ["a", "b"])
    assert found.fits[0].score == 1.0
    assert 263 * MS <= found.slots["a"].period_ns <= 265_200_000


def test_the_last_in_rank_is_let_go_where_not_all_fit() -> None:
    found = schedule_slots(
        [link("l1", {"a": 120, "b": 120, "c": 120})], dict.fromkeys("abc", 260 * MS), ["c", "a", "b"]
    )
    assert set(found.slots) == {"a", "c"}
    assert "cannot share l1->y in time with a, c" in found.reasons["b"]


def test_incompatible_periods_run_free() -> None:
    found = schedule_slots([link("l1", {"a": 50, "b": 50})], {"a": 100 * MS + 1, "b": 137 * MS}, ["a", "b"])
    assert found.slots == {}
    assert set(found.reasons) == {"b"}


def test_what_hardly_meets_is_not_held() -> None:
    found = schedule_slots([link("l1", {"a": 5, "b": 5})], dict.fromkeys("ab", 260 * MS), ["a", "b"])
    assert found.slots == {}
    assert found.reasons == {}


def test_a_link_without_gain_does_not_bind_the_jobs_of_another() -> None:
    links = [link("l1", {"a": 100, "b": 100}), link("l2", {"b": 100, "c": 5})]
    found = schedule_slots(links, {"a": 260 * MS, "b": 260 * MS, "c": 187 * MS}, ["a", "b", "c"])
    assert set(found.slots) == {"a", "b"}
    assert [f.link for f in found.fits] == [("l1", "y")]


def test_a_link_that_carries_both_needs_no_turns() -> None:
    found = schedule_slots(
        [link("l1", {"a": 200, "b": 200}, rate=2 * C)], dict.fromkeys("ab", 260 * MS), ["a", "b"]
    )
    assert found.slots == {}
    assert found.reasons == {}


def test_previous_rhythm_stays_while_it_fits() -> None:
    links = [link("l1", {"a": 120, "b": 120})]
    before = {"a": (262 * MS, 40 * MS), "b": (262 * MS, 165 * MS)}
    measured = {"a": 261 * MS, "b": 261_200_000}
    found = schedule_slots(links, measured, ["a", "b"], previous=before)
    assert {j: (h.period_ns, h.shift_ns) for j, h in found.slots.items()} == before
    overlapping_before = {"a": (262 * MS, 40 * MS), "b": (262 * MS, 60 * MS)}
    moved = schedule_slots(links, measured, ["a", "b"], previous=overlapping_before)
    assert moved.slots["a"].shift_ns == 40 * MS
    assert moved.fits[0].score == 1.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_who_is_held_fits_however_little_was_searched(seed: int) -> None:
    links, periods = tree(random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.interleave.slot_schedule._MOST_PLACES", 0)
        found = schedule_slots(links, periods, list(periods), slack=0.0, seed=seed)
    assert found.slots.keys() | found.reasons.keys() <= periods.keys()
    for k in links:
        own = {j: d for j, d in k.demands.items() if j in found.slots}
        at = {j: found.slots[j] for j in own}
        kept = SharedLink(k.name, k.rate_bps, own)
        now, when = ({j: h.period_ns for j, h in at.items()}, {j: h.shift_ns for j, h in at.items()})
        if len(own) > 1 and len({h.group for h in at.values()}) == 1:
            assert score(kept, now, when) >= 0.999
