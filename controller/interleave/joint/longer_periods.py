# SPDX-License-Identifier: Apache-2.0
"""Timings with periods longer than the jobs' own, for jobs that do not fit a link otherwise.

CASSINI gives jobs periods that are about as long as their own (thesis, 4.3), and leaves jobs that do not fit
to congestion. But two jobs whose Up phases together are a little longer than their period lose far less if
they wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from controller.interleave.affinity import components
from controller.interleave.circle import SharedLink
from controller.interleave.joint.instance import UNSCHEDULED, Instance, JobTiming, JointJob
from controller.interleave.joint.timings import rotation_cache_of, shared_links
from controller.interleave.slot_schedule import MIN_STRETCH, RotationCache

_LAPS = 3
_MOST_LAPS = 24
"""A common round has at most _LAPS iterations of some job, and _MOST_LAPS of its least common multiple.
Chosen: more repeats have hardly ever a place for all phases."""
_WIDER = (1.0, 1.01, 1.02, 1.04, 1.1, 1.2)
"""Factors by which the periods are made longer. Chosen: periods without a gap may leave no place for all
phases of several repeats, and slightly longer ones do."""
_OVERLAPPING = (1.0, 1.02, 1.04, 1.08)
"""The same factors for jobs that overlap: what they wait for one another takes time. Chosen."""
_TRIED = 4
"""How many numbers of repeats are tried, those first that keep most GPUs busy. Chosen: bounds the work."""
_STRETCHED = 1.05
"""Jobs whose periods need not be longer than theirs by more than this factor all have their turns. Chosen."""
_MOST_JOBS, _MOST_UNEVEN = 10, 6
"""The most jobs of a component that share links in time, and where some have fewer turns. Chosen: bounds the
work."""
_DROPS, _UNEVEN_DROPS = 6, 3
"""How many jobs of a component are left out at most, one after another, less one; and where some have fewer
turns. Chosen: bounds the work."""


def longer_period_timings(
    instance: Instance,
    path_choice: Sequence[int],
    ranking: Sequence[int],
    *,
    cache: RotationCache | None = None,
    guard: float = 0.0,
    uneven: bool = False,
) -> Iterator[tuple[JobTiming, ...]]:
    """Timings at which the jobs of full links share them in time. No period is above
    `Instance.longest_period`.

    For each component of the affinity graph all jobs are tried first, then all but the last one of `ranking`
    (highest first), and so on. The first result has the first timings found in each component, the next
    result the second ones. `guard` as in `shared_links` leaves gaps. With `uneven` some jobs have fewer turns
    in a round than the ratio of their own periods gives them.
    """
    cache = cache or rotation_cache_of(instance)
    order = [instance.jobs[j].name for j in ranking]
    found: list[list[dict[str, JobTiming]]] = []
    for component in components(shared_links(instance, path_choice, guard=guard)):
        tried = (
            _best(instance, left, cache, uneven=uneven)
            for drop in range(_UNEVEN_DROPS if uneven else _DROPS)
            if (left := _without(component, order, drop, _MOST_UNEVEN if uneven else _MOST_JOBS))
        )
        fitting = [timings for timings in tried if timings is not None]
        if fitting:
            found.append(fitting)
    for k in range(max(map(len, found), default=0)):
        timings_of = {name: r for fitting in found for name, r in fitting[min(k, len(fitting) - 1)].items()}
        yield tuple(timings_of.get(p.name, UNSCHEDULED) for p in instance.jobs)


def overlapping_timings(
    instance: Instance, path_choice: Sequence[int], *, cache: RotationCache | None = None
) -> Iterator[tuple[JobTiming, ...]]:
    """Timings at which the jobs of full links send at once for as short as the best time-shifts allow.

    Periods are as in `longer_period_timings`, all jobs of a component have slots, and there need be no place
    for all phases. Two jobs whose second bursts do not fit between the bursts of the other lose little if
    they overlap a little in each iteration. Without slots they keep the start times that they happen to have,
    and jitter brings them together: the slower worker of each decides when it sends again.
    """
    cache = cache or rotation_cache_of(instance)
    parts = [(c, _busiest_periods(instance, c)) for c in components(shared_links(instance, path_choice))]
    for k in range(len(_OVERLAPPING)):
        timings: dict[str, JobTiming] = {}
        for component, offered in parts:
            periods = offered[k]
            if periods is not None:
                shifts = cache.shifts_that_overlap_least(component, periods)
                timings |= {n: (t, shifts[n]) for n, t in periods.items()}
        if timings:
            yield tuple(timings.get(p.name, UNSCHEDULED) for p in instance.jobs)


def _busiest_periods(instance: Instance, links: Sequence[SharedLink]) -> list[dict[str, int] | None]:
    """By factor of _OVERLAPPING: so many times the shortest periods that keep most GPUs busy; None if a job's
    would be too long, or if there are too many jobs."""
    by_name = {p.name: p for p in instance.jobs}
    names = list(dict.fromkeys(j for link in links for j in link.demands))
    if not 2 <= len(names) <= _MOST_JOBS:
        return [None] * len(_OVERLAPPING)
    sets = _exclusive_sets(links, names)
    offered = [dict(zip(names, r, strict=True)) for r in dict.fromkeys(_repeats(by_name, names))]
    longest = {p.name: instance.longest_period(j) for j, p in enumerate(instance.jobs)}
    busiest = []
    for wider in _OVERLAPPING:
        found = [_periods(links, sets, repeats, by_name, wider) for repeats in offered]
        allowed = [periods for periods in found if all(t <= longest[n] for n, t in periods.items())]
        busiest.append(max(allowed, key=lambda periods: _busy(by_name, periods), default=None))
    return busiest


def _without(
    component: Sequence[SharedLink], ranking: Sequence[str], drop: int, most: int
) -> list[SharedLink]:
    """The links without the last `drop` jobs; links with a single job are left out. None are left if there
    are more than `most` jobs."""
    jobs = {j for link in component for j in link.demands}
    ordered = [name for name in ranking if name in jobs]
    kept = set(ordered[: len(ordered) - drop])
    if not 2 <= len(kept) <= most:
        return []
    rest = [
        SharedLink(k.name, k.rate_bps, {j: p for j, p in k.demands.items() if j in kept}) for k in component
    ]
    return [link for link in rest if len(link.demands) > 1]


def _best(
    instance: Instance, links: Sequence[SharedLink], cache: RotationCache, *, uneven: bool = False
) -> dict[str, JobTiming] | None:
    """The timings of the jobs of these links that keep most GPUs busy, None if there are none. `uneven` as in
    `longer_period_timings`."""
    by_name = {p.name: p for p in instance.jobs}
    longest = {p.name: instance.longest_period(j) for j, p in enumerate(instance.jobs)}
    names = list(dict.fromkeys(j for link in links for j in link.demands))
    sets = _exclusive_sets(links, names)
    if uneven:
        own = {n: by_name[n].alone_ns for n in names}
        all_turns = _periods(links, sets, {n: round(max(own.values()) / t) for n, t in own.items()}, by_name)
        if all(t <= _STRETCHED * own[n] for n, t in all_turns.items()):
            return None
    offered = _uneven_repeats(by_name, names) if uneven else _repeats(by_name, names)
    rounds = {r: _periods(links, sets, dict(zip(names, r, strict=True)), by_name) for r in offered}
    allowed = [r for r, periods in rounds.items() if all(t <= longest[n] for n, t in periods.items())]
    ordered = sorted(allowed, key=lambda r: -_busy(by_name, rounds[r]))
    for repeats in ordered[:_TRIED]:
        for wider in _WIDER:
            periods = _periods(links, sets, dict(zip(names, repeats, strict=True)), by_name, wider)
            if any(t > longest[n] for n, t in periods.items()):
                break
            turned = cache.shifts_that_fit(links, periods)
            if turned is not None:
                return {n: (periods[n], turned[n]) for n in names}
    return None


def _repeats(by_name: Mapping[str, JointJob], names: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """How often each job comes in a common round, close to the ratio of their own periods."""
    own = [by_name[n].alone_ns for n in names]
    for base in own:
        for laps in range(1, _LAPS + 1):
            repeats = tuple(max(1, round(laps * base / t)) for t in own)
            if math.gcd(*repeats) == 1 and math.lcm(*repeats) <= _MOST_LAPS:
                yield repeats


def _exclusive_sets(links: Sequence[SharedLink], names: Sequence[str]) -> list[dict[str, int]]:
    """The largest sets of jobs of which no two can send at once; for how many ns each sends in an iteration.

    Such jobs need not share one link: of three jobs between three hosts each two meet at a host.
    """
    sends: dict[str, int] = {}
    apart: set[frozenset[str]] = set()
    for link in links:
        rate = {}
        for j, phases in link.demands.items():
            rate[j] = min((p.rate_bps for p in phases), default=0)
            sends[j] = max(sends.get(j, 0), sum(p.end_ns - p.start_ns for p in phases))
        apart |= {
            frozenset(pair) for pair in combinations(rate, 2) if sum(rate[j] for j in pair) > link.rate_bps
        }
    found: list[set[str]] = []
    for count in range(len(names), 1, -1):
        for jobs in combinations(names, count):
            known = any(larger.issuperset(jobs) for larger in found)
            if not known and all(frozenset(pair) in apart for pair in combinations(jobs, 2)):
                found.append(set(jobs))
    return [{j: sends[j] for j in jobs} for jobs in found]


def _uneven_repeats(by_name: Mapping[str, JointJob], names: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Numbers of turns in a round, as in `_repeats`, but with fewer for some jobs. Equal jobs have as many.

    Where all jobs together ask for more than a link carries, each turn that a job with few GPUs leaves out
    shortens the round of the others.
    """
    own = [by_name[n].alone_ns for n in names]
    kinds = list(dict.fromkeys((by_name[n].steps, by_name[n].weight) for n in names))
    kind = [kinds.index((by_name[n].steps, by_name[n].weight)) for n in names]
    seen = set()
    for laps in range(2, _LAPS + 1):
        most = [max(1, round(laps * max(own) / t)) for t in own]
        for less in product(range(laps), repeat=len(kinds)):
            repeats = tuple(
                max(1, round(m * (laps - less[k]) / laps)) for m, k in zip(most, kind, strict=True)
            )
            if (
                len(set(repeats)) == 1
                or repeats in seen
                or math.gcd(*repeats) > 1
                or math.lcm(*repeats) > _MOST_LAPS
            ):
                continue
            seen.add(repeats)
            yield repeats


def _periods(
    links: Sequence[SharedLink],
    exclusive: Sequence[Mapping[str, int]],
    repeats: Mapping[str, int],
    by_name: Mapping[str, JointJob],
    wider: float = 1.0,
) -> dict[str, int]:
    """`wider` times the shortest periods (ns) for these numbers of repeats.

    No job is faster than alone, no link carries more than its capacity on average, and of each `exclusive`
    set (`_exclusive_sets`) one job sends at a time.
    """
    whole = float(max(r * by_name[n].alone_ns for n, r in repeats.items()))
    for link in links:
        needs = sum(
            repeats[j] * sum((p.end_ns - p.start_ns) * p.rate_bps for p in phases)
            for j, phases in link.demands.items()
        )
        whole = max(whole, needs / link.rate_bps)
    for jobs in exclusive:
        whole = max(whole, float(sum(repeats[j] * up for j, up in jobs.items())))
    laps = math.lcm(*repeats.values())
    unit = math.ceil(whole * MIN_STRETCH * wider / laps)
    return {n: unit * laps // r for n, r in repeats.items()}


def _busy(by_name: Mapping[str, JointJob], periods: Mapping[str, int]) -> float:
    """The number of GPUs kept busy under these periods."""
    return sum(by_name[n].weight * by_name[n].compute_ns / t for n, t in periods.items())
