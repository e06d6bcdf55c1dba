# SPDX-License-Identifier: Apache-2.0
"""The plans that the loop starts from: every mechanism alone, on each set of paths, and some together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from controller.interleave.joint.instance import FREE, Choice, Instance, Rhythm, plain, weighing
from controller.interleave.joint.longer_periods import stretched
from controller.interleave.joint.timings import cassini_timings, scheduled_timings
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.levels import levels_for, ranked

Ways = tuple[int, ...]
GAPS = 2.0
"""Turns leave gaps after Up phases of so many times what the compute may be longer: a rhythm without falls
apart sooner or later, for who is late delays the next."""


def by_rank(instance: Instance, ways: Sequence[int]) -> list[int]:
    """The jobs by CRUX's priority, highest first."""
    number = {p.name: j for j, p in enumerate(instance.players)}
    return [number[r.name] for r in ranked(instance, ways)]


def rivals(
    instance: Instance,
    paths: Mapping[str, Ways],
    *,
    mltcp: bool,
    known: RotationCache | None = None,
    seed: int = 0,
) -> Iterator[tuple[str, Choice]]:
    """Each mechanism alone. `paths` names sets of paths, ECMP's first: what knows no paths goes by it.

    paths:NAME; cassini (thesis: all shifts, and where a loop forbids them none), circles (only who gains is
    held), crux (levels), and with `mltcp` all senders that can weighing by F.
    """
    ecmp = next(iter(paths.values()))
    for name, ways in paths.items():
        yield f"paths:{name}", plain(instance, ways)
    base = plain(instance, ecmp)
    theirs = cassini_timings(instance, ecmp, seed=seed)
    yield "cassini", base if theirs is None else replace(base, rhythm=theirs)
    yield (
        "circles",
        replace(base, rhythm=scheduled_timings(instance, ecmp, by_rank(instance, ecmp), known=known)),
    )
    yield "crux", replace(base, level=levels_for(instance, ecmp, base.rhythm, seed=seed))
    if mltcp:
        yield "mltcp", replace(base, mltcp=weighing(instance))


def together(
    instance: Instance,
    name: str,
    ways: Ways,
    *,
    mltcp: bool,
    known: RotationCache | None = None,
    seed: int = 0,
) -> Iterator[tuple[str, Choice]]:
    """Mechanisms together on one set of paths: levels, MLTCP, turns, and turns with either for the rest."""
    base = plain(instance, ways)
    able = weighing(instance)
    yield name, base
    yield f"{name}, levels", replace(base, level=levels_for(instance, ways, base.rhythm, seed=seed))
    if mltcp:
        yield f"{name}, mltcp", replace(base, mltcp=able)
    order = by_rank(instance, ways)
    seen: set[tuple[Rhythm, ...]] = {base.rhythm}
    gaps = GAPS * instance.jitter
    for how, ranking, guard in (
        ("turns", order, gaps),
        ("turns, the others first", order[::-1], gaps),
        ("turns without gaps", order, 0.0),
    ):
        rhythm = scheduled_timings(instance, ways, ranking, known=known, guard=guard)
        if rhythm in seen:
            continue
        seen.add(rhythm)
        turns = replace(base, rhythm=rhythm)
        yield f"{name}, {how}", turns
        if FREE in rhythm:
            level = levels_for(instance, ways, rhythm, seed=seed)
            yield f"{name}, {how}, levels", replace(turns, level=level)
            if mltcp:
                free = tuple(r == FREE and can for r, can in zip(rhythm, able, strict=True))
                yield f"{name}, {how}, mltcp for the rest", replace(turns, mltcp=free)
    # A period longer than a job's own has time for what comes late: gaps as well are worth it for some only.
    longer = (stretched(instance, ways, order, known=known, guard=guard) for guard in (0.0, gaps))
    for rhythm in chain.from_iterable(longer):
        if rhythm in seen:
            continue
        seen.add(rhythm)
        level = levels_for(instance, ways, rhythm, seed=seed)
        yield f"{name}, longer turns", replace(base, rhythm=rhythm, level=level)
