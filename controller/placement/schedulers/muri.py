# SPDX-License-Identifier: Apache-2.0
"""Muri-like: jobs that need different resources in turn share one set of GPUs.

Rule: the iteration of a job has a stage for each resource: storage, CPU, GPU, network. While one job of a
group computes, another sends, and so on: in each step every job of the group is at another resource, and all
wait for the slowest. So an iteration of each takes the sum of the slowest stages, `group_period`. Where jobs
ask for more GPUs than there are, they are grouped by `grouped`: pairs by a maximum weight matching, then
pairs of pairs. Only jobs with the same number of GPUs share, and only if they are done sooner than one after
another. Groups come in the order of the least GPU time that a member has received, and are formed anew at the
end of each lease.

The sources say: jobs on the same GPUs whose resources take turns, grouped by a Blossom-based scheduler
(thesis, 2.4.2), without packing across groups (Muri's own statement, there). Our reading: the weight of a
group is the time that sharing saves over its members one after another; 2D-LAS, as Muri has it
where lengths are unknown; jobs of a group are in step, iteration by iteration; jobs with room for themselves
share with nobody; MATCHED jobs are matched at a time, in their order. No trace has storage and CPU stages, so
with their jobs groups are pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, permutations

from controller.placement.machines import Allocation, FreePool
from controller.placement.offers import PlacedJob, closer

RESOURCES = ("storage", "cpu", "gpu", "network")
"""The stages of an iteration, in their order."""

MATCHED = 32
"""So many jobs of a size are matched at a time. Chosen: the cost of a matching grows with its cube."""

Stages = tuple[float, ...]
"""The seconds that an iteration needs of each of RESOURCES."""


def group_period(group: Sequence[Stages]) -> float:
    """The time of an iteration of jobs that share GPUs, in s. In each step every job is at another resource;
    the order of the jobs is the best one. `group` has as many jobs as there are resources at most."""
    used = [r for r in range(len(group[0])) if any(job[r] for job in group)]
    # A resource that nobody needs is no step; a job that has none to itself waits through one.
    steps = [[job[r] for r in used] + [0.0] * (len(group) - len(used)) for job in group]
    count = len(steps[0])
    orders = ((0, *order) for order in permutations(range(1, count), len(group) - 1))
    return min(
        sum(
            max(job[(step + at) % count] for job, at in zip(steps, order, strict=True))
            for step in range(count)
        )
        for order in orders
    )


def _saved_s(group: Sequence[Stages]) -> float:
    """The seconds that one iteration of each job takes less on shared GPUs than one after another; not above
    0 where sharing does not pay."""
    return sum(map(sum, group)) - group_period(group)


@lru_cache(maxsize=4096)
def grouped(stages: tuple[Stages, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of jobs that share GPUs, every job in one, those that save nothing alone. `stages` are of jobs
    with the same number of GPUs; the groups hold their places."""
    import networkx as nx

    groups: list[tuple[int, ...]] = [(i,) for i in range(len(stages))]
    size = 1
    while size < len(RESOURCES):
        graph = nx.Graph()
        for a, b in combinations([group for group in groups if len(group) == size], 2):
            alone = [_saved_s([stages[i] for i in group]) for group in (a, b)]
            gain = _saved_s([stages[i] for i in (*a, *b)])
            # A group of four must save more than its pairs.
            if gain > sum(alone) + 1e-12:
                graph.add_edge(a, b, weight=gain)
        for a, b in sorted(nx.max_weight_matching(graph)):
            groups = [group for group in groups if group not in (a, b)]
            groups.append((*min(a, b), *max(a, b)))
        size *= 2
    return tuple(sorted(groups))


class Muri:
    """Groups of jobs on shared GPUs, the least served first."""

    leases = True

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """The least attained GPU time first."""
        return sorted(jobs, key=lambda j: (j.served, j.arrived, j.name))

    def share(self, now: float, jobs: Sequence[PlacedJob], free: int) -> list[tuple[PlacedJob, ...]]:
        """The groups, each with the job first whose GPUs it keeps, or that asks for GPUs. All jobs are alone
        if they fit the `free` GPUs so, and those whose `stages` are unknown always."""
        ordered = self.order(now, jobs)
        if sum(job.demand for job in ordered) <= free:
            return [(job,) for job in ordered]
        found: list[tuple[PlacedJob, ...]] = [(job,) for job in ordered if not job.stages]
        by_demand: dict[int, list[PlacedJob]] = {}
        for job in ordered:
            if job.stages:
                by_demand.setdefault(job.demand, []).append(job)
        for alike in by_demand.values():
            for first in range(0, len(alike), MATCHED):
                # Sorted, because the same stages come back in another order.
                some = sorted(alike[first : first + MATCHED], key=lambda j: j.stages)
                for places in grouped(tuple(job.stages for job in some)):
                    members = sorted((some[i] for i in places), key=ordered.index)
                    found.append(tuple(sorted(members, key=lambda j: j.allocation is None)))
        return found

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The closest free GPUs."""
        return pool.closest(job.demand)

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """GPUs of a closer tier."""
        return closer(job, pool)
