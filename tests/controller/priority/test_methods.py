# SPDX-License-Identifier: Apache-2.0
"""The orders and compressions of the baselines, and all methods behind one interface."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from preempt_rig import preempt

from controller.priority.baselines import balanced, bssi, sebf, top_levels
from controller.priority.crux import Contender, correction
from controller.priority.jobs import LinkJob, shared_links
from controller.priority.methods import METHODS, Setting

RATES = {"l1": 8.0, "l2": 16.0, "l3": 8.0}
JOBS = [
    LinkJob("long", 8, 10.0, 1.0, {"l1": 4.0, "l2": 4.0}, distance=3),
    LinkJob("short", 8, 5.0, 1.0, {"l1": 1.0}, distance=1),
    LinkJob("side", 8, 9.0, 1.0, {"l2": 6.0, "l3": 3.0}, distance=3),
    LinkJob("mute", 8, 99.0, 1.0, {"l1": 0.0}),
]


def completion(seconds: np.ndarray, weight: np.ndarray, order: list[int]) -> float:
    """Weighted sum of completion times when each port serves the coflows in this order."""
    done = np.cumsum(seconds[order], axis=0)
    return float((np.where(seconds[order] > 0, done, 0).max(axis=1) * weight[order]).sum())


def test_bssi_on_one_port_is_smiths_rule() -> None:
    seconds = np.array([[4.0], [1.0], [3.0], [2.0]])
    assert bssi(seconds) == [1, 3, 2, 0]
    weight = np.array([8.0, 1.0, 3.0, 6.0])
    assert bssi(seconds, weight) == sorted(range(4), key=lambda i: seconds[i, 0] / weight[i])


def test_bssi_by_hand_on_two_ports() -> None:
    # Port 0 has 6 s to do, port 1 has 5: coflow 2 (weight per second 1/4 there) goes last. Coflow 0's
    # weight falls by 2/4 to 1/2. Then port 1 has 5 s: 1 has 1/3 a second, 0 has 1/4: 0 goes next to last.
    seconds = np.array([[2.0, 2.0], [0.0, 3.0], [4.0, 0.0]])
    assert bssi(seconds) == [1, 0, 2]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_bssi_is_within_four_times_the_best_order(seed: int, count: int, ports: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.random((count, ports)) * (rng.random((count, ports)) < 0.7)
    weight = rng.random(count) + 0.1
    order = bssi(seconds, weight)
    assert sorted(order) == list(range(count))
    best = min(completion(seconds, weight, list(o)) for o in permutations(range(count)))
    assert completion(seconds, weight, order) <= 4 * best + 1e-9


def test_sebf_takes_the_smallest_bottleneck_first() -> None:
    assert sebf(np.array([[1.0, 5.0], [4.0, 4.0], [2.0, 0.0]])) == [2, 1, 0]


def test_figure_13() -> None:
    assert top_levels(4, 2) == [0, 1, 1, 1]
    assert balanced(4, 2) == [0, 0, 1, 1]
    assert balanced(2, 5) == [0, 0] or balanced(2, 5) == [0, 1]
    assert top_levels(2, 5) == [0, 1]


def test_orders_of_all_methods() -> None:
    orders = {
        name: [r.name for r in method.assign(JOBS, RATES).ranked]
        for name, method in METHODS.items()
        if name != "random"
    }
    # Intensities: long 10/4, short 5/1, side 9/3. SEBF: short 1 s, side 3 s, long 4 s.
    assert orders["intensity"] == ["short", "side", "long", "mute"]
    assert orders["varys"] == ["short", "side", "long", "mute"]
    # l1 and l2 have 5 s to do: on l1 long has the least weight per second.
    assert orders["sincronia"] == ["short", "side", "long", "mute"]
    assert orders["taccl"] == ["long", "side", "short", "mute"]


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("levels", [None, 1, 2, 9])
def test_every_method_keeps_the_interface(name: str, levels: int | None) -> None:
    setting = Setting(levels=levels, seed=3)
    got = METHODS[name].assign(JOBS, RATES, setting)
    assert got == METHODS[name].assign(JOBS, RATES, setting)
    names = [r.name for r in got.ranked]
    assert sorted(names) == sorted(j.name for j in JOBS)
    assert names[-1] == "mute"
    assert set(got.level) == set(names)
    place = {n: i for i, n in enumerate(names)}
    assert set(got.edges) == {tuple(sorted(pair, key=place.__getitem__)) for pair in shared_links(JOBS)}
    intensity = {r.name: r.intensity for r in got.ranked}
    assert intensity["mute"] is None
    assert all(w == intensity[a] for (a, _), w in got.edges.items())
    assert all(got.level[a] <= got.level[b] for a, b in got.edges)
    assert got.cut + got.lost == pytest.approx(sum(got.edges.values()))
    if levels is None:
        assert [got.level[n] for n in names] == [0, 1, 2, 3]
        assert got.lost == 0
    else:
        assert all(0 <= k < levels for k in got.level.values())
        assert got.level["mute"] == levels - 1


def test_random_depends_on_its_seed_alone() -> None:
    orders = {
        tuple(r.name for r in METHODS["random"].assign(JOBS, RATES, Setting(seed=s)).ranked)
        for s in range(30)
    }
    assert len(orders) == 6


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="levels must be at least 1"):
        METHODS["varys"].assign(JOBS, RATES, Setting(levels=0))
    with pytest.raises(ValueError, match="same name"):
        METHODS["crux"].assign([JOBS[0], JOBS[0]], RATES)


def test_equal_jobs_around_a_ring_of_links_make_no_cycle() -> None:
    rates = dict.fromkeys(["ab", "bc", "cd", "da"], 8.0)
    jobs = [
        LinkJob(name, 1, 1.0, 1.0, {first: 1.0, second: 1.0})
        for name, first, second in (
            ("a", "da", "ab"),
            ("b", "ab", "bc"),
            ("c", "bc", "cd"),
            ("d", "cd", "da"),
        )
    ]
    got = METHODS["crux"].assign(jobs, rates, Setting(levels=2))
    assert [r.name for r in got.ranked] == ["a", "b", "c", "d"]
    assert set(got.edges) == {("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")}
    # No cut into two that keeps the order parts more than two of the four.
    assert (got.cut, got.lost) == (2.0, 2.0)


def test_correction_takes_no_longer_for_jobs_of_very_different_length() -> None:
    tiny, huge = Contender("tiny", 1.0, 1e-6, 1e-6, 1.0), Contender("huge", 1.0, 500.0, 500.0, 9.0)
    # Tiny sends 1/2 of all time first and 1/4 second; huge 1/2 first and, at half speed, 1/3 second.
    assert correction(tiny, huge) == pytest.approx(1.5, rel=0.01)
    high, low = preempt(huge, tiny, 10_000.0)
    assert high.traffic_s == 5_000.0
    assert low.traffic_s == pytest.approx(2_500.0, rel=1e-6)
    assert low.compute_s == pytest.approx(2_500.0, rel=1e-6)


def test_traffic_of_less_than_a_nanosecond_is_traffic() -> None:
    speck = Contender("speck", 1.0, 0.0, 1e-12, 1.0)
    assert 1 / 8 <= correction(speck, Contender("b", 1.0, 1.0, 1.0, 2.0)) <= 8
