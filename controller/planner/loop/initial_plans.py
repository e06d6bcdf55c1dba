# SPDX-License-Identifier: Apache-2.0
"""The plans that the search starts from: every mechanism alone on each set of paths, and combinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from controller.interleave.joint.instance import (
    UNSCHEDULED,
    Choice,
    Instance,
    JobTiming,
    mltcp_capable_jobs,
    plain,
)
from controller.interleave.joint.longer_periods import longer_period_timings, overlapping_timings
from controller.interleave.joint.timings import cassini_timings, scheduled_timings
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.levels import levels_for, ranked

PathChoice = tuple[int, ...]
GUARD_JITTERS = 2.0
"""The gap after each Up phase of scheduled jobs, in multiples of the jitter of the compute after it. Chosen:
a schedule without gaps fails sooner or later, because a job that is late delays the next one."""

_MOST_FIRST = 4
"""Up to this number of jobs are tried together above all others. Chosen: bounds the work."""


def jobs_by_rank(instance: Instance, path_choice: Sequence[int]) -> list[int]:
    """The jobs by CRUX's priority, highest first."""
    number = {p.name: j for j, p in enumerate(instance.jobs)}
    return [number[r.name] for r in ranked(instance, path_choice)]


def single_mechanism_plans(
    instance: Instance,
    paths: Mapping[str, PathChoice],
    *,
    mltcp: bool,
    cache: RotationCache | None = None,
    seed: int = 0,
) -> Iterator[tuple[str, Choice]]:
    """Each mechanism alone, as (name, plan). `paths` names sets of paths, ECMP's first.

    paths:NAME has paths only. The others use ECMP's paths: "cassini" (thesis: all jobs shifted, or none where
    the affinity graph has a loop), "circles" (only jobs that gain are scheduled), "crux" (levels), and with
    `mltcp` "mltcp" (MLTCP for all capable senders).
    """
    ecmp = next(iter(paths.values()))
    for name, path_choice in paths.items():
        yield f"paths:{name}", plain(instance, path_choice)
    base = plain(instance, ecmp)
    cassini = cassini_timings(instance, ecmp, seed=seed)
    yield "cassini", base if cassini is None else replace(base, timings=cassini)
    yield (
        "circles",
        replace(base, timings=scheduled_timings(instance, ecmp, jobs_by_rank(instance, ecmp), cache=cache)),
    )
    yield "crux", replace(base, level=levels_for(instance, ecmp, base.timings, seed=seed))
    if mltcp:
        yield "mltcp", replace(base, mltcp=mltcp_capable_jobs(instance))


def _few_levels(instance: Instance, name: str, base: Choice, seed: int) -> Iterator[tuple[str, Choice]]:
    """Plans with two or three levels: in them low jobs wait for fewer others."""
    for count in (2, 3):
        if count < min(instance.levels, len(instance.jobs)):
            fewer = replace(instance, levels=count)
            level = levels_for(fewer, base.path_choice, base.timings, seed=seed)
            yield f"{name}, {count} levels", replace(base, level=level)
    if instance.levels > 1:
        order = jobs_by_rank(instance, base.path_choice)
        for first in range(1, min(_MOST_FIRST, len(order) - 1) + 1):
            level = tuple(0 if j in order[:first] else 1 for j in range(len(instance.jobs)))
            yield f"{name}, {first} first", replace(base, level=level)


def combined_plans(
    instance: Instance,
    name: str,
    path_choice: PathChoice,
    *,
    mltcp: bool,
    cache: RotationCache | None = None,
    seed: int = 0,
) -> Iterator[tuple[str, Choice]]:
    """Combinations of mechanisms on one set of paths, as (name, plan).

    Levels, MLTCP, time-shifts, and time-shifts with levels or MLTCP for the jobs that are not scheduled.
    """
    base = plain(instance, path_choice)
    capable = mltcp_capable_jobs(instance)
    yield name, base
    yield f"{name}, levels", replace(base, level=levels_for(instance, path_choice, base.timings, seed=seed))
    yield from _few_levels(instance, name, base, seed)
    if mltcp:
        yield f"{name}, mltcp", replace(base, mltcp=capable)
    order = jobs_by_rank(instance, path_choice)
    seen: set[tuple[JobTiming, ...]] = {base.timings}
    guard_part = GUARD_JITTERS * instance.jitter
    for how, ranking, guard in (
        ("time-shifts", order, guard_part),
        ("time-shifts, least intense first", order[::-1], guard_part),
        ("time-shifts without gaps", order, 0.0),
    ):
        timings = scheduled_timings(instance, path_choice, ranking, cache=cache, guard=guard)
        if timings in seen:
            continue
        seen.add(timings)
        shifted = replace(base, timings=timings)
        yield f"{name}, {how}", shifted
        if UNSCHEDULED in timings:
            level = levels_for(instance, path_choice, timings, seed=seed)
            yield f"{name}, {how}, levels", replace(shifted, level=level)
            if mltcp:
                free = tuple(r == UNSCHEDULED and can for r, can in zip(timings, capable, strict=True))
                yield f"{name}, {how}, mltcp for the others", replace(shifted, mltcp=free)
    # A longer period leaves time for late phases already, so gaps pay off for some jobs only.
    for words, uneven, guard in (
        ("longer periods", False, 0.0),
        ("longer periods", False, guard_part),
        ("fewer turns for some jobs", True, 0.0),
    ):
        for timings in longer_period_timings(
            instance, path_choice, order, cache=cache, guard=guard, uneven=uneven
        ):
            if timings in seen:
                continue
            seen.add(timings)
            level = levels_for(instance, path_choice, timings, seed=seed)
            yield f"{name}, {words}", replace(base, timings=timings, level=level)
    for timings in overlapping_timings(instance, path_choice, cache=cache):
        if timings not in seen:
            seen.add(timings)
            yield f"{name}, slots that overlap", replace(base, timings=timings)
