# SPDX-License-Identifier: Apache-2.0
"""Tiresias: least attained service in two queues, and consolidation of models with high skew.

Rule: a job's attained service is its GPUs times its time in the run queue (2DAS). Jobs below the threshold go
first; within a queue the job that arrived first. A skewed model takes GPUs of one machine only if it fits
one, else of one rack only if it fits one. Another model takes any GPUs. At the end of a lease the GPUs of all
jobs are offered again.

The sources say: 2DAS, discretised, with FIFO order in each queue (Tiresias, NSDI 2019; Dally, III-D), and
strict consolidation by skew (Dally, III-B and V-C). Our reading: "any offer" is a draw among the free GPUs,
for Tiresias has no preference there; the threshold is that of its published simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from controller.placement.machines import Allocation, FreePool
from controller.placement.offers import PlacedJob

THRESHOLD_GPU_S = 3_600.0
"""The attained service that ends the first queue, in GPU seconds. Tiresias' simulator."""


class Tiresias:
    """Two queues by attained service; `seed` draws the GPUs of models with low skew."""

    leases = True

    def __init__(self, seed: int = 1, threshold_gpu_s: float = THRESHOLD_GPU_S) -> None:
        self._random = Random(f"{seed}/tiresias")
        self._threshold = threshold_gpu_s

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """The young queue, then the old one; each in the order of arrival."""
        return sorted(jobs, key=lambda j: (j.served >= self._threshold, j.arrived, j.name))

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The closest placement that the job can ever have, or any GPUs."""
        if not job.skewed:
            return pool.scattered(job.demand, self._random)
        return pool.closest(job.demand, worst=pool.machines.closest(job.demand))

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """Never: Tiresias does not migrate."""
        return None
