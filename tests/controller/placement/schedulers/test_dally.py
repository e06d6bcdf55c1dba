# SPDX-License-Identifier: Apache-2.0
"""What Dally and its variants are known for (Dally, IV-B and V-C)."""

from __future__ import annotations

import pytest

from controller.placement.machines import FreePool, Machines, NetworkTier
from controller.placement.offers import PlacedJob, offer_round
from controller.placement.schedulers import SchedulerOptions, scheduler_named
from controller.placement.schedulers.dally import network_priority

HOUR = 3600.0
OPTIONS = SchedulerOptions(lease_s=HOUR)


def fragmented() -> FreePool:
    """Two racks of two machines of 4 GPUs; each machine has 2 free ones."""
    pool = FreePool(Machines.uniform(2, 2, 4))
    pool.take(tuple((m, 2) for m in range(4)))
    return pool


@pytest.mark.parametrize(
    ("name", "rack_after_h", "any_after_h"),
    [
        ("dally-manual", 12, 24),
        ("dally-nowait", 0, 0),
        ("dally-consolidated", None, None),
        ("dally", 6, 12),
    ],
)
def test_a_job_relaxes_its_wish_as_its_timers_elapse(
    name: str, rack_after_h: int | None, any_after_h: int | None
) -> None:
    for hours in range(0, 30, 2):
        pool, job = fragmented(), PlacedJob("job", 4, 1e5)
        found = scheduler_named(name, OPTIONS).offer(hours * HOUR, job, pool)
        if rack_after_h is None or hours < rack_after_h:
            assert found is None
        else:
            assert found is not None
            assert pool.machines.tier(found) == NetworkTier.RACK
        pool.take(((1, 2), (3, 2)))
        found = scheduler_named(name, OPTIONS).offer(hours * HOUR, job, pool)
        assert (found is None) == (any_after_h is None or hours < any_after_h)


def test_a_machine_is_taken_at_once() -> None:
    job, pool = PlacedJob("job", 4, 1e5), FreePool(Machines.uniform(1, 2, 4))
    assert scheduler_named("dally-consolidated", OPTIONS).offer(0, job, pool) == ((0, 4),)


def test_a_job_larger_than_a_machine_waits_for_no_machine_and_one_larger_than_a_rack_for_nothing() -> None:
    policy, pool = scheduler_named("dally-manual", OPTIONS), FreePool(Machines.uniform(2, 2, 4))
    assert policy.offer(0, PlacedJob("six", 6, 1.0), pool) == ((0, 4), (1, 2))
    assert policy.offer(0, PlacedJob("ten", 10, 1.0), pool) is not None
    pool.take(((0, 4), (2, 4)))
    assert policy.offer(23 * HOUR, PlacedJob("six", 6, 1.0), pool) is None
    assert policy.offer(24 * HOUR, PlacedJob("six", 6, 1.0), pool) == ((1, 4), (3, 2))


def test_priority_is_low_for_a_job_that_the_network_slowed() -> None:
    assert network_priority(PlacedJob("new", 1, 100.0)) == 0
    assert network_priority(PlacedJob("free", 1, 100.0, done=10.0, ran=10.0)) == 1
    # Half of the work in four times the ideal time of that work.
    assert network_priority(PlacedJob("slowed", 8, 100.0, done=50.0, ran=200.0)) == 0.25


def test_a_slowed_job_takes_the_machine_of_one_that_was_not() -> None:
    """Where Tiresias goes by attained service, the slowed job, which was served longer, would come last."""
    pool = FreePool(Machines.uniform(2, 1, 4))
    near = PlacedJob("near", 4, 1e5, done=1e4, ran=1e4, served=4e4, allocation=((0, 4),))
    far = PlacedJob("far", 4, 1e5, done=1e3, ran=2e4, served=8e4, since=2e4)
    pool.take(((0, 4), (1, 2)))
    changes = offer_round(scheduler_named("dally", OPTIONS), 2e4, [far], [near], pool)
    assert changes == {"far": ((0, 4),), "near": None}


def test_a_job_keeps_its_gpus_if_nobody_else_wants_them() -> None:
    pool = FreePool(Machines.uniform(1, 2, 4))
    job = PlacedJob("job", 4, 1e5, done=1e4, ran=1e4, allocation=((1, 4),))
    pool.take(((1, 4),))
    assert offer_round(scheduler_named("dally", OPTIONS), 1e4, [], [job], pool) == {}


def test_waits_tune_the_timers_of_the_same_demand() -> None:
    policy = scheduler_named("dally", OPTIONS)
    now, free = 15 * HOUR, FreePool(Machines.uniform(2, 2, 4))
    assert policy.offer(now, PlacedJob("waited", 4, 1e5), free) == ((0, 4),)
    since = now - 11 * HOUR
    assert policy.offer(now, PlacedJob("same", 4, 1e5, since=since), fragmented()) is None
    assert policy.offer(now, PlacedJob("other", 3, 1e5, since=since), fragmented()) == ((0, 2), (1, 1))
