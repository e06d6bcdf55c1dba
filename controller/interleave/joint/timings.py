# SPDX-License-Identifier: Apache-2.0
"""The timings of jobs on given paths: as CASSINI published it, or only for the jobs that gain."""

from __future__ import annotations

from collections.abc import Sequence

from controller.interleave.cassini import DiscardedError, unique_shifts
from controller.interleave.circle import SharedLink
from controller.interleave.joint.instance import UNSCHEDULED, Instance, JobTiming, JointJob
from controller.interleave.joint.sharing_groups import demands_on
from controller.interleave.link_sharing import SLACK
from controller.interleave.slot_schedule import RotationCache, schedule_slots
from controller.model import Phase

_MOST_LAPS = 100
"""How many times longer the longest iteration of jobs with CASSINI's timings may be than the shortest.
Chosen: with more, the search of its shifts takes seconds, and no shifts separate such jobs."""


def rotation_cache_of(instance: Instance, *, fast: bool = False, seed: int = 0) -> RotationCache:
    """An empty cache of rotations for the jobs of an instance. `fast` uses the compiled kernels."""
    periods = {p.name: p.alone_ns for p in instance.jobs if p.steps}
    return RotationCache(periods, SLACK, seed, fast=fast)


def shared_links(
    instance: Instance, path_choice: Sequence[int], jobs: Sequence[int] | None = None, *, guard: float = 0.0
) -> list[SharedLink]:
    """The full links that at least two of `jobs` (None: all) use, with the demand of each job.

    No job asks for more than the capacity of a link. Each phase is made longer by `guard` times the compute
    that follows it, and by no more than that whole compute.
    """
    wanted = demands_on(instance, path_choice)
    found = []
    for link in sorted(wanted.full):
        users = {j: rate for j, rate in wanted.by_link[link].items() if jobs is None or j in jobs}
        if len(users) < 2:
            continue
        capacity = instance.capacity_bps[link]
        demands = {}
        for j in sorted(users):
            job = instance.jobs[j]
            peak = max(s.rate_bps for s in job.steps)
            flows = users[j] / peak
            demands[job.name] = phases_of(job, flows, capacity, guard)
        found.append(SharedLink((str(link), ""), capacity, demands))
    return found


def phases_of(job: JointJob, flows: float, capacity: int, guard: float = 0.0) -> tuple[Phase, ...]:
    """The Up phases of `flows` flows of a job on a link of `capacity` bit/s; `guard` as in `shared_links`."""
    phases = []
    at = 0
    for step in job.steps:
        if step.up_ns:
            rate = min(round(flows * step.rate_bps), capacity)
            longer = round(min(1.0, guard) * step.compute_ns)
            phases.append(Phase(at, at + step.up_ns + longer, rate))
        at += step.up_ns + step.compute_ns
    return tuple(phases)


def cassini_timings(
    instance: Instance, path_choice: Sequence[int], *, seed: int = 0
) -> tuple[JobTiming, ...] | None:
    """CASSINI's timings (thesis, 4.3 and 4.4): every job of a full link gets its quantised period and unique
    shift.

    Scores do not matter. None if the affinity graph has a loop, because CASSINI then discards the placement,
    or if the longest iteration is more than _MOST_LAPS times the shortest.
    """
    links = shared_links(instance, path_choice)
    meeting = {job for link in links for job in link.demands}
    lengths = [p.alone_ns for p in instance.jobs if p.name in meeting]
    if not links or max(lengths) > _MOST_LAPS * min(lengths):
        return None
    try:
        found = unique_shifts(links, {p.name: p.alone_ns for p in instance.jobs}, seed=seed)
    except DiscardedError:
        return None
    return tuple(
        (found.periods[p.name], found.shifts[p.name]) if p.name in found.periods else UNSCHEDULED
        for p in instance.jobs
    )


def scheduled_timings(
    instance: Instance,
    path_choice: Sequence[int],
    ranking: Sequence[int],
    *,
    jobs: Sequence[int] | None = None,
    cache: RotationCache | None = None,
    guard: float = 0.0,
) -> tuple[JobTiming, ...]:
    """Timings for those of `jobs` that gain by sharing links in time; the others are not scheduled. See
    `schedule_slots`.

    `ranking` lists the jobs by importance; the last one loses its slot first. `guard` as in `shared_links`
    leaves gaps between the jobs.
    """
    links = shared_links(instance, path_choice, jobs, guard=guard)
    if not links:
        return (UNSCHEDULED,) * len(instance.jobs)
    cache = cache or rotation_cache_of(instance)
    names = [instance.jobs[j].name for j in ranking]
    found = schedule_slots(links, cache.periods, names, slack=SLACK, cache=cache).slots
    return tuple(
        (found[p.name].period_ns, found[p.name].shift_ns) if p.name in found else UNSCHEDULED
        for p in instance.jobs
    )
