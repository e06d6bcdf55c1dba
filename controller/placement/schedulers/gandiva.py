# SPDX-License-Identifier: Apache-2.0
"""Gandiva: takes any free GPUs at once, and migrates a job when closer ones become free.

Rule: waiting jobs go in the order of their wait. A job that fits a machine takes the machine with the most
free GPUs that has enough; otherwise it takes a draw of all free GPUs. When GPUs have become free, jobs that
are farther apart than need be move closer. No job is preempted.

The sources say: network-agnostic placement, and migration to better consolidation when resources become
available (Dally, V-C). Our reading: the machine with the most free GPUs, which Gandiva prefers as the least
loaded; the draw; and no time-slicing of GPUs between jobs, which Dally's evaluation does not mention.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from controller.placement.machines import Allocation, FreePool
from controller.placement.offers import PlacedJob, closer


class Gandiva:
    """First come first served on any GPUs; `seed` draws them."""

    leases = False

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(f"{seed}/gandiva")

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """Waiting jobs in the order of their wait, then running jobs, which may migrate."""
        return sorted(jobs, key=lambda j: (j.allocation is not None, j.since, j.arrived, j.name))

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The least loaded machine, or GPUs of all machines."""
        return pool.emptiest(job.demand) or pool.scattered(job.demand, self._random)

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """GPUs of a closer tier."""
        return closer(job, pool)
