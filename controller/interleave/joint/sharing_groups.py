# SPDX-License-Identifier: Apache-2.0
"""Groups of jobs that share full links. Each group can be evaluated on its own."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JobTiming, Links
from controller.interleave.period import REPEATS

_EPS = 1e-9
_KEPT = 8
"""Chosen: the plan under improvement, its change, and those that it began with."""


@dataclass(frozen=True, slots=True)
class Stream:
    """`count` flows of one job over the same full `links`. `relative_size`: see `JointFlow`."""

    job: int
    count: int
    relative_size: float
    links: Links


@dataclass(frozen=True, slots=True)
class SharingGroup:
    """Jobs that share full links, directly or through other jobs.

    By job: `level` (numbered from 0 without gaps), `timings`, `mltcp`, and `uncontended_size`, the largest
    relative size of a flow that uses no full link (0: there is no such flow).
    """

    jobs: tuple[int, ...]
    streams: tuple[Stream, ...]
    level: tuple[int, ...]
    timings: tuple[JobTiming, ...]
    mltcp: tuple[bool, ...]
    uncontended_size: tuple[float, ...]

    @property
    def undisturbed(self) -> bool:
        """Whether this is a single unscheduled job without full links: there is nothing to compute."""
        return len(self.jobs) == 1 and self.timings[0] == UNSCHEDULED and not self.streams


@dataclass(frozen=True, slots=True)
class LinkDemands:
    """`by_link` has the peak demand of each job on each link, in bit/s. `full` are the links that cannot
    carry all their flows at full rate at once."""

    by_link: Mapping[int, Mapping[int, float]]
    full: frozenset[int]


_known: deque[tuple[Instance, tuple[int, ...], LinkDemands]] = deque(maxlen=_KEPT)
"""Instance, paths and result. Instances are compared by identity."""


def demands_on(instance: Instance, path_choice: Sequence[int]) -> LinkDemands:
    """What the jobs want of the links if their flows take these paths. The last results are kept: a search
    asks several times about each plan. Callers must not change them."""
    chosen = tuple(path_choice)
    for known, paths, result in tuple(_known):
        if known is instance and paths == chosen:
            return result
    result = _computed(instance, chosen)
    _known.appendleft((instance, chosen, result))
    return result


def _computed(instance: Instance, path_choice: tuple[int, ...]) -> LinkDemands:
    wanted: dict[int, dict[int, float]] = {}
    rates = [float(max((s.rate_bps for s in job.steps), default=0)) for job in instance.jobs]
    for (j, flow), path in zip(instance.flows, path_choice, strict=True):
        for link in flow.candidate_paths[path]:
            on_link = wanted.get(link)
            if on_link is None:
                wanted[link] = {j: rates[j]}
            else:
                on_link[j] = on_link.get(j, 0.0) + rates[j]
    capacity = instance.capacity_bps
    full = (link for link, jobs in wanted.items() if sum(jobs.values()) > capacity[link] * (1 + _EPS))
    return LinkDemands(wanted, frozenset(full))


def legal(instance: Instance, choice: Choice) -> bool:
    """Whether a choice is allowed.

    It is, if it uses only existing levels and periods of at most `Instance.longest_period`, none of them more
    than REPEATS times another one, if it turns MLTCP on for capable jobs only, and if every scheduled job
    shares a full link with another scheduled job."""
    if any(m and not p.mltcp_capable for m, p in zip(choice.mltcp, instance.jobs, strict=True)):
        return False
    scheduled = {j for j, r in enumerate(choice.timings) if r != UNSCHEDULED}
    for j, (level, r) in enumerate(zip(choice.level, choice.timings, strict=True)):
        if level >= instance.levels or (r != UNSCHEDULED and r[0] > instance.longest_period(j)):
            return False
    if not scheduled:
        return True
    periods = [choice.timings[j][0] for j in scheduled]
    if max(periods) > REPEATS * min(periods):
        return False
    wanted = demands_on(instance, choice.path_choice)
    beside: set[int] = set()
    for link in wanted.full:
        together = scheduled & wanted.by_link[link].keys()
        if len(together) > 1:
            beside |= together
    return beside == scheduled


@dataclass(frozen=True, slots=True)
class Sharing:
    """What follows from the chosen paths alone.

    `groups` are the jobs that share full links, directly or through others. By job: its `streams` over full
    links, and `uncontended_size`, the largest relative size of a flow that uses none.
    """

    groups: tuple[tuple[int, ...], ...]
    streams: Mapping[int, tuple[Stream, ...]]
    uncontended_size: Mapping[int, float]


def sharing_of(instance: Instance, path_choice: Sequence[int]) -> Sharing:
    """Which jobs share full links if the flows take these paths. Jobs without steps are left out."""
    full = demands_on(instance, path_choice).full
    merged: dict[tuple[int, float, Links], int] = defaultdict(int)
    uncontended_size: dict[int, float] = defaultdict(float)
    for (j, flow), path in zip(instance.flows, path_choice, strict=True):
        links = tuple(sorted(k for k in flow.candidate_paths[path] if k in full))
        if links:
            merged[j, flow.relative_size, links] += 1
        else:
            uncontended_size[j] = max(uncontended_size[j], flow.relative_size)
    users: dict[int, list[int]] = defaultdict(list)
    streams: dict[int, tuple[Stream, ...]] = defaultdict(tuple)
    for (j, group, links), count in sorted(merged.items()):
        streams[j] += (Stream(j, count, group, links),)
        for link in links:
            users[link].append(j)
    root = list(range(len(instance.jobs)))

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
    for j, job in enumerate(instance.jobs):
        if job.steps:
            members[find(j)].append(j)
    return Sharing(tuple(tuple(jobs) for jobs in members.values()), streams, uncontended_size)


Decisions = tuple[tuple[int, ...], tuple[JobTiming, ...], tuple[bool, ...]]
"""Levels, timings and MLTCP of the jobs of a group, as its fields have them."""
MadeGroups = dict[tuple[tuple[int, ...], Decisions], SharingGroup]
"""Groups on certain paths, by their jobs and the decisions for them."""


def sharing_groups_of(
    instance: Instance, choice: Choice, sharing: Sharing | None = None, made: MadeGroups | None = None
) -> list[SharingGroup]:
    """The independent groups of a choice, ordered by their first jobs. `sharing` may be passed if it is
    known, and with it the groups that were `made` before on these paths: most choices of a search differ in
    one group.
    """
    by = sharing_of(instance, choice.path_choice) if sharing is None else sharing
    known: MadeGroups = {} if made is None else made
    found = []
    for jobs in by.groups:
        decided = _decisions(choice, jobs)
        group = known.get((jobs, decided))
        if group is None:
            level, timings, mltcp = decided
            group = known[jobs, decided] = SharingGroup(
                jobs=jobs,
                streams=tuple(s for j in jobs for s in by.streams.get(j, ())),
                level=level,
                timings=timings,
                mltcp=mltcp,
                uncontended_size=tuple(by.uncontended_size.get(j, 0.0) for j in jobs),
            )
        found.append(group)
    return found


def _decisions(choice: Choice, jobs: tuple[int, ...]) -> Decisions:
    if len(jobs) == 1:
        return (0,), (choice.timings[jobs[0]],), (False,)
    own = [choice.level[j] for j in jobs]
    ranks = {level: i for i, level in enumerate(sorted(set(own)))}
    return (
        tuple([ranks[level] for level in own]),
        tuple([choice.timings[j] for j in jobs]),
        tuple([choice.mltcp[j] for j in jobs]),
    )
