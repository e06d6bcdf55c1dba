# SPDX-License-Identifier: Apache-2.0
"""Themis-like: GPUs go to the jobs that are farthest from their fair finish time.

Rule: rho is the time from arrival to the expected end, divided by the ideal running time. At the end of a
lease the GPUs of all jobs are auctioned to the jobs with the highest rho; each takes the closest GPUs that
are free.

The source says: leases, finish-time fairness rho, and offers to the fraction 1 - f of the jobs that are worst
off, then to the others (Themis, NSDI 2020). Our reading: the partial allocation auction among these is
replaced by the order of rho, and a job always runs on all the GPUs that it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.placement.machines import Allocation, FreePool
from controller.placement.offers import PlacedJob, closer


def finish_time_fairness(now: float, job: PlacedJob) -> float:
    """rho: the expected time from arrival to end over the ideal time. A waiting job is expected to start now,
    on the closest GPUs."""
    slowdown = job.slowdown if job.allocation is not None else 1.0
    return (now - job.arrived + (job.ideal - job.done) * slowdown) / job.ideal


class Themis:
    """The highest rho first."""

    leases = True

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """All jobs, the one that is worst off first."""
        return sorted(jobs, key=lambda j: (-finish_time_fairness(now, j), j.arrived, j.name))

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The closest free GPUs."""
        return pool.closest(job.demand)

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """GPUs of a closer tier."""
        return closer(job, pool)
