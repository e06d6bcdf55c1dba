# SPDX-License-Identifier: Apache-2.0
"""What Themis is known for: the job that is farthest from its fair finish time gets GPUs."""

from __future__ import annotations

import pytest

from controller.placement.machines import FreePool, Machines
from controller.placement.offers import PlacedJob, offer_round
from controller.placement.schedulers.themis import Themis, finish_time_fairness


def test_fairness_counts_waiting_and_what_is_still_to_come() -> None:
    job = PlacedJob("job", 2, 100.0, done=50.0, arrived=10.0)
    assert finish_time_fairness(110.0, job) == pytest.approx((100 + 50) / 100)
    job.allocation, job.slowdown = ((0, 2),), 3.0
    assert finish_time_fairness(110.0, job) == pytest.approx((100 + 150) / 100)


def test_gpus_go_from_a_long_job_to_a_short_one_that_has_waited_longer_for_its_length() -> None:
    pool = FreePool(Machines.uniform(1, 1, 4))
    pool.take(((0, 4),))
    long = PlacedJob("long", 4, 1e6, done=1e3, ran=1e3, allocation=((0, 4),))
    short = PlacedJob("short", 4, 100.0)
    assert offer_round(Themis(), 1e3, [short], [long], pool) == {"short": ((0, 4),), "long": None}
