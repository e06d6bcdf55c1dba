# SPDX-License-Identifier: Apache-2.0
"""What Tiresias is known for: least attained service in two queues, and strict consolidation by skew."""

from __future__ import annotations

from controller.placement.machines import FreePool, Machines, NetworkTier
from controller.placement.offers import PlacedJob, offer_round
from controller.placement.schedulers.tiresias import THRESHOLD_GPU_S, Tiresias


def test_young_jobs_preempt_old_ones_and_each_queue_is_in_order_of_arrival() -> None:
    pool = FreePool(Machines.uniform(1, 1, 4))
    pool.take(((0, 4),))
    old = PlacedJob("old", 4, 1e6, served=THRESHOLD_GPU_S, allocation=((0, 4),))
    older = PlacedJob("older", 4, 1e6, served=9 * THRESHOLD_GPU_S, arrived=5.0)
    young = PlacedJob("young", 4, 1e6, arrived=9.0)
    assert [j.name for j in Tiresias().order(10.0, [older, old, young])] == ["young", "old", "older"]
    assert offer_round(Tiresias(), 10.0, [older, young], [old], pool) == {"young": ((0, 4),), "old": None}


def test_a_skewed_model_waits_for_consolidation_and_another_takes_anything() -> None:
    pool = FreePool(Machines.uniform(2, 2, 4))
    pool.take(tuple((m, 2) for m in range(4)))
    policy = Tiresias()
    assert policy.offer(1e9, PlacedJob("skewed", 4, 1.0, skewed=True), pool) is None
    found = policy.offer(0, PlacedJob("plain", 8, 1.0), pool)
    assert found is not None
    assert pool.machines.tier(found) == NetworkTier.NETWORK
    pool.give_back(((0, 2), (1, 2)))
    assert policy.offer(0, PlacedJob("large", 6, 1.0, skewed=True), pool) == ((0, 4), (1, 2))


def test_placements_repeat_with_the_seed() -> None:
    def drawn(seed: int) -> object:
        return Tiresias(seed).offer(0, PlacedJob("plain", 9, 1.0), FreePool(Machines.uniform(4, 4, 4)))

    assert drawn(3) == drawn(3) != drawn(4)
