# SPDX-License-Identifier: Apache-2.0
"""Rhythms for given paths: CASSINI as published, and holding only who gains."""

from __future__ import annotations

from collections.abc import Sequence

from controller.interleave.cassini import DiscardedError, unique_shifts
from controller.interleave.circle import SharedLink
from controller.interleave.joint.instance import FREE, Instance, Player, Rhythm
from controller.interleave.joint.sharing_groups import demand_on, full_links
from controller.interleave.slot_schedule import RotationCache, schedule_slots
from controller.model import Phase

SLACK = 0.02


def rotation_cache_of(instance: Instance, *, fast: bool = False, seed: int = 0) -> RotationCache:
    """What remembers the rhythms of an instance's jobs; `fast` takes the kernels."""
    periods = {p.name: p.alone_ns for p in instance.players if p.steps}
    return RotationCache(periods, SLACK, seed, fast=fast)


def shared_links(
    instance: Instance, ways: Sequence[int], jobs: Sequence[int] | None = None, *, guard: float = 0.0
) -> list[SharedLink]:
    """The full links that several of the `jobs` (None: all) use, as circles; no job asks for more than a
    link has. Phases end later by `guard` times the compute after them, at most by all of it."""
    wanted = demand_on(instance, ways)
    full = full_links(instance, wanted)
    found = []
    for link in sorted(full):
        users = {j: rate for j, rate in wanted[link].items() if jobs is None or j in jobs}
        if len(users) < 2:
            continue
        capacity = instance.capacity_bps[link]
        demands = {}
        for j in sorted(users):
            player = instance.players[j]
            peak = max(s.rate_bps for s in player.steps)
            flows = users[j] / peak
            demands[player.name] = phases_of(player, flows, capacity, guard)
        found.append(SharedLink((str(link), ""), capacity, demands))
    return found


def phases_of(player: Player, flows: float, capacity: int, guard: float = 0.0) -> tuple[Phase, ...]:
    """The Up phases of so many flows of a job on a link; see `shared_links`."""
    phases = []
    at = 0
    for step in player.steps:
        if step.up_ns:
            rate = min(round(flows * step.rate_bps), capacity)
            longer = round(min(1.0, guard) * step.compute_ns)
            phases.append(Phase(at, at + step.up_ns + longer, rate))
        at += step.up_ns + step.compute_ns
    return tuple(phases)


def cassini_timings(instance: Instance, ways: Sequence[int], *, seed: int = 0) -> tuple[Rhythm, ...] | None:
    """CASSINI's rhythms (thesis, 4.3 and 4.4): every job of a full link in its quantised period at its
    unique shift, whatever the score. None where a loop makes it discard the placement."""
    links = shared_links(instance, ways)
    if not links:
        return None
    try:
        found = unique_shifts(links, {p.name: p.alone_ns for p in instance.players}, seed=seed)
    except DiscardedError:
        return None
    return tuple(
        (found.periods[p.name], found.shifts[p.name]) if p.name in found.periods else FREE
        for p in instance.players
    )


def scheduled_timings(
    instance: Instance,
    ways: Sequence[int],
    ranking: Sequence[int],
    *,
    jobs: Sequence[int] | None = None,
    known: RotationCache | None = None,
    guard: float = 0.0,
) -> tuple[Rhythm, ...]:
    """Rhythms for those of the `jobs` who gain by taking turns, the others free; see `hold.hold`.

    `ranking` has the job that is let go first last. With `guard` as in `shared_links` they leave gaps.
    """
    links = shared_links(instance, ways, jobs, guard=guard)
    if not links:
        return (FREE,) * len(instance.players)
    known = known or rotation_cache_of(instance)
    names = [instance.players[j].name for j in ranking]
    found = schedule_slots(links, known.periods, names, slack=SLACK, known=known).slots
    return tuple(
        (found[p.name].period_ns, found[p.name].shift_ns) if p.name in found else FREE
        for p in instance.players
    )
