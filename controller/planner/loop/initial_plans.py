# SPDX-License-Identifier: Apache-2.0
"""The plans that the loop starts from: every mechanism alone, on each set of paths, and some together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from controller.interleave.joint.instance import (
    UNSCHEDULED,
    Choice,
    Instance,
    JobTiming,
    mltcp_capable_jobs,
    plain,
)
from controller.interleave.joint.longer_periods import longer_period_timings
from controller.interleave.joint.timings import cassini_timings, scheduled_timings
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.levels import levels_for, ranked

PathChoice = tuple[int, ...]
GAPS = 2.0
"""Turns leave gaps after Up phases of so many times what the compute may be longer: a rhythm without falls
apart sooner or later, for who is late delays the next."""


def by_rank(instance: Instance, path_choice: Sequence[int]) -> list[int]:
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
    """Each mechanism alone. `paths` names sets of paths, ECMP's first: what knows no paths goes by it.

    paths:NAME; cassini (thesis: all shifts, and where a loop forbids them none), circles (only who gains is
    held), crux (levels), and with `mltcp` all senders that can weighing by F.
    """
    ecmp = next(iter(paths.values()))
    for name, path_choice in paths.items():
        yield f"paths:{name}", plain(instance, path_choice)
    base = plain(instance, ecmp)
    theirs = cassini_timings(instance, ecmp, seed=seed)
    yield "cassini", base if theirs is None else replace(base, timings=theirs)
    yield (
        "circles",
        replace(base, timings=scheduled_timings(instance, ecmp, by_rank(instance, ecmp), cache=cache)),
    )
    yield "crux", replace(base, level=levels_for(instance, ecmp, base.timings, seed=seed))
    if mltcp:
        yield "mltcp", replace(base, mltcp=mltcp_capable_jobs(instance))


def combined_plans(
    instance: Instance,
    name: str,
    path_choice: PathChoice,
    *,
    mltcp: bool,
    cache: RotationCache | None = None,
    seed: int = 0,
) -> Iterator[tuple[str, Choice]]:
    """Mechanisms together on one set of paths: levels, MLTCP, turns, and turns with either for the rest."""
    base = plain(instance, path_choice)
    able = mltcp_capable_jobs(instance)
    yield name, base
    yield f"{name}, levels", replace(base, level=levels_for(instance, path_choice, base.timings, seed=seed))
    if mltcp:
        yield f"{name}, mltcp", replace(base, mltcp=able)
    order = by_rank(instance, path_choice)
    seen: set[tuple[JobTiming, ...]] = {base.timings}
    gaps = GAPS * instance.jitter
    for how, ranking, guard in (
        ("turns", order, gaps),
        ("turns, the others first", order[::-1], gaps),
        ("turns without gaps", order, 0.0),
    ):
        timings = scheduled_timings(instance, path_choice, ranking, cache=cache, guard=guard)
        if timings in seen:
            continue
        seen.add(timings)
        turns = replace(base, timings=timings)
        yield f"{name}, {how}", turns
        if UNSCHEDULED in timings:
            level = levels_for(instance, path_choice, timings, seed=seed)
            yield f"{name}, {how}, levels", replace(turns, level=level)
            if mltcp:
                free = tuple(r == UNSCHEDULED and can for r, can in zip(timings, able, strict=True))
                yield f"{name}, {how}, mltcp for the rest", replace(turns, mltcp=free)
    # A period longer than a job's own has time for what comes late: gaps as well are worth it for some only.
    longer = (
        longer_period_timings(instance, path_choice, order, cache=cache, guard=guard) for guard in (0.0, gaps)
    )
    for timings in chain.from_iterable(longer):
        if timings in seen:
            continue
        seen.add(timings)
        level = levels_for(instance, path_choice, timings, seed=seed)
        yield f"{name}, longer turns", replace(base, timings=timings, level=level)
