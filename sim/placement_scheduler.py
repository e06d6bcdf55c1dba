# SPDX-License-Identifier: Apache-2.0
"""The schedulers of `controller.placement` (Dally, Tiresias, ...) on the simulator's servers and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controller.placement.latency import table_row
from controller.placement.machines import Allocation, FreePool, Machines
from controller.placement.offers import OfferPolicy, PlacedJob, offer_round
from sim.cluster import Cluster, FreeGpus, JobRequest, Placement
from sim.units import NEVER, PS_PER_S

if TYPE_CHECKING:
    from sim.scheduler import WaitingJob
    from sim.state import RunningJob


class OfferScheduler:
    """Makes the offers of `policy`: at the end of each lease to all jobs, in between to the waiting ones.

    A leaf is a rack. The leases of all jobs end together. A job that moves loses its GPUs and begins again on
    the others at the same moment; the iteration that was interrupted is run again. A job with a fixed
    placement begins at once.
    """

    preempts = False

    def __init__(self, policy: OfferPolicy, lease_s: float) -> None:
        self._policy = policy
        self._lease = round(lease_s * PS_PER_S)
        self._pool: FreePool | None = None
        self._servers: tuple[str, ...] = ()
        self._jobs: dict[str, PlacedJob] = {}
        self._granted: dict[str, Allocation] = {}
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
    ) -> tuple[list[tuple[WaitingJob, Placement]], list[str]]:
        """One round of offers. If jobs are stopped, those that get their GPUs begin at the next call."""
        stopped: list[str] = []
        if not self._granted:
            stopped = self._round(now, waiting, running, free.cluster)
        if stopped:
            return [], stopped
        begun: list[tuple[WaitingJob, Placement]] = []
        for job in waiting:
            if job.request.ranks is not None:
                begun.append((job, ()))
            elif job.request.name in self._granted:
                found = self._granted[job.request.name]
                placement = tuple((self._servers[server], gpus) for server, gpus in found)
                begun.append((job, free.take(placement)))
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
            self._state(job.request, job.since / PS_PER_S) for job in waiting if job.request.ranks is None
        ]
        held = [self._jobs[name] for name, job in running.items() if job.request.ranks is None]
        offered = [
            job
            for job in held
            # The end of a job is seen after this round if both are at the same moment.
            if job.done < job.ideal and (lease_end if self._policy.leases else self._could_be_closer(job))
        ]
        changes = offer_round(self._policy, at, queued, offered, self._pool)
        stopped = []
        for name, allocation in changes.items():
            job = self._jobs[name]
            if job.allocation is not None:
                stopped.append(name)
            job.allocation = allocation
            if allocation is not None:
                self._granted[name] = allocation
        return stopped

    def _state(self, request: JobRequest, since: float) -> PlacedJob:
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
                del self._jobs[name]
                continue
            job.ran += elapsed
            job.served += elapsed * job.demand
            request = running[name].request
            job.done = job.ideal * running[name].run.count / request.iterations
            job.slowdown = job.ran / job.done if job.done else 1.0
