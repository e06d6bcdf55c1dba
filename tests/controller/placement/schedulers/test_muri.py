# SPDX-License-Identifier: Apache-2.0
"""What Muri is known for: jobs at different resources share GPUs, and each goes as fast as alone."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.placement.machines import FreePool, Machines
from controller.placement.offers import PlacedJob, held, offer_round
from controller.placement.schedulers.muri import RESOURCES, Muri, Stages, group_period, grouped

LOADS, PREPARES, COMPUTES, SENDS = (tuple(9.0 if i == at else 1.0 for i in range(4)) for at in range(4))


def waiting(name: str, stages: Stages, demand: int = 2, arrived: float = 0.0) -> PlacedJob:
    return PlacedJob(name, demand, 100.0, arrived=arrived, stages=stages)


def test_four_jobs_at_four_resources_run_as_fast_as_one() -> None:
    # Alone an iteration takes 12 s, and one after another 48 s.
    assert group_period([LOADS]) == 12
    assert group_period([LOADS, PREPARES, COMPUTES, SENDS]) == 12
    (group,) = grouped((COMPUTES, LOADS, SENDS, PREPARES))
    assert sorted(group) == [0, 1, 2, 3]


def test_resources_that_nobody_needs_take_no_step() -> None:
    # While one computes the other sends.
    job = (0.0, 0.0, 3.0, 2.0)
    assert group_period([job]) == 5
    assert group_period([job, job]) == 6


def test_jobs_of_one_resource_do_not_share() -> None:
    busy = (0.0, 0.0, 5.0, 0.0)
    assert group_period([busy, busy]) == 10
    assert grouped((busy, busy, busy)) == ((0,), (1,), (2,))
    # The partner is the one that sends while the other computes, whatever the order.
    sends = (0.0, 0.0, 1.0, 4.0)
    for order in permutations((busy, busy, sends, sends)):
        for group in grouped(order):
            assert sorted(order[i] for i in group) == [sends, busy]


STAGES = st.tuples(*[st.sampled_from([0.0, 1.0, 2.5, 7.0])] * 4).filter(any)


@settings(max_examples=60, deadline=None)
@given(st.lists(STAGES, min_size=1, max_size=4), st.randoms())
def test_the_period_is_that_of_a_common_round(group: list[Stages], random) -> None:  # type: ignore[no-untyped-def]
    period = group_period(group)
    # No job is faster than alone, no resource is used twice at a time, and turns never cost more than a queue.
    assert period >= max(map(sum, group)) - 1e-9
    assert period >= max(sum(job[r] for job in group) for r in range(len(RESOURCES))) - 1e-9
    assert period <= sum(map(sum, group)) + 1e-9
    random.shuffle(group)
    assert group_period(group) == pytest.approx(period)


@settings(max_examples=30, deadline=None)
@given(st.lists(STAGES, min_size=2, max_size=5))
def test_pairs_save_the_most(stages: list[Stages]) -> None:
    def saved(group: tuple[int, ...]) -> float:
        return sum(sum(stages[i]) for i in group) - group_period([stages[i] for i in group])

    found = grouped(tuple(stages))
    assert sorted(i for group in found for i in group) == list(range(len(stages)))
    every = list(combinations(range(len(stages)), 2))
    best = max(
        sum(max(0.0, saved(p)) for p in pairs)
        for size in range(len(stages) // 2 + 1)
        for pairs in combinations(every, size)
        if len({i for p in pairs for i in p}) == 2 * size
    )
    assert sum(saved(group) for group in found) >= best - 1e-9


def test_sharing_begins_where_gpus_are_short_and_only_among_jobs_of_one_size() -> None:
    pool, policy = FreePool(Machines.uniform(1, 2, 2)), Muri()
    computes, sends = waiting("computes", COMPUTES), waiting("sends", SENDS, arrived=1.0)
    found = offer_round(policy, 0.0, [computes, sends], [], pool)
    assert found == {"computes": ((0, 2),), "sends": ((1, 2),)}
    assert computes.partners == ()
    for job in (computes, sends):
        job.allocation = found[job.name]
    # A third one comes: at the end of the lease two share, and the small job shares with none of them.
    third, small = waiting("third", LOADS, arrived=2.0), waiting("small", SENDS, demand=1, arrived=3.0)
    found = offer_round(policy, 1.0, [third, small], [computes, sends], pool)
    for job in (computes, sends, third, small):
        job.allocation = found.get(job.name, job.allocation)
    together = [job for job in (computes, sends, third) if job.partners]
    assert len(together) in (2, 3)
    assert len({job.allocation for job in together}) == 1
    assert small.partners == ()
    used = sum(gpus for allocation in held([computes, sends, third, small]) for _, gpus in allocation)
    assert pool.total == 4 - used
