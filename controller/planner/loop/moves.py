# SPDX-License-Identifier: Apache-2.0
"""Local moves of the search: another path, another timing or another level for jobs that still overlap."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JobTiming, mltcp_capable_jobs
from controller.interleave.joint.sharing_groups import SharingGroup, legal
from controller.interleave.joint.time_sharing import TimeSharing
from controller.interleave.joint.timings import scheduled_timings
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.initial_plans import GUARD_JITTERS, jobs_by_rank
from controller.planner.loop.levels import LevelsFor, overlapping_pairs

STRETCHES = (1.003, 1.01, 1.02)
"""Factors by which all scheduled jobs are slowed down together. Chosen: up to `previous_slots.TOLERANCE`."""
_MOST_PATHS = 8
_MOST_PATH_MOVES = 12
_MOST_PAIRS = 8
"""How many moves of a kind are offered for one choice. Chosen: bounds the work."""


Twins = Sequence[tuple[int, ...]]
"""Sets of jobs that are alike: see `objective.twins_of`."""


@dataclass(frozen=True, slots=True)
class Move:
    """A changed choice, with the change in words."""

    choice: Choice
    words: str


def moves(
    instance: Instance,
    choice: Choice,
    group: SharingGroup,
    time_sharing: TimeSharing,
    cache: RotationCache,
    levels: LevelsFor,
    *,
    mltcp: bool,
    rng: random.Random,
    twins: Twins = (),
) -> Iterator[Move]:
    """Moves that may help the jobs of a group. The kinds of moves alternate; within a kind the most promising
    is first. `twins` are the jobs that must have one level.
    """
    kinds: list[Iterator[Move]] = [
        _timing_moves(instance, choice, group, time_sharing, cache),
        _path_moves(instance, choice, group, time_sharing, cache, levels),
        level_moves(instance, levels, choice, group, rng, twins),
    ]
    if mltcp:
        kinds.append(_shuffled(_mltcp_moves(instance, choice, group), rng))
    seen = {choice}
    while kinds:
        for kind in tuple(kinds):
            move = next(kind, None)
            if move is None:
                kinds.remove(kind)
            elif move.choice not in seen and legal(instance, move.choice):
                seen.add(move.choice)
                yield move


def level_moves(
    instance: Instance,
    levels: LevelsFor,
    choice: Choice,
    group: SharingGroup,
    rng: random.Random,
    twins: Twins = (),
) -> Iterator[Move]:
    """Moves that change only the levels of a group's jobs, in random order. `twins` as in `moves`."""
    return _shuffled(_priority_moves(instance, levels, choice, group, twins), rng)


def _shuffled(found: Iterator[Move], rng: random.Random) -> Iterator[Move]:
    listed = list(found)
    rng.shuffle(listed)
    return iter(listed)


def _with_timings(timings: Sequence[JobTiming], new: dict[int, JobTiming]) -> tuple[JobTiming, ...]:
    return tuple(new.get(j, r) for j, r in enumerate(timings))


def _timing_moves(
    instance: Instance, choice: Choice, group: SharingGroup, time_sharing: TimeSharing, cache: RotationCache
) -> Iterator[Move]:
    """Moves of timings: schedule all jobs that gain, schedule one pair, unschedule a job, slow all down
    together.
    """
    names, guard_part = [p.name for p in instance.jobs], GUARD_JITTERS * instance.jitter
    order = [j for j in jobs_by_rank(instance, choice.path_choice) if j in group.jobs]
    scheduled = [j for j in group.jobs if choice.timings[j] != UNSCHEDULED]
    unscheduled = [j for j in group.jobs if choice.timings[j] == UNSCHEDULED]
    if unscheduled:
        for ranking, guard, words in (
            (order, guard_part, ""),
            (order, 0.0, " without gaps"),
            (order[::-1], guard_part, ", least intense first"),
        ):
            found = scheduled_timings(
                instance, choice.path_choice, ranking, jobs=group.jobs, cache=cache, guard=guard
            )
            mine = {j: found[j] for j in group.jobs}
            if any(mine[j] != choice.timings[j] for j in group.jobs):
                yield Move(
                    replace(choice, timings=_with_timings(choice.timings, mine)), f"new time-shifts{words}"
                )
    pairs = sorted(
        p
        for p in overlapping_pairs(instance, choice.path_choice, choice.timings)
        if set(p) <= set(unscheduled)
    )
    fitting = [p for p in pairs if time_sharing.can_share(*p)]
    for a, b in fitting[:_MOST_PAIRS]:
        found = scheduled_timings(
            instance, choice.path_choice, order, jobs=(a, b), cache=cache, guard=guard_part
        )
        if found[a] != UNSCHEDULED and found[b] != UNSCHEDULED:
            new = {a: found[a], b: found[b]}
            yield Move(
                replace(choice, timings=_with_timings(choice.timings, new)),
                f"{names[a]} and {names[b]} share links in time",
            )
    for j in scheduled:
        yield Move(
            replace(choice, timings=_with_timings(choice.timings, {j: UNSCHEDULED})),
            f"{names[j]} runs at its own pace",
        )
    if len(scheduled) > 1:
        for stretch in STRETCHES:
            slower = slowed_down(choice.timings, scheduled, stretch)
            if slower is not None:
                words = f"all periods {stretch - 1:.1%} longer"
                yield Move(replace(choice, timings=_with_timings(choice.timings, slower)), words)


def slowed_down(timings: Sequence[JobTiming], jobs: Sequence[int], by: float) -> dict[int, JobTiming] | None:
    """The timings of `jobs`, slower by the factor `by`, still in whole ns and in step.

    None if the jobs do not repeat together soon enough.
    """
    around = math.lcm(*(timings[j][0] for j in jobs))
    laps = [around // timings[j][0] for j in jobs]
    unit = math.lcm(*laps)
    if unit > around // 1_000:
        return None
    longer = -(-round(around * by) // unit) * unit
    return {
        j: (longer // n, round(timings[j][1] * by) % (longer // n)) for j, n in zip(jobs, laps, strict=True)
    }


def _priority_moves(
    instance: Instance, levels: LevelsFor, choice: Choice, group: SharingGroup, twins: Twins
) -> Iterator[Move]:
    names, now = [p.name for p in instance.jobs], choice.level
    found = levels(choice.path_choice, choice.timings)
    mine = tuple(found[j] if j in group.jobs else k for j, k in enumerate(now))
    if mine != now:
        yield Move(replace(choice, level=mine), "levels by intensity")
    flat = tuple(0 if j in group.jobs else k for j, k in enumerate(now))
    if flat != now:
        yield Move(replace(choice, level=flat), "one level for all")
    if len(group.jobs) < 2:
        return
    own = [now[j] for j in group.jobs]
    units = _with_one_level(group, twins)
    words_of = [" and ".join(names[j] for j in unit) for unit in units]
    for unit, who in zip(units, words_of, strict=True):
        gets = "gets" if len(unit) == 1 else "get"
        for k, words in ((min(own) - 1, "the highest level"), (max(own) + 1, "the lowest level")):
            level = dense(_levelled(now, {k: unit}), group.jobs, instance.levels)
            if level is not None and level != now:
                yield Move(replace(choice, level=level), f"{who} {gets} {words}")
    for (a, who), (b, other) in combinations(zip(units, words_of, strict=True), 2):
        if now[a[0]] != now[b[0]]:
            swapped = _levelled(now, {now[b[0]]: a, now[a[0]]: b})
            yield Move(replace(choice, level=swapped), f"{who} and {other} exchange levels")


def _with_one_level(group: SharingGroup, twins: Twins) -> list[tuple[int, ...]]:
    """The jobs of a group that change their level together: twins, and each other job alone."""
    together = {j: alike for alike in twins for j in alike}
    return list(dict.fromkeys(together.get(j, (j,)) for j in group.jobs))


def _levelled(level: Sequence[int], new: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """The levels after those of some jobs changed. `new` has jobs by level."""
    levels = list(level)
    for k, jobs in new.items():
        for j in jobs:
            levels[j] = k
    return tuple(levels)


def dense(level: tuple[int, ...], jobs: Sequence[int], levels: int) -> tuple[int, ...] | None:
    """The levels of `jobs` numbered again from 0; None if they are more than the switches have."""
    ranks = {k: i for i, k in enumerate(sorted({level[j] for j in jobs}))}
    if len(ranks) > levels:
        return None
    return tuple(ranks[k] if j in jobs else k for j, k in enumerate(level))


def _mltcp_moves(instance: Instance, choice: Choice, group: SharingGroup) -> Iterator[Move]:
    names, capable = [p.name for p in instance.jobs], mltcp_capable_jobs(instance)
    for on in (True, False):
        every = tuple(on and capable[j] if j in group.jobs else m for j, m in enumerate(choice.mltcp))
        if every != choice.mltcp:
            yield Move(replace(choice, mltcp=every), f"MLTCP {'on' if on else 'off'} for all")
    for j in (j for j in group.jobs if capable[j]):
        one = tuple(not m if i == j else m for i, m in enumerate(choice.mltcp))
        yield Move(replace(choice, mltcp=one), f"MLTCP {'off' if choice.mltcp[j] else 'on'} for {names[j]}")


def _path_moves(
    instance: Instance,
    choice: Choice,
    group: SharingGroup,
    time_sharing: TimeSharing,
    cache: RotationCache,
    levels: LevelsFor,
) -> Iterator[Move]:
    """Moves of paths, alone or in exchange, cheapest first by `PathCosts`; without and with new timings."""
    flows, guard_part = instance.flows, GUARD_JITTERS * instance.jitter
    for _, move in time_sharing.scored(choice.path_choice, group.jobs, _MOST_PATHS)[:_MOST_PATH_MOVES]:
        path_choice = list(choice.path_choice)
        for f, path in move:
            path_choice[f] = path
        jobs = sorted({flows[f][0] for f, _ in move} | set(group.jobs))
        words = f"another path for {' and '.join(flow_words(instance, f) for f, _ in move)}"
        moved = replace(choice, path_choice=tuple(path_choice))
        yield Move(moved, words)
        ranking = jobs_by_rank(instance, moved.path_choice)
        for guard in (guard_part, 0.0):
            found = scheduled_timings(
                instance, moved.path_choice, ranking, jobs=jobs, cache=cache, guard=guard
            )
            timings = _with_timings(choice.timings, {j: found[j] for j in jobs})
            if timings == choice.timings:
                continue
            how = "new time-shifts" if guard else "time-shifts without gaps"
            turned = replace(moved, timings=timings)
            yield Move(turned, f"{words}, {how}")
            level = levels(turned.path_choice, timings)
            if level != choice.level:
                yield Move(replace(turned, level=level), f"{words}, {how}, new levels")


def flow_words(instance: Instance, flow: int) -> str:
    """A flow in words: its job and its position in the job, from 1."""
    j = instance.flows[flow][0]
    first = sum(len(p.flows) for p in instance.jobs[:j])
    return f"{instance.jobs[j].name}'s flow {flow - first + 1}"
