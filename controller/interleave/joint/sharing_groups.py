# SPDX-License-Identifier: Apache-2.0
"""From a choice to what has to be looked at together: jobs that share full links, their flows merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.interleave.joint.instance import FREE, Choice, Instance, Links, Rhythm

_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class Stream:
    """`count` flows of one job over the same full `links`, each `part` of the job's largest flow."""

    job: int
    count: int
    part: float
    links: Links


@dataclass(frozen=True, slots=True)
class Part:
    """Jobs that share full links, directly or through others. By job: `level` (dense, from 0), `rhythm`,
    `mltcp`, and `apart`, the largest part of a flow that meets no full link (0: none)."""

    jobs: tuple[int, ...]
    streams: tuple[Stream, ...]
    level: tuple[int, ...]
    rhythm: tuple[Rhythm, ...]
    mltcp: tuple[bool, ...]
    apart: tuple[float, ...]

    @property
    def undisturbed(self) -> bool:
        """One job at its own pace: nothing to compute."""
        return len(self.jobs) == 1 and self.rhythm[0] == FREE and not self.streams


def demand_on(instance: Instance, ways: Sequence[int]) -> dict[int, dict[int, float]]:
    """What each job asks of each link at most, in bit/s: link -> job -> rate."""
    wanted: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (j, flow), way in zip(instance.flows, ways, strict=True):
        rate = max((s.rate_bps for s in instance.players[j].steps), default=0)
        for link in flow.ways[way]:
            wanted[link][j] += rate
    return wanted


def full_links(instance: Instance, wanted: dict[int, dict[int, float]]) -> set[int]:
    """The links that could not carry all their flows at full rate at once."""
    return {
        link for link, jobs in wanted.items() if sum(jobs.values()) > instance.capacity_bps[link] * (1 + _EPS)
    }


def legal(instance: Instance, choice: Choice) -> bool:
    """Whether a choice keeps within the levels and the longest rhythms, weighs nobody who cannot, and holds
    nobody to a rhythm who shares no full link with another that is held."""
    if any(m and not p.weighs for m, p in zip(choice.mltcp, instance.players, strict=True)):
        return False
    held = {j for j, r in enumerate(choice.rhythm) if r != FREE}
    for level, r, p in zip(choice.level, choice.rhythm, instance.players, strict=True):
        if level >= instance.levels or (r != FREE and r[0] > instance.slowest * p.alone_ns):
            return False
    if not held:
        return True
    wanted = demand_on(instance, choice.ways)
    beside: set[int] = set()
    for link in full_links(instance, wanted):
        together = held & wanted[link].keys()
        if len(together) > 1:
            beside |= together
    return beside == held


@dataclass(frozen=True, slots=True)
class Sharing:
    """What follows from the ways alone: the `groups` of jobs that share full links, directly or through
    others, and of each job its streams over them and the largest part of a flow that meets none."""

    groups: tuple[tuple[int, ...], ...]
    streams: Mapping[int, tuple[Stream, ...]]
    apart: Mapping[int, float]


def sharing_of(instance: Instance, ways: Sequence[int]) -> Sharing:
    """Who shares full links by these ways; jobs without steps are left out."""
    full = full_links(instance, demand_on(instance, ways))
    merged: dict[tuple[int, float, Links], int] = defaultdict(int)
    apart: dict[int, float] = defaultdict(float)
    for (j, flow), way in zip(instance.flows, ways, strict=True):
        links = tuple(sorted(k for k in flow.ways[way] if k in full))
        if links:
            merged[j, flow.part, links] += 1
        else:
            apart[j] = max(apart[j], flow.part)
    users: dict[int, list[int]] = defaultdict(list)
    streams: dict[int, tuple[Stream, ...]] = defaultdict(tuple)
    for (j, part, links), count in sorted(merged.items()):
        streams[j] += (Stream(j, count, part, links),)
        for link in links:
            users[link].append(j)
    root = list(range(len(instance.players)))

    def find(j: int) -> int:
        while root[j] != j:
            root[j] = root[root[j]]
            j = root[j]
        return j

    for jobs in users.values():
        for j in jobs[1:]:
            a, b = find(jobs[0]), find(j)
            root[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = defaultdict(list)
    for j, player in enumerate(instance.players):
        if player.steps:
            members[find(j)].append(j)
    return Sharing(tuple(tuple(jobs) for jobs in members.values()), streams, apart)


def parts_of(instance: Instance, choice: Choice, sharing: Sharing | None = None) -> list[Part]:
    """The independent parts of a choice, by their first jobs; `sharing`, where it is known, is its ways'."""
    by = sharing_of(instance, choice.ways) if sharing is None else sharing
    found = []
    for jobs in by.groups:
        ranks = {level: i for i, level in enumerate(sorted({choice.level[j] for j in jobs}))}
        together = len(jobs) > 1
        found.append(
            Part(
                jobs=jobs,
                streams=tuple(s for j in jobs for s in by.streams.get(j, ())),
                level=tuple(ranks[choice.level[j]] for j in jobs),
                rhythm=tuple(choice.rhythm[j] for j in jobs),
                mltcp=tuple(choice.mltcp[j] and together for j in jobs),
                apart=tuple(by.apart.get(j, 0.0) for j in jobs),
            )
        )
    return found
