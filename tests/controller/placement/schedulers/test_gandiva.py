# SPDX-License-Identifier: Apache-2.0
"""What Gandiva is known for: any GPUs at once, migration to closer ones, no preemption."""

from __future__ import annotations

from controller.placement.machines import FreePool, Machines, NetworkTier
from controller.placement.offers import PlacedJob, offer_round
from controller.placement.schedulers.gandiva import Gandiva


def test_a_job_never_waits_while_gpus_are_free_anywhere() -> None:
    pool = FreePool(Machines.uniform(4, 1, 4))
    pool.take(tuple((m, 3) for m in range(4)))
    assert Gandiva().offer(0, PlacedJob("job", 4, 1.0, skewed=True), pool) == tuple((m, 1) for m in range(4))


def test_the_least_loaded_machine_is_taken() -> None:
    pool = FreePool(Machines.uniform(1, 2, 4))
    pool.take(((0, 2),))
    assert Gandiva().offer(0, PlacedJob("job", 2, 1.0), pool) == ((1, 2),)


def test_a_scattered_job_migrates_when_closer_gpus_become_free_after_those_that_wait() -> None:
    pool = FreePool(Machines.uniform(4, 1, 4))
    pool.take(((0, 3), (2, 3), (3, 4)))
    spread = PlacedJob("spread", 2, 1.0, allocation=((0, 1), (2, 1)))
    pool.take(((0, 1), (2, 1)))
    waits = PlacedJob("waits", 3, 1.0)
    assert offer_round(Gandiva(), 1.0, [waits], [spread], pool) == {"waits": ((1, 3),)}
    pool.give_back(((1, 3),))
    changes = offer_round(Gandiva(), 1.0, [], [spread], pool)
    assert changes == {"spread": ((1, 2),)}
    assert pool.machines.tier(((1, 2),)) == NetworkTier.MACHINE
    assert pool.free == [1, 2, 1, 0]


def test_a_running_job_is_never_stopped() -> None:
    pool = FreePool(Machines.uniform(1, 1, 4))
    runs = PlacedJob("runs", 4, 1e9, ran=1e9, served=4e9, allocation=((0, 4),))
    pool.take(((0, 4),))
    assert offer_round(Gandiva(), 1e9, [PlacedJob("new", 1, 1.0)], [runs], pool) == {}
