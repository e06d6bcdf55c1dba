# SPDX-License-Identifier: Apache-2.0
"""What HiveD is known for: small jobs leave large cells whole, and no job is spread further than need be."""

from __future__ import annotations

from controller.placement.machines import FreePool, Machines
from controller.placement.offers import PlacedJob, offer_round
from controller.placement.schedulers.hived import HiveD


def test_small_jobs_leave_machines_whole() -> None:
    pool = FreePool(Machines.uniform(2, 2, 8))
    small = [PlacedJob(f"small-{i}", 2, 1.0) for i in range(4)]
    large = PlacedJob("large", 24, 1.0, arrived=1.0)
    changes = offer_round(HiveD(), 1.0, [*small, large], [], pool)
    assert {changes[job.name] for job in small} == {((0, 2),)}
    assert changes["large"] == ((1, 8), (2, 8), (3, 8))


def test_a_job_waits_rather_than_being_spread_and_is_not_preempted() -> None:
    pool = FreePool(Machines.uniform(2, 2, 4))
    pool.take(tuple((m, 1) for m in range(4)))
    runs = PlacedJob("runs", 1, 1e9, allocation=((0, 1),))
    assert offer_round(HiveD(), 1e9, [PlacedJob("four", 4, 1.0)], [runs], pool) == {}
    changes = offer_round(HiveD(), 1e9, [PlacedJob("five", 5, 1.0)], [runs], pool)
    assert changes == {"five": ((0, 3), (1, 2))}
