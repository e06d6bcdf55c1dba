# SPDX-License-Identifier: Apache-2.0
"""Local moves: another way for a flow, another rhythm, another level, for the jobs that still meet."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from controller.interleave.joint.instance import FREE, Choice, Instance, Rhythm, weighing
from controller.interleave.joint.sharing_groups import Part, legal
from controller.interleave.joint.time_sharing import Turns
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
    part: Part,
    turns: Turns,
    known: RotationCache,
    *,
    mltcp: bool,
    rng: random.Random,
) -> Iterator[Move]:
    """What may help the jobs of a part: of each kind in turn, the most promising first."""
    kinds: list[Iterator[Move]] = [
        _rhythms(instance, choice, part, turns, known),
        _routes(instance, choice, part, turns, known),
        level_moves(instance, choice, part, rng),
    ]
    if mltcp:
        kinds.append(_shuffled(_senders(instance, choice, part), rng))
    seen = {choice}
    while kinds:
        for kind in tuple(kinds):
            move = next(kind, None)
            if move is None:
                kinds.remove(kind)
            elif move.choice not in seen and legal(instance, move.choice):
                seen.add(move.choice)
                yield move


def level_moves(instance: Instance, choice: Choice, part: Part, rng: random.Random) -> Iterator[Move]:
    """Other levels for the jobs of a part, all else as it is."""
    return _shuffled(_levels(instance, choice, part), rng)


def _shuffled(found: Iterator[Move], rng: random.Random) -> Iterator[Move]:
    listed = list(found)
    rng.shuffle(listed)
    return iter(listed)


def _put(rhythm: Sequence[Rhythm], new: dict[int, Rhythm]) -> tuple[Rhythm, ...]:
    return tuple(new.get(j, r) for j, r in enumerate(rhythm))


def _rhythms(
    instance: Instance, choice: Choice, part: Part, turns: Turns, known: RotationCache
) -> Iterator[Move]:
    """Hold all who gain, hold one pair, let one go, go a little slower together."""
    names, gaps = [p.name for p in instance.players], GAPS * instance.jitter
    order = [j for j in by_rank(instance, choice.ways) if j in part.jobs]
    holding = [j for j in part.jobs if choice.rhythm[j] != FREE]
    free = [j for j in part.jobs if choice.rhythm[j] == FREE]
    if free:
        for ranking, guard, words in (
            (order, gaps, ""),
            (order, 0.0, " without gaps"),
            (order[::-1], gaps, ", the least intense first"),
        ):
            found = scheduled_timings(
                instance, choice.ways, ranking, jobs=part.jobs, known=known, guard=guard
            )
            mine = {j: found[j] for j in part.jobs}
            if any(mine[j] != choice.rhythm[j] for j in part.jobs):
                yield Move(replace(choice, rhythm=_put(choice.rhythm, mine)), f"turns anew{words}")
    pairs = sorted(p for p in meeting(instance, choice.ways, choice.rhythm) if set(p) <= set(free))
    fitting = [p for p in pairs if turns.can(*p)]
    for a, b in fitting[:_PAIRS]:
        found = scheduled_timings(instance, choice.ways, order, jobs=(a, b), known=known, guard=gaps)
        if found[a] != FREE and found[b] != FREE:
            new = {a: found[a], b: found[b]}
            yield Move(
                replace(choice, rhythm=_put(choice.rhythm, new)), f"{names[a]} and {names[b]} take turns"
            )
    for j in holding:
        yield Move(replace(choice, rhythm=_put(choice.rhythm, {j: FREE})), f"{names[j]} runs free")
    if len(holding) > 1:
        for stretch in STRETCHES:
            slower = stretched(choice.rhythm, holding, stretch)
            if slower is not None:
                words = f"the rhythm {stretch - 1:.1%} slower"
                yield Move(replace(choice, rhythm=_put(choice.rhythm, slower)), words)


def stretched(rhythm: Sequence[Rhythm], jobs: Sequence[int], by: float) -> dict[int, Rhythm] | None:
    """The rhythms of `jobs`, slower by a factor, still in whole ns and in step; None if they never repeat
    together soon."""
    around = math.lcm(*(rhythm[j][0] for j in jobs))
    laps = [around // rhythm[j][0] for j in jobs]
    unit = math.lcm(*laps)
    if unit > around // 1_000:
        return None
    longer = -(-round(around * by) // unit) * unit
    return {
        j: (longer // n, round(rhythm[j][1] * by) % (longer // n)) for j, n in zip(jobs, laps, strict=True)
    }


def _levels(instance: Instance, choice: Choice, part: Part) -> Iterator[Move]:
    names = [p.name for p in instance.players]
    found = levels_for(instance, choice.ways, choice.rhythm)
    mine = tuple(found[j] if j in part.jobs else k for j, k in enumerate(choice.level))
    if mine != choice.level:
        yield Move(replace(choice, level=mine), "levels by intensity")
    flat = tuple(0 if j in part.jobs else k for j, k in enumerate(choice.level))
    if flat != choice.level:
        yield Move(replace(choice, level=flat), "one level for all")
    if len(part.jobs) < 2:
        return
    own = [choice.level[j] for j in part.jobs]
    for j in part.jobs:
        for k, words in ((min(own) - 1, "goes first"), (max(own) + 1, "goes last")):
            level = dense(
                tuple(k if i == j else old for i, old in enumerate(choice.level)), part.jobs, instance.levels
            )
            if level is not None and level != choice.level:
                yield Move(replace(choice, level=level), f"{names[j]} {words}")
    for a, b in combinations(part.jobs, 2):
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


def _senders(instance: Instance, choice: Choice, part: Part) -> Iterator[Move]:
    names, able = [p.name for p in instance.players], weighing(instance)
    for on in (True, False):
        every = tuple(on and able[j] if j in part.jobs else m for j, m in enumerate(choice.mltcp))
        if every != choice.mltcp:
            yield Move(replace(choice, mltcp=every), f"MLTCP {'on' if on else 'off'} for all")
    for j in (j for j in part.jobs if able[j]):
        one = tuple(not m if i == j else m for i, m in enumerate(choice.mltcp))
        yield Move(replace(choice, mltcp=one), f"MLTCP {'off' if choice.mltcp[j] else 'on'} for {names[j]}")


def _routes(
    instance: Instance, choice: Choice, part: Part, turns: Turns, known: RotationCache
) -> Iterator[Move]:
    """Other ways, alone or in exchange, those first that cost least by `Board`; as is, and held anew."""
    flows, gaps = instance.flows, GAPS * instance.jitter
    for _, move in turns.scored(choice.ways, part.jobs, _WAYS)[:_ROUTED]:
        ways = list(choice.ways)
        for f, way in move:
            ways[f] = way
        jobs = sorted({flows[f][0] for f, _ in move} | set(part.jobs))
        words = f"another way for {' and '.join(flow_words(instance, f) for f, _ in move)}"
        moved = replace(choice, ways=tuple(ways))
        yield Move(moved, words)
        ranking = by_rank(instance, moved.ways)
        for guard in (gaps, 0.0):
            found = scheduled_timings(instance, moved.ways, ranking, jobs=jobs, known=known, guard=guard)
            rhythm = _put(choice.rhythm, {j: found[j] for j in jobs})
            if rhythm == choice.rhythm:
                continue
            how = "turns anew" if guard else "turns without gaps"
            turned = replace(moved, rhythm=rhythm)
            yield Move(turned, f"{words}, {how}")
            level = levels_for(instance, turned.ways, rhythm)
            if level != choice.level:
                yield Move(replace(turned, level=level), f"{words}, {how}, levels anew")


def flow_words(instance: Instance, flow: int) -> str:
    """A flow by its job and its place there, from 1."""
    j = instance.flows[flow][0]
    first = sum(len(p.flows) for p in instance.players[:j])
    return f"{instance.players[j].name}'s flow {flow - first + 1}"
