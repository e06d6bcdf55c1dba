# SPDX-License-Identifier: Apache-2.0
"""Free GPUs on machines in racks, and the tiers that placements need."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.placement.machines import FreePool, Machines, NetworkTier

TWO_RACKS = Machines.uniform(2, 2, 4)


def test_tiers() -> None:
    assert TWO_RACKS.tier(((0, 4),)) == NetworkTier.MACHINE
    assert TWO_RACKS.tier(((0, 1), (1, 1))) == NetworkTier.RACK
    assert TWO_RACKS.tier(((1, 1), (2, 1))) == NetworkTier.NETWORK
    assert [TWO_RACKS.closest(n) for n in (4, 5, 8, 9)] == [
        NetworkTier.MACHINE,
        NetworkTier.RACK,
        NetworkTier.RACK,
        NetworkTier.NETWORK,
    ]


def test_the_tightest_machine_and_rack_are_taken() -> None:
    pool = FreePool(TWO_RACKS)
    pool.take(((0, 1), (3, 2)))
    assert pool.on_machine(2) == ((3, 2),)
    assert pool.emptiest(2) == ((1, 2),)
    assert pool.on_machine(5) is None
    assert pool.emptiest(5) is None
    assert pool.in_rack(6) == ((2, 4), (3, 2))
    assert pool.in_rack(8) is None
    assert pool.anywhere(9) == ((0, 3), (1, 4), (2, 2))
    assert pool.anywhere(14) is None


def test_gpus_are_taken_once() -> None:
    pool = FreePool(TWO_RACKS)
    pool.take(((0, 4),))
    with pytest.raises(ValueError, match="not free"):
        pool.take(((0, 1),))


@pytest.mark.parametrize(
    ("gpus", "racks", "message"),
    [((), (), "0 machines"), ((8,), (0, 0), "1 machines"), ((0,), (0,), "legal")],
)
def test_bad_machines(gpus: tuple[int, ...], racks: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Machines(gpus, racks)


MACHINES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=6).map(
    lambda rows: Machines(tuple(g for g, _ in rows), tuple(r for _, r in rows))
)


@settings(max_examples=60, deadline=None)
@given(MACHINES, st.lists(st.tuples(st.integers(1, 8), st.sampled_from(range(5))), max_size=12))
def test_every_search_agrees_with_a_count_of_all_free_gpus(
    machines: Machines, wanted: list[tuple[int, int]]
) -> None:
    pool, random, held = FreePool(machines), Random(1), []
    for demand, kind in wanted:
        free = list(pool.free)
        racks = {r: sum(f for f, k in zip(free, machines.rack, strict=True) if k == r) for r in machines.rack}
        possible = (
            max(free) >= demand,
            max(racks.values()) >= demand,
            sum(free) >= demand,
            sum(free) >= demand,
            max(free) >= demand,
        )[kind]
        search = (pool.on_machine, pool.in_rack, pool.anywhere, pool.scattered, pool.emptiest)[kind]
        found = search(demand, random) if kind == 3 else search(demand)  # type: ignore[operator,call-arg]
        assert (found is not None) == possible
        if found is not None:
            assert sum(g for _, g in found) == demand
            assert all(free[m] >= g > 0 for m, g in found)
            assert list(found) == sorted(found)
            assert machines.tier(found) <= (0, 1, 2, 2, 0)[kind]
            pool.take(found)
            held.append(found)
        if len(held) > 2:
            pool.give_back(held.pop(0))
    for allocation in held:
        pool.give_back(allocation)
    assert pool.free == list(machines.gpus)
    assert pool.total == machines.total
    assert pool.rack_free == machines.rack_gpus
