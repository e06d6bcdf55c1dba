# SPDX-License-Identifier: Apache-2.0
"""Pollux-like: the number of each job's GPUs follows from goodput, and changes while it runs.

Rule: goodput is throughput times statistical efficiency. A job's speed-up is its goodput over that with an
equal share of the GPUs. At the end of each lease, GPUs are given one after another so that the harmonic mean
of all speed-ups is the highest; each job takes the closest GPUs that are free. A job whose number or GPUs
change saves its state and continues. In between, waiting jobs share free GPUs by the same rule.

The sources say: goodput, re-allocation every 60 s, and the fitness with power p = -1 (Pollux, OSDI 2021);
that it reassigns GPUs to maximise goodput, models the cost of a migration and avoids frequent ones (thesis,
4.5.1). Our reading: a greedy search by the gain of each further GPU in the place of a genetic one; the lease
is the interval; throughput is that of the job alone on the closest GPUs; efficiency is (noise + 1) /
(noise + GPUs) with one noise for all models, because no trace has gradient noise; batch and learning rate are
not tuned; at most twice the GPUs that the job asks for. A job keeps its GPUs if other numbers gain less than
MIGRATION_GAIN, and no job gets GPUs that slow it down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush

from controller.placement.machines import Allocation, FreePool
from controller.placement.offers import PlacedJob, closer

NOISE = 16.0
"""Gradient noise in batches of one GPU. Chosen: 18 GPUs progress as 9 would without it."""
MOST_TIMES = 2
"""A job gets at most so many times the GPUs that it asks for. Pollux explores as far in one step."""
MIGRATION_GAIN = 0.05
"""The part by which all jobs' harmonic mean must gain before GPUs change. Chosen."""


def progress(gpus: int, noise: float = NOISE) -> float:
    """The progress of an iteration on so many GPUs, in samples that count, of one GPU's batch: GPUs times
    statistical efficiency."""
    return gpus * (noise + 1) / (noise + gpus)


class Pollux:
    """GPUs by goodput, the harmonic mean of speed-ups the highest."""

    leases = True

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """In the order of arrival; `resize` has said how many GPUs each gets."""
        return sorted(jobs, key=lambda j: (j.arrived, j.name))

    def resize(self, now: float, jobs: Sequence[PlacedJob], free: int) -> None:
        """Set the demand of each job whose `goodput` is known; 0: it waits. Their GPUs are among the `free`.

        Jobs of unknown goodput get what they ask for. Numbers that gain too little over the present ones are
        left.
        """
        elastic = [job for job in self.order(now, jobs) if job.goodput]
        free -= sum(job.demand for job in jobs if not job.goodput)
        free = max(0, free)
        goodput = {job.name: job.goodput for job in elastic}
        wanted, equal = shares(goodput, free), _equal_shares(goodput, free)
        present = {job.name: sum(gpus for _, gpus in job.allocation or ()) for job in elastic}
        keeps = all(present.values()) and _speedup(wanted, goodput, equal) < (1 + MIGRATION_GAIN) * _speedup(
            present, goodput, equal
        )
        for job in elastic:
            job.demand = (present if keeps else wanted)[job.name]

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The closest free GPUs."""
        return pool.closest(job.demand) if job.demand else None

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """GPUs of a closer tier."""
        return closer(job, pool)


def shares(goodput: Mapping[str, Sequence[float]], gpus: int) -> dict[str, int]:
    """How many GPUs each job gets. `goodput` has by job, in the order of arrival, its goodput with 1, 2, ...
    GPUs.

    Every job gets one while there are any. Each further step gives to one job the GPUs that lower the sum of
    the inverse speed-ups most for a GPU. That is the optimum where goodput is concave.
    """
    given = {name: int(i < gpus) for i, name in enumerate(goodput)}
    left = gpus - sum(given.values())
    equal = _equal_shares(goodput, gpus)
    steps: list[tuple[float, int, str, int]] = []

    def push(rank: int, name: str) -> None:
        by_count = tuple(goodput[name])
        more, gain = _step(by_count, given[name], min(left, len(by_count) - given[name]))
        if more:
            heappush(steps, (-gain * equal[name], rank, name, more))

    for rank, name in enumerate(goodput):
        if given[name]:
            push(rank, name)
    while steps and left > 0:
        _, rank, name, more = heappop(steps)
        if more <= left:
            given[name] += more
            left -= more
        # A step of more GPUs than are left becomes a smaller one.
        push(rank, name)
    return given


@lru_cache(maxsize=65_536)
def _step(goodput: tuple[float, ...], has: int, most: int) -> tuple[int, float]:
    """The step of at most `most` GPUs that lowers the inverse goodput most for a GPU, and by how much; 0 if
    none lowers it."""
    best, gain = 0, 0.0
    for more in range(1, most + 1):
        gained = (1 / goodput[has - 1] - 1 / goodput[has + more - 1]) / more
        if gained > gain * (1 + 1e-9):
            best, gain = more, gained
    return best, gain


def _equal_shares(goodput: Mapping[str, Sequence[float]], gpus: int) -> dict[str, float]:
    """The goodput of each job with an equal share of the GPUs."""
    share = max(1, gpus // max(1, len(goodput)))
    return {name: by_count[min(share, len(by_count)) - 1] for name, by_count in goodput.items()}


def _speedup(
    given: Mapping[str, int], goodput: Mapping[str, Sequence[float]], equal: Mapping[str, float]
) -> float:
    """The harmonic mean of the speed-ups; 0 if a job has no GPU."""
    if not given or not all(given.values()):
        return 0.0
    return len(given) / sum(equal[name] / goodput[name][gpus - 1] for name, gpus in given.items())
