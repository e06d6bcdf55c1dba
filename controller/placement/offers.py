# SPDX-License-Identifier: Apache-2.0
"""Offers of free GPUs to jobs: the wait and run queues, and one round of offers (Dally, IV-B)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller.placement.machines import Allocation, FreePool, NetworkTier


@dataclass(slots=True)
class PlacedJob:
    """A job in the wait queue (`allocation` None) or in the run queue, and its progress. All times in s.

    `ideal` is its running time without communication, `done` the part of it that is complete. `ran` is the
    time in the run queue, `served` the GPU seconds there. A waiting job waits since `since`; a running job's
    GPUs multiply its compute time by `slowdown`. `skewed`: Tiresias' measure of the model. `goodput` is the
    job's goodput, in any unit, with 1, 2, ... GPUs that are as close as they can be; it is needed only where
    a scheduler changes `demand`. Empty: it must not. `stages` are the seconds that an iteration needs of each
    resource (`controller.placement.schedulers.muri.RESOURCES`), on GPUs that are as close as they can be;
    empty: unknown. `partners` are the jobs with which it shares its GPUs.
    """

    name: str
    demand: int
    ideal: float
    skewed: bool = False
    arrived: float = 0.0
    done: float = 0.0
    ran: float = 0.0
    served: float = 0.0
    since: float = 0.0
    slowdown: float = 1.0
    allocation: Allocation | None = None
    goodput: tuple[float, ...] = ()
    stages: tuple[float, ...] = ()
    partners: tuple[str, ...] = ()


class OfferPolicy(Protocol):
    """A scheduler of placements: who is offered GPUs first, and what a job accepts.

    `leases`: at the end of a job's lease its GPUs are offered to all waiting jobs, so a job that comes first
    takes them from it. Otherwise a job keeps its GPUs to its end.
    """

    leases: bool

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """All of these jobs, the one that gets the first offer first."""

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The GPUs that a waiting job accepts; None: it waits on."""

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """GPUs to which a running job moves, whose own GPUs are in the pool. None: it stays."""


@runtime_checkable
class ElasticPolicy(OfferPolicy, Protocol):
    """A scheduler that also decides how many GPUs a job gets."""

    def resize(self, now: float, jobs: Sequence[PlacedJob], free: int) -> None:
        """Set the `demand` of the jobs that have a `goodput`; 0: no GPUs. `free` GPUs are to be given, those
        of the running ones among the jobs included."""


@runtime_checkable
class SharingPolicy(OfferPolicy, Protocol):
    """A scheduler that lets several jobs share the same GPUs."""

    def share(self, now: float, jobs: Sequence[PlacedJob], free: int) -> list[tuple[PlacedJob, ...]]:
        """The jobs in groups that share GPUs, each job in one; the jobs of a group ask for the same number,
        and the first asks for all. `free` is as in `resize`."""


def offer_round(
    policy: OfferPolicy,
    now: float,
    waiting: Iterable[PlacedJob],
    offered: Iterable[PlacedJob],
    pool: FreePool,
) -> dict[str, Allocation | None]:
    """Offer the free GPUs to the waiting jobs, and to those running jobs whose GPUs are `offered` again.

    With leases these are the jobs whose lease is over. Such a job keeps its GPUs unless a job before it took
    some of them, or it moves to better ones. Without leases they are the jobs that may move. Returns the jobs
    whose GPUs change, None for a job that loses them. The GPUs are taken from `pool` and given back to it;
    the jobs are left as they are, but for their demand and their partners, if the scheduler sets them.
    """
    running = list(offered)
    if policy.leases:
        for allocation in held(running):
            pool.give_back(allocation)
    jobs = [*waiting, *running]
    if isinstance(policy, ElasticPolicy):
        policy.resize(now, jobs, pool.total)
    groups: dict[str, tuple[PlacedJob, ...]] = {job.name: (job,) for job in jobs}
    if isinstance(policy, SharingPolicy):
        groups = {group[0].name: group for group in policy.share(now, jobs, pool.total)}
    changes: dict[str, Allocation | None] = {}
    for job in policy.order(now, [group[0] for group in groups.values()]):
        own = job.allocation
        if own is None:
            found = policy.offer(now, job, pool) if pool.total >= job.demand else None
        elif not policy.leases:
            pool.give_back(own)
            found = policy.better(now, job, pool) or own
        elif pool.has(own) and sum(gpus for _, gpus in own) == job.demand:
            found = policy.better(now, job, pool) or own
        else:
            found = policy.offer(now, job, pool)
        if found is not None:
            pool.take(found)
        for member in groups[job.name]:
            if isinstance(policy, SharingPolicy):
                others = (j.name for j in groups[job.name] if j is not member)
                member.partners = tuple(others) if found is not None else ()
            if found != member.allocation:
                changes[member.name] = found
    return changes


def held(jobs: Iterable[PlacedJob]) -> list[Allocation]:
    """The GPUs of these jobs, those of jobs that share them once."""
    found, seen = [], set[str]()
    for job in jobs:
        if job.allocation is not None and not seen.intersection(job.partners):
            found.append(job.allocation)
        seen.add(job.name)
    return found


def closer(job: PlacedJob, pool: FreePool) -> Allocation | None:
    """Free GPUs that are closer to one another than those of a running job, None if there are none."""
    if job.allocation is None:
        return None
    tier = pool.machines.tier(job.allocation)
    if tier <= pool.machines.closest(job.demand):
        return None
    return pool.closest(job.demand, worst=NetworkTier(tier - 1))
