# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a job gets in CRUX's trace simulation: without a job scheduler, and with one (Figure 25)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from controller.placement.machines import Allocation, FreePool, Machines
from controller.placement.offers import OfferPolicy, PlacedJob
from controller.placement.schedulers import scheduler_named
from polyrhythm.paper.crux_trace_fabrics import GPUS_A_HOST
from sim.cluster import Cluster, JobRequest, Placement

PIECE = 4
"""Without a job scheduler, and with Muri, a job of several hosts gets GPUs in pieces of half a host."""
_HOST_BYTES_A_S = 50e9


class Places(Protocol):
    """Gives GPUs to jobs and takes them back."""

    def place(self, request: JobRequest) -> Placement | None:
        """The GPUs of a job, with its hosts in the order of the fabric; None: it waits."""

    def give_back(self, request: JobRequest, placement: Placement) -> None:
        """Free the GPUs of a job."""


class Scattered:
    """No job scheduler, as in the paper's Figure 23.

    A job of one host or less gets the fullest host with room. A larger job gets free halves of hosts at
    random, so two jobs may share a host and its NICs. The pair of jobs in section 2.2 of the paper does so,
    too: one job has four GPUs of a host.
    """

    def __init__(self, on: Cluster, seed: int) -> None:
        self._random = Random(f"{seed}/places")
        self._number = {s.name: i for i, s in enumerate(on.servers)}
        self._free = {s.name: s.gpus for s in on.servers}

    def place(self, request: JobRequest) -> Placement | None:
        """The fullest host with room, or free halves of hosts."""
        gpus = request.gpus
        if gpus <= GPUS_A_HOST:
            room = [s for s, n in self._free.items() if n >= gpus]
            if not room:
                return None
            taken = {min(room, key=lambda s: (self._free[s], self._number[s])): gpus}
        else:
            pieces = [s for s, n in self._free.items() for _ in range(n // PIECE)]
            needed = math.ceil(gpus / PIECE)
            if len(pieces) < needed:
                return None
            taken, left = {}, gpus
            for server in self._chosen(request, pieces, needed):
                taken[server] = taken.get(server, 0) + min(PIECE, left)
                left -= min(PIECE, left)
        placement = tuple((s, taken[s]) for s in sorted(taken, key=self._number.__getitem__))
        for server, held in placement:
            self._free[server] -= held
        return placement

    def give_back(self, request: JobRequest, placement: Placement) -> None:
        """Free the GPUs of a job."""
        for server, gpus in placement:
            self._free[server] += gpus

    def _chosen(self, request: JobRequest, pieces: list[str], needed: int) -> list[str]:
        return self._random.sample(pieces, needed)


class MuriLike(Scattered):
    """Jobs share the NICs of a host if one sends while the other computes.

    CRUX says that Muri "schedules jobs by reducing idle links". Muri interleaves jobs with complementary use
    of resources (SIGCOMM 2022). Our reading, for the network alone: a job's pieces go to the hosts that its
    communication and that of the job in the other half fill most without exceeding their rate, then to free
    hosts, then to those that they exceed least.
    """

    def __init__(self, on: Cluster, seed: int) -> None:
        super().__init__(on, seed)
        self._duty = {s.name: 0.0 for s in on.servers}

    def place(self, request: JobRequest) -> Placement | None:
        """The hosts with the most complementary jobs."""
        placement = super().place(request)
        self._add(placement or (), duty(request))
        return placement

    def give_back(self, request: JobRequest, placement: Placement) -> None:
        """Free the GPUs of a job."""
        super().give_back(request, placement)
        self._add(placement, -duty(request))

    def _add(self, placement: Placement, part: float) -> None:
        if len(placement) > 1:
            for server, _ in placement:
                self._duty[server] += part

    def _chosen(self, request: JobRequest, pieces: list[str], needed: int) -> list[str]:
        own = duty(request)

        def preference(server: str) -> tuple[int, float]:
            both = self._duty[server] + own
            if self._duty[server] <= 0:
                return 1, 0.0
            return (0, -both) if both <= 1 else (2, both)

        self._random.shuffle(pieces)
        return sorted(pieces, key=preference)[:needed]


def duty(request: JobRequest) -> float:
    """The part of an iteration alone in which a job of several hosts sends, with 400 Gbit/s a host."""
    sends_s = sum(2 * p.size / _HOST_BYTES_A_S for p in request.shape.phases)
    before_s = sum(p.before_ns for p in request.shape.phases) / 1e9
    return sends_s / max(request.shape.compute_ns / 1e9, before_s + sends_s, 1e-9)


class Offered:
    """The offers of a scheduler of `controller.placement`. Jobs are neither preempted nor moved."""

    def __init__(self, on: Cluster, policy: OfferPolicy) -> None:
        self._policy = policy
        self._names = [s.name for s in on.servers]
        self._number = {name: i for i, name in enumerate(self._names)}
        leaves = {leaf: i for i, leaf in enumerate(dict.fromkeys(s.leaf for s in on.servers))}
        self._pool = FreePool(
            Machines(tuple(s.gpus for s in on.servers), tuple(leaves[s.leaf] for s in on.servers))
        )

    def place(self, request: JobRequest) -> Placement | None:
        """What the scheduler offers and the job accepts."""
        ideal = request.iterations * request.shape.compute_ns / 1e9
        arrived = request.arrival_ns / 1e9
        job = PlacedJob(request.name, request.gpus, ideal, arrived=arrived, since=arrived)
        found = self._policy.offer(arrived, job, self._pool)
        if found is None:
            return None
        self._pool.take(found)
        return tuple((self._names[machine], gpus) for machine, gpus in found)

    def give_back(self, request: JobRequest, placement: Placement) -> None:
        """Free the GPUs of a job."""
        allocation: Allocation = tuple((self._number[server], gpus) for server, gpus in placement)
        self._pool.give_back(allocation)


SCHEDULERS: Mapping[str, Callable[[Cluster, int], Places]] = {
    "none": Scattered,
    "muri": MuriLike,
    "hived": lambda on, seed: Offered(on, scheduler_named("hived")),
}
"""The job schedulers of Figure 25, by name. A rule of ours stands for each of the last two."""
