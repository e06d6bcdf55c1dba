# SPDX-License-Identifier: Apache-2.0
"""Arrivals, departures, failures and forecasts: few flows move, and the plan is there before it is needed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.job import Phase, Profile
from controller.routing.incremental import IncrementalColouring
from controller.routing.lookahead import ActiveFlow, PeriodicFlows, next_change


def shares(alive: dict[int, tuple[int, int]], leaves: int, spines: int) -> list[list[int]]:
    degree = [[0] * leaves, [0] * leaves]
    for u, v in alive.values():
        degree[0][u] += 1
        degree[1][v] += 1
    return [[-(-d // spines) for d in side] for side in degree]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 10**6), st.booleans())
def test_live_spines_stay_balanced(leaves: int, spines: int, seed: int, plain: bool) -> None:
    rng = random.Random(seed)
    live = IncrementalColouring(leaves, spines, cap=10**6, plain=plain)
    alive: dict[int, tuple[int, int]] = {}
    for _ in range(120):
        if alive and rng.random() < 0.45:
            flow = rng.choice(list(alive))
            live.leave(flow)
            del alive[flow]
            assert live.spine(flow) == -1
        else:
            u, v = rng.sample(range(leaves), 2)
            flow = live.arrive(u, v)
            assert flow not in alive
            alive[flow] = u, v
        loads = np.zeros((2, leaves, spines), dtype=int)
        for flow, (u, v) in alive.items():
            loads[0, u, live.spine(flow)] += 1
            loads[1, v, live.spine(flow)] += 1
        assert (loads == live.loads()).all()
        assert (loads.max(axis=2) <= np.array(shares(alive, leaves, spines))).all()


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 10**6), st.booleans(), st.integers(0, 12))
def test_many_flows_come_as_they_would_one_by_one(
    leaves: int, spines: int, seed: int, plain: bool, most: int
) -> None:
    rng = random.Random(seed)
    pairs = np.array([rng.sample(range(leaves), 2) for _ in range(40)], dtype=np.int32)
    one, many = (IncrementalColouring(leaves, spines, cap=4, plain=plain) for _ in range(2))
    for live in (one, many):
        for u, v in pairs[:10].tolist():
            live.arrive(u, v)
    left, numbers = most, []
    for u, v in pairs[10:].tolist():
        numbers.append(one.arrive(u, v, left))
        left -= one.moved
    found = many.arrive_all(pairs[10:, 0], pairs[10:, 1], most)
    assert many.moved == most - left
    assert many.spines(found).tolist() == [one.spine(n) for n in numbers]
    assert (many.loads() == one.loads()).all()


@pytest.mark.parametrize("plain", [False, True])
def test_no_event_moves_more_than_the_cap(plain: bool) -> None:
    rng = random.Random(3)
    live = IncrementalColouring(6, 4, cap=2, plain=plain)
    alive: list[int] = []
    worst_excess = 0
    for _ in range(600):
        live.changes()
        if len(alive) > 20 and rng.random() < 0.5:
            flow = alive.pop(rng.randrange(len(alive)))
            live.leave(flow)
        else:
            flow = live.arrive(*rng.sample(range(6), 2))
            alive.append(flow)
        others = [f for f in live.changes().tolist() if f != flow]
        assert len(others) <= 2
        worst_excess = max(worst_excess, int(live.loads().max()))
    assert worst_excess <= 2 * -(-len(alive) // 4)
    with pytest.raises(KeyError):
        live.leave(10**6)


def test_ends_and_starts_are_foreseen() -> None:
    profile = Profile(100, (Phase(0, 30, 1), Phase(60, 70, 1)))
    periodic = PeriodicFlows(frozenset({"b", "c"}), profile, began_ns=1000)
    assert [periodic.next_start_ns(t) for t in (1000, 1059, 1060, 1099)] == [1060, 1060, 1100, 1100]
    sending = [ActiveFlow("a", 1000, 8e9), ActiveFlow("z", 5, 0.0)]
    change = next_change(1030, sending, [periodic])
    assert change is not None
    assert (change.time_ns, change.starts, change.active) == (1060, frozenset("bc"), frozenset("abcz"))
    soon = next_change(1030, [ActiveFlow("a", 20, 8e9)], [periodic])
    assert soon is not None
    assert (soon.time_ns, soon.ends, soon.active) == (1050, frozenset("a"), frozenset())
    assert next_change(0, [], []) is None


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 90), st.integers(0, 10**6))
def test_seated_flows_keep_their_spines_within_the_limits(
    leaves: int, spines: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    src, dst = (rng.integers(0, leaves, count).astype(np.int32) for _ in range(2))
    spine = rng.integers(0, spines, count).astype(np.int32)
    limits = tuple(rng.integers(1, 4, leaves).astype(np.int32) for _ in range(2))
    results = []
    for plain in (True, False):
        live = IncrementalColouring(leaves, spines, plain=plain)
        numbers = live.seat_all(src, dst, spine, limits)
        results.append(numbers.tolist())
        assert (live.loads() <= np.stack(limits)[:, :, None]).all()
        seated = numbers >= 0
        assert [live.spine(int(n)) for n in numbers[seated]] == spine[seated].tolist()
        assert live.loads().sum() == 2 * seated.sum()
        # One is left out only where its leaf already has as many on its spine.
        for f in np.flatnonzero(~seated):
            full = live.loads()[:, [src[f], dst[f]], spine[f]]
            assert full[0, 0] == limits[0][src[f]] or full[1, 1] == limits[1][dst[f]]
        # A number that was not needed may be given to another flow.
        assert live.arrive(0, 0) not in set(numbers.tolist())
    assert results[0] == results[1]
