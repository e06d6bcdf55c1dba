# SPDX-License-Identifier: Apache-2.0
"""Levels for given paths and timings: CRUX's order among the jobs that still overlap (CRUX, 4.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from controller.interleave.joint.instance import UNSCHEDULED, Instance, JobTiming
from controller.interleave.joint.sharing_groups import demands_on
from controller.priority.compress import compress
from controller.priority.crux import Contender, RankedJob, contention, rank


def traffic_seconds(instance: Instance, path_choice: Sequence[int]) -> list[float]:
    """t_j of every job in s: the time of its slowest link for one iteration, at least its own Up phases."""
    slowest = [p.up_ns / 1e9 for p in instance.jobs]
    for link, users in demands_on(instance, path_choice).by_link.items():
        for j, rate in users.items():
            if rate > instance.capacity_bps[link]:
                longer = rate / instance.capacity_bps[link] * instance.jobs[j].up_ns / 1e9
                slowest[j] = max(slowest[j], longer)
    return slowest


def ranked(instance: Instance, path_choice: Sequence[int]) -> tuple[RankedJob, ...]:
    """The jobs by CRUX's priority, highest first. W_j is the compute time of the GPUs: all GPUs count the
    same.
    """
    seconds = traffic_seconds(instance, path_choice)
    return rank(
        [
            Contender(
                name=p.name,
                work=p.weight * max(p.compute_ns, 1) / 1e9,
                compute_s=p.compute_ns / 1e9,
                traffic_s=seconds[j] if p.flows else 0.0,
                total_bytes=sum(
                    f.relative_size * s.rate_bps * s.up_ns / 8e9 for f in p.flows for s in p.steps
                ),
            )
            for j, p in enumerate(instance.jobs)
        ]
    )


def overlapping_pairs(
    instance: Instance, path_choice: Sequence[int], timings: Sequence[JobTiming]
) -> set[tuple[int, int]]:
    """The pairs of jobs that share a full link, without the pairs of two scheduled jobs."""
    wanted = demands_on(instance, path_choice)
    pairs: set[tuple[int, int]] = set()
    for link in wanted.full:
        pairs |= set(combinations(sorted(wanted.by_link[link]), 2))
    return {(a, b) for a, b in pairs if UNSCHEDULED in (timings[a], timings[b])}


def levels_for(
    instance: Instance, path_choice: Sequence[int], timings: Sequence[JobTiming], *, seed: int = 0
) -> tuple[int, ...]:
    """CRUX's level of each job, 0 the highest; 0 for jobs without traffic."""
    order = ranked(instance, path_choice)
    number = {p.name: j for j, p in enumerate(instance.jobs)}
    names = {
        (instance.jobs[a].name, instance.jobs[b].name)
        for a, b in overlapping_pairs(instance, path_choice, timings)
    }
    found = compress([r.name for r in order], contention(order, sorted(names)), instance.levels, seed=seed)
    result = [0] * len(instance.jobs)
    for r in order:
        if r.intensity is not None:
            result[number[r.name]] = found.level[r.name]
    return tuple(result)


class LevelsFor:
    """`levels_for` of one instance, which computes its answer for the same paths and timings once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known: dict[tuple[tuple[int, ...], tuple[JobTiming, ...]], tuple[int, ...]] = {}

    def __call__(self, path_choice: tuple[int, ...], timings: tuple[JobTiming, ...]) -> tuple[int, ...]:
        """CRUX's level of each job, 0 the highest; 0 for jobs without traffic."""
        key = path_choice, timings
        if key not in self._known:
            self._known[key] = levels_for(self._instance, path_choice, timings)
        return self._known[key]
