# SPDX-License-Identifier: Apache-2.0
"""Local moves: another way for a flow, another rhythm, another level, for the jobs that still meet."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JobTiming, mltcp_capable_jobs
from controller.interleave.joint.sharing_groups import SharingGroup, legal
from controller.interleave.joint.time_sharing import TimeSharing
from controller.interleave.joint.timings import scheduled_timings
from controller.interleave.slot_schedule import RotationCache
from controller.planner.loop.initial_plans import GAPS, by_rank
from controller.planner.loop.levels import levels_for, meeting

STRETCHES = (1.003, 1.01, 1.02)
_WAYS = 8
_ROUTED = 12
_PAIRS = 8


@dataclass(frozen=True, slots=True)
class Move:
    """A changed choice, and in words what was changed."""

    choice: Choice
    words: str


def moves(
    instance: Instance,
    choice: Choice,
    group: SharingGroup,
    time_sharing: TimeSharing,
    cache: RotationCache,
    *,
    mltcp: bool,
    rng: random.Random,
) -> Iterator[Move]:
    """What may help the jobs of a part: of each kind in turn, the most promising first."""
    kinds: list[Iterator[Move]] = [
        _rhythms(instance, choice, group, time_sharing, cache),
        _routes(instance, choice, group, time_sharing, cache),
        level_moves(instance, choice, group, rng),
    ]
    if mltcp:
        kinds.append(_shuffled(_senders(instance, choice, group), rng))
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
    instance: Instance, choice: Choice, group: SharingGroup, rng: random.Random
) -> Iterator[Move]:
    """Other levels for the jobs of a part, all else as it is."""
    return _shuffled(_levels(instance, choice, group), rng)


def _shuffled(found: Iterator[Move], rng: random.Random) -> Iterator[Move]:
    listed = list(found)
    rng.shuffle(listed)
    return iter(listed)


def _put(timings: Sequence[JobTiming], new: dict[int, JobTiming]) -> tuple[JobTiming, ...]:
    return tuple(new.get(j, r) for j, r in enumerate(timings))


def _rhythms(
    instance: Instance, choice: Choice, group: SharingGroup, time_sharing: TimeSharing, cache: RotationCache
) -> Iterator[Move]:
    """Hold all who gain, hold one pair, let one go, go a little slower together."""
    names, gaps = [p.name for p in instance.jobs], GAPS * instance.jitter
    order = [j for j in by_rank(instance, choice.path_choice) if j in group.jobs]
    holding = [j for j in group.jobs if choice.timings[j] != UNSCHEDULED]
    free = [j for j in group.jobs if choice.timings[j] == UNSCHEDULED]
    if free:
        for ranking, guard, words in (
            (order, gaps, ""),
            (order, 0.0, " without gaps"),
            (order[::-1], gaps, ", the least intense first"),
        ):
            found = scheduled_timings(
                instance, choice.path_choice, ranking, jobs=group.jobs, cache=cache, guard=guard
            )
            mine = {j: found[j] for j in group.jobs}
            if any(mine[j] != choice.timings[j] for j in group.jobs):
                yield Move(replace(choice, timings=_put(choice.timings, mine)), f"turns anew{words}")
    pairs = sorted(p for p in meeting(instance, choice.path_choice, choice.timings) if set(p) <= set(free))
    fitting = [p for p in pairs if time_sharing.can_share(*p)]
    for a, b in fitting[:_PAIRS]:
        found = scheduled_timings(instance, choice.path_choice, order, jobs=(a, b), cache=cache, guard=gaps)
        if found[a] != UNSCHEDULED and found[b] != UNSCHEDULED:
            new = {a: found[a], b: found[b]}
            yield Move(
                replace(choice, timings=_put(choice.timings, new)), f"{names[a]} and {names[b]} take turns"
            )
    for j in holding:
        yield Move(replace(choice, timings=_put(choice.timings, {j: UNSCHEDULED})), f"{names[j]} runs free")
    if len(holding) > 1:
        for stretch in STRETCHES:
            slower = slowed_down(choice.timings, holding, stretch)
            if slower is not None:
                words = f"the rhythm {stretch - 1:.1%} slower"
                yield Move(replace(choice, timings=_put(choice.timings, slower)), words)


def slowed_down(timings: Sequence[JobTiming], jobs: Sequence[int], by: float) -> dict[int, JobTiming] | None:
    """The rhythms of `jobs`, slower by a factor, still in whole ns and in step; None if they never repeat
    together soon."""
    around = math.lcm(*(timings[j][0] for j in jobs))
    laps = [around // timings[j][0] for j in jobs]
    unit = math.lcm(*laps)
    if unit > around // 1_000:
        return None
    longer = -(-round(around * by) // unit) * unit
    return {
        j: (longer // n, round(timings[j][1] * by) % (longer // n)) for j, n in zip(jobs, laps, strict=True)
    }


def _levels(instance: Instance, choice: Choice, group: SharingGroup) -> Iterator[Move]:
    names = [p.name for p in instance.jobs]
    found = levels_for(instance, choice.path_choice, choice.timings)
    mine = tuple(found[j] if j in group.jobs else k for j, k in enumerate(choice.level))
    if mine != choice.level:
        yield Move(replace(choice, level=mine), "levels by intensity")
    flat = tuple(0 if j in group.jobs else k for j, k in enumerate(choice.level))
    if flat != choice.level:
        yield Move(replace(choice, level=flat), "one level for all")
    if len(group.jobs) < 2:
        return
    own = [choice.level[j] for j in group.jobs]
    for j in group.jobs:
        for k, words in ((min(own) - 1, "goes first"), (max(own) + 1, "goes last")):
            level = dense(
                tuple(k if i == j else old for i, old in enumerate(choice.level)), group.jobs, instance.levels
            )
            if level is not None and level != choice.level:
                yield Move(replace(choice, level=level), f"{names[j]} {words}")
    for a, b in combinations(group.jobs, 2):
        if choice.level[a] != choice.level[b]:
            swapped = list(choice.level)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            yield Move(replace(choice, level=tuple(swapped)), f"{names[a]} and {names[b]} change places")


def dense(level: tuple[int, ...], jobs: Sequence[int], levels: int) -> tuple[int, ...] | None:
    """The levels of `jobs` numbered anew from 0; None if they are more than the switches have."""
    ranks = {k: i for i, k in enumerate(sorted({level[j] for j in jobs}))}
    if len(ranks) > levels:
        return None
    return tuple(ranks[k] if j in jobs else k for j, k in enumerate(level))


def _senders(instance: Instance, choice: Choice, group: SharingGroup) -> Iterator[Move]:
    names, able = [p.name for p in instance.jobs], mltcp_capable_jobs(instance)
    for on in (True, False):
        every = tuple(on and able[j] if j in group.jobs else m for j, m in enumerate(choice.mltcp))
        if every != choice.mltcp:
            yield Move(replace(choice, mltcp=every), f"MLTCP {'on' if on else 'off'} for all")
    for j in (j for j in group.jobs if able[j]):
        one = tuple(not m if i == j else m for i, m in enumerate(choice.mltcp))
        yield Move(replace(choice, mltcp=one), f"MLTCP {'off' if choice.mltcp[j] else 'on'} for {names[j]}")


def _routes(
    instance: Instance, choice: Choice, group: SharingGroup, time_sharing: TimeSharing, cache: RotationCache
) -> Iterator[Move]:
    """Other ways, alone or in exchange, those first that cost least by `Board`; as is, and held anew."""
    flows, gaps = instance.flows, GAPS * instance.jitter
    for _, move in time_sharing.scored(choice.path_choice, group.jobs, _WAYS)[:_ROUTED]:
        path_choice = list(choice.path_choice)
        for f, way in move:
            path_choice[f] = way
        jobs = sorted({flows[f][0] for f, _ in move} | set(group.jobs))
        words = f"another way for {' and '.join(flow_words(instance, f) for f, _ in move)}"
        moved = replace(choice, path_choice=tuple(path_choice))
        yield Move(moved, words)
        ranking = by_rank(instance, moved.path_choice)
        for guard in (gaps, 0.0):
            found = scheduled_timings(
                instance, moved.path_choice, ranking, jobs=jobs, cache=cache, guard=guard
            )
            timings = _put(choice.timings, {j: found[j] for j in jobs})
            if timings == choice.timings:
                continue
            how = "turns anew" if guard else "turns without gaps"
            turned = replace(moved, timings=timings)
            yield Move(turned, f"{words}, {how}")
            level = levels_for(instance, turned.path_choice, timings)
            if level != choice.level:
                yield Move(replace(turned, level=level), f"{words}, {how}, levels anew")


def flow_words(instance: Instance, flow: int) -> str:
    """A flow by its job and its place there, from 1."""
    j = instance.flows[flow][0]
    first = sum(len(p.flows) for p in instance.jobs[:j])
    return f"{instance.jobs[j].name}'s flow {flow - first + 1}"
