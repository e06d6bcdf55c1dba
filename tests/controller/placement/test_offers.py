# SPDX-License-Identifier: Apache-2.0
"""A round of offers: no GPU is given twice or lost, whatever the scheduler."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.placement.machines import FreePool, Machines
from controller.placement.offers import PlacedJob, closer, offer_round
from controller.placement.schedulers import SCHEDULERS, scheduler_named


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.booleans(), st.floats(0.1, 1.0), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    )
)
@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_rounds_keep_the_gpus(name: str, wanted: list[tuple[int, bool, float, int]]) -> None:
    machines, policy = Machines.uniform(2, 2, 4), scheduler_named(name)
    pool = FreePool(machines)
    jobs = [PlacedJob(f"j{i}", n, 1e6, skewed) for i, (n, skewed, _, _) in enumerate(wanted)]
    for turn in range(4):
        now = turn * 43_200.0
        running = [j for j in jobs if j.allocation is not None]
        changes = offer_round(policy, now, [j for j in jobs if j.allocation is None], running, pool)
        for job in jobs:
            if job.name in changes:
                job.allocation, job.since = changes[job.name], now
        used: Counter[int] = Counter()
        for job in jobs:
            assert job.allocation is None or sum(g for _, g in job.allocation) == job.demand
            used.update(dict(job.allocation or ()))
        assert [machines.gpus[m] - used[m] for m in range(4)] == pool.free
        for job, (_, _, speed, leaves) in zip(jobs, wanted, strict=True):
            if job.allocation is not None:
                job.ran += 43_200.0
                job.done += 43_200.0 * speed
                job.served += 43_200.0 * job.demand
                if leaves == turn:
                    pool.give_back(job.allocation)
                    job.allocation, job.demand = None, 100


def test_a_move_to_closer_gpus_is_never_to_the_same_tier() -> None:
    pool = FreePool(Machines.uniform(2, 2, 4))
    spread = PlacedJob("spread", 2, 1.0, allocation=((0, 1), (2, 1)))
    assert closer(spread, pool) == ((0, 2),)
    pool.take(((0, 3), (1, 3), (2, 3), (3, 4)))
    assert closer(spread, pool) == ((0, 1), (1, 1))
    pool.take(((1, 1),))
    assert closer(spread, pool) is None
    assert closer(PlacedJob("large", 9, 1.0, allocation=((0, 4), (1, 4), (2, 1))), pool) is None
