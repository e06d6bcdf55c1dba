# SPDX-License-Identifier: Apache-2.0
"""The planner's own choice of paths on the small cases of CRUX, section 4.4, where a job has one path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.routing.fabric import Candidates, Floats, Ints, LeafDemand
from controller.routing.least_congested import OwnedDemand, least_congested


@dataclass(frozen=True)
class RingFabric:
    """A fabric (`controller.routing.fabric.Fabric`) whose flows are whole jobs.

    `tors[j]` are the ToRs that the ring of job j passes, none for a job inside one ToR. A choice is the
    aggregation switch of all its links. An uplink is as busy as the downlink beside it, so one link of
    `rate_bps` stands for both. In a demand, `src` and `dst` are the number of the job.
    """

    tors: Sequence[tuple[int, ...]]
    aggregations: int
    rate_bps: float

    @property
    def leaves(self) -> tuple[str, ...]:
        """The jobs."""
        return tuple(f"job{j}" for j in range(len(self.tors)))

    @cached_property
    def capacity(self) -> Floats:
        """The links by (ToR, aggregation switch)."""
        most = max((t for mine in self.tors for t in mine), default=0)
        return np.full((most + 1) * self.aggregations, self.rate_bps)

    def links(self, demand: LeafDemand, choice: Ints) -> Ints:
        """The links of each job."""
        widest = max((len(mine) for mine in self.tors), default=0)
        rows = np.full((len(demand), max(1, widest)), -1, dtype=np.int32)
        for row, job, aggregation in zip(rows, demand.src, choice, strict=True):
            if aggregation >= 0:
                mine = self.tors[job]
                row[: len(mine)] = [t * self.aggregations + aggregation for t in mine]
        return rows

    def nodes(self, src: int, dst: int, choice: int) -> tuple[str, ...]:
        """The switches that the ring of job `src` passes."""
        return (*(f"tor{t}" for t in self.tors[src]), f"agg{choice}")

    def candidates(self, demand: LeafDemand) -> Candidates:
        """Every aggregation switch, for each job of the demand."""
        jobs, pair = np.unique(demand.src, return_inverse=True)
        choice = np.tile(np.arange(self.aggregations, dtype=np.int32), len(jobs))
        of_job = np.repeat(jobs, self.aggregations).astype(np.int32)
        first = np.arange(len(jobs) + 1, dtype=np.int32) * self.aggregations
        return Candidates(
            pair.astype(np.int32), first, self.links(LeafDemand(of_job, of_job), choice), choice
        )

    def bound(self, demand: LeafDemand) -> int:
        """Some link has at least one job."""
        return min(1, len(demand))


def least_congested_paths(fabric: RingFabric, order: Sequence[int], weight_bps: Floats) -> tuple[int, ...]:
    """The aggregation switch of each job as `controller.routing.routings.LeastCongested` chooses it.

    The jobs choose in this order. `weight_bps` (jobs,) is the load of each. Jobs inside a ToR have choice 0.
    """
    far = np.array([j for j in order if fabric.tors[j]], dtype=np.int32)
    chosen = np.zeros(len(fabric.tors), dtype=np.int32)
    if len(far):
        flows = OwnedDemand(LeafDemand(far, far, weight_bps[far]), far, np.full(len(far), -1, dtype=np.int32))
        chosen[far] = least_congested(fabric, flows, plain=True)
    return tuple(int(a) for a in chosen)
