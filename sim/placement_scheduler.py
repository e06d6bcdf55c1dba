# SPDX-License-Identifier: Apache-2.0
"""The schedulers of `controller.placement` (Dally, Tiresias, ...) on the simulator's servers and links."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.placement.candidate_rounds import candidate_rounds
from controller.placement.latency import table_row
from controller.placement.machines import Allocation, FreePool, Machines
from controller.placement.offers import ElasticPolicy, OfferPolicy, PlacedJob, offer_round
from controller.placement.schedulers.pollux import MOST_TIMES, progress
from controller.planner.placement import Compatibility, most_compatible
from sim.cluster import Cluster, FreeGpus, JobRequest, Placement
from sim.placed_job import placed_request
from sim.units import NEVER, PS_PER_S

if TYPE_CHECKING:
    from sim.scheduler import WaitingJob
    from sim.state import RunningJob

Judge = Callable[[Mapping[str, tuple[JobRequest, Placement]], Collection[str]], Compatibility]
"""How well these jobs on these GPUs can share links in time with the jobs that run, without those named."""


class OfferScheduler:
    """Makes the offers of `policy`: at the end of each lease to all jobs, in between to the waiting ones.

    A leaf is a rack. The leases of all jobs end together. A job that moves loses its GPUs and begins again on
    the others at the same moment; the iteration that was interrupted is run again. A job with a fixed
    placement begins at once. With more than one of `candidates`, CASSINI chooses among so many outcomes of
    each round (thesis, Algorithm 2); `seed` draws them. If the policy gives a job another number of GPUs than
    it asked for, the job begins with other iterations: as many as its remaining work takes with them.
    """

    preempts = False

    def __init__(self, policy: OfferPolicy, lease_s: float, *, candidates: int = 1, seed: int = 1) -> None:
        self._policy = policy
        self._candidates = candidates
        self._seed = seed
        self._lease = round(lease_s * PS_PER_S)
        self._pool: FreePool | None = None
        self._servers: tuple[str, ...] = ()
        self._jobs: dict[str, PlacedJob] = {}
        self._granted: dict[str, Allocation] = {}
        self._asked: dict[str, JobRequest] = {}
        self._counts: dict[str, int] = {}
        self._booked = 0
        self._leases = 0

    def next_look(self, now: int) -> int:
        """The end of the present leases."""
        return (now // self._lease + 1) * self._lease if self._policy.leases else NEVER

    def reads_progress(self, now: int) -> bool:
        """Where running jobs may lose or change their GPUs: the order depends on what they have done, and a
        job that ends at this moment must stay."""
        return self._lease_ends(now) if self._policy.leases else any(map(self._could_be_closer, self._held()))

    def decide(
        self,
        now: int,
        waiting: Sequence[WaitingJob],
        running: Mapping[str, RunningJob],
        served: Mapping[str, float],
        free: FreeGpus,
        judge: Judge,
    ) -> tuple[list[tuple[WaitingJob, Placement]], list[str]]:
        """One round of offers. If jobs are stopped, those that get their GPUs begin at the next call."""
        stopped: list[str] = []
        if not self._granted:
            stopped = self._round(now, waiting, running, free.cluster, judge)
        if stopped:
            return [], stopped
        begun: list[tuple[WaitingJob, Placement]] = []
        for job in waiting:
            if job.request.ranks is not None:
                begun.append((job, ()))
            elif job.request.name in self._granted:
                found = self._granted[job.request.name]
                resized = replace(job, request=self._resized(job.request.name, found))
                begun.append((resized, free.take(self._placement(found))))
        self._granted = {}
        return begun, stopped

    def _lease_ends(self, now: int) -> bool:
        return now // self._lease > self._leases

    def _held(self) -> list[PlacedJob]:
        return [job for job in self._jobs.values() if job.allocation is not None]

    def _could_be_closer(self, job: PlacedJob) -> bool:
        assert self._pool is not None  # Only a round gives a job its GPUs.
        return self._pool.machines.could_be_closer(job.allocation or (), job.demand)

    def _round(
        self,
        now: int,
        waiting: Sequence[WaitingJob],
        running: Mapping[str, RunningJob],
        cluster: Cluster,
        judge: Judge,
    ) -> list[str]:
        """Grant GPUs to jobs. Returns the running jobs that lose theirs."""
        if self._pool is None:
            self._servers = tuple(server.name for server in cluster.servers)
            leaves = {leaf: i for i, leaf in enumerate(dict.fromkeys(s.leaf for s in cluster.servers))}
            self._pool = FreePool(
                Machines(
                    tuple(s.gpus for s in cluster.servers), tuple(leaves[s.leaf] for s in cluster.servers)
                )
            )
        lease_end = self._lease_ends(now)
        self._leases = now // self._lease
        self._book(now, running)
        at = now / PS_PER_S
        queued = [
            self._state(cluster, job.request, job.since / PS_PER_S)
            for job in waiting
            if job.request.ranks is None
        ]
        held = [self._jobs[name] for name, job in running.items() if job.request.ranks is None]
        offered = [
            job
            for job in held
            # The end of a job is seen after this round if both are at the same moment.
            if job.done < job.ideal and (lease_end if self._policy.leases else self._could_be_closer(job))
        ]
        changes = offer_round(self._policy, at, queued, offered, self._pool)
        if self._candidates > 1:
            self._choose(now, changes, offered, judge)
        stopped = []
        for name, allocation in changes.items():
            job = self._jobs[name]
            if job.allocation is not None:
                stopped.append(name)
            job.allocation = allocation
            if allocation is not None:
                self._granted[name] = allocation
        return stopped

    def _choose(
        self,
        now: int,
        changes: dict[str, Allocation | None],
        offered: Sequence[PlacedJob],
        judge: Judge,
    ) -> None:
        """Let CASSINI choose which GPUs the jobs get, in `changes` and in the pool."""
        assert self._pool is not None  # There was a round.
        granted = {name: found for name, found in changes.items() if found is not None}
        # Without leases a job keeps its GPUs, or moves where the scheduler says.
        open_jobs = offered if self._policy.leases else ()
        kept = {j.name: j.allocation for j in open_jobs if j.allocation and j.name not in changes}
        rounds = candidate_rounds(
            granted, kept, self._pool, most=self._candidates, seed=f"{self._seed}/{now}"
        )
        if len(rounds) == 1:
            return
        stopped = [name for name, found in changes.items() if found is None]
        judged = [
            judge({n: (self._resized(n, a), self._placement(a)) for n, a in outcome.items()}, stopped)
            for outcome in rounds
        ]
        chosen = rounds[most_compatible(judged)]
        for allocation in rounds[0].values():
            self._pool.give_back(allocation)
        for name, allocation in chosen.items():
            self._pool.take(allocation)
            changes[name] = allocation
            if allocation == self._jobs[name].allocation:
                del changes[name]

    def _resized(self, name: str, allocation: Allocation) -> JobRequest:
        """The request of a job for the number of GPUs of `allocation`. All iterations that were completed
        count, and those to come are as many as the rest of the work takes."""
        asked, gpus = self._asked[name], sum(count for _, count in allocation)
        if not isinstance(self._policy, ElasticPolicy):
            return asked
        job = self._jobs[name]
        left = (1 - job.done / job.ideal) * asked.iterations * progress(asked.gpus) / progress(gpus)
        return replace(
            asked, gpus=gpus, iterations=self._counts.get(name, 0) + max(1, math.ceil(left - 1e-9))
        )

    def _goodput(self, cluster: Cluster, request: JobRequest) -> tuple[float, ...]:
        """Alone on the closest GPUs of the empty cluster, by their number."""
        assert self._pool is not None  # A round creates it.
        empty, found = FreePool(self._pool.machines), []
        for gpus in range(1, min(cluster.gpus, MOST_TIMES * request.gpus) + 1):
            placement = self._placement(empty.closest(gpus) or ())
            alone = placed_request(cluster, replace(request, gpus=gpus), placement)
            found.append(progress(gpus) / alone.iteration_ps)
        return tuple(found)

    def _placement(self, allocation: Allocation) -> Placement:
        return tuple((self._servers[server], gpus) for server, gpus in allocation)

    def _state(self, cluster: Cluster, request: JobRequest, since: float) -> PlacedJob:
        """The state of a waiting job."""
        if request.name not in self._jobs:
            row = table_row(request.model)
            self._jobs[request.name] = PlacedJob(
                request.name,
                request.gpus,
                request.iterations * request.shape.compute_ns / 1e9,
                skewed=row is not None and row.skewed,
                arrived=request.arrival_ns / 1e9,
            )
            self._asked[request.name] = request
            if isinstance(self._policy, ElasticPolicy):
                self._jobs[request.name].goodput = self._goodput(cluster, request)
        job = self._jobs[request.name]
        job.since = since
        return job

    def _book(self, now: int, running: Mapping[str, RunningJob]) -> None:
        """Book the progress of the running jobs, and give the GPUs of those that have ended back."""
        elapsed, self._booked = (now - self._booked) / PS_PER_S, now
        for name, job in list(self._jobs.items()):
            if job.allocation is None:
                continue
            if name not in running:
                assert self._pool is not None  # Only a round gives a job its GPUs.
                self._pool.give_back(job.allocation)
                del self._jobs[name], self._asked[name]
                self._counts.pop(name, None)
                continue
            job.ran += elapsed
            job.served += elapsed * job.demand
            request = running[name].request
            job.done = self._done(job, request, running[name].run.count)
            job.slowdown = job.ran / job.done if job.done else 1.0

    def _done(self, job: PlacedJob, request: JobRequest, count: int) -> float:
        """The part of the ideal time that is complete with `count` iterations, those of `request` all."""
        before = self._counts.get(job.name, 0)
        if not isinstance(self._policy, ElasticPolicy):
            return job.ideal * count / request.iterations
        self._counts[job.name] = count
        if count >= request.iterations:
            return job.ideal
        return job.done + (job.ideal - job.done) * (count - before) / (request.iterations - before)
