# SPDX-License-Identifier: Apache-2.0
"""Rhythms slower than the jobs: who does not fit a link takes turns there all the same, in a longer period.

CASSINI holds jobs to periods that are as good as their own (thesis, 4.3) and leaves what does not fit to
congestion. Two jobs whose Up phases are a little longer than their period together lose far less by
waiting for one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from controller.interleave.affinity import components
from controller.interleave.circle import SharedLink
from controller.interleave.joint.instance import UNSCHEDULED, Instance, JobTiming, JointJob
from controller.interleave.joint.timings import rotation_cache_of, shared_links
from controller.interleave.slot_schedule import MIN_STRETCH, RotationCache

_LAPS = 3
_MOST_LAPS = 24
_WIDER = (1.0, 1.01, 1.02, 1.04, 1.1, 1.2)
"""A rhythm that leaves no gap may have no place for all phases of several repeats: then a wider one has."""
_TRIED = 4
_MOST_JOBS = 6


def longer_period_timings(
    instance: Instance,
    path_choice: Sequence[int],
    ranking: Sequence[int],
    *,
    cache: RotationCache | None = None,
    guard: float = 0.0,
) -> Iterator[tuple[JobTiming, ...]]:
    """Rhythms under which jobs of full links take turns, none longer than `instance.slowest` allows.

    For each part of the affinity graph all of its jobs if they can, then without the last of `ranking`
    (highest first), and so on; the first yield has the first of every part, the next the second. With
    `guard` as in `shared_links` they leave gaps.
    """
    cache = cache or rotation_cache_of(instance)
    order = [instance.jobs[j].name for j in ranking]
    found: list[list[dict[str, JobTiming]]] = []
    for component in components(shared_links(instance, path_choice, guard=guard)):
        tried = (
            _best(instance, left, cache)
            for drop in range(_MOST_JOBS)
            if (left := _without(component, order, drop))
        )
        fitting = [timings for timings in tried if timings is not None]
        if fitting:
            found.append(fitting)
    for k in range(max(map(len, found), default=0)):
        rhythms = {name: r for fitting in found for name, r in fitting[min(k, len(fitting) - 1)].items()}
        yield tuple(rhythms.get(p.name, UNSCHEDULED) for p in instance.jobs)


def _without(component: Sequence[SharedLink], ranking: Sequence[str], drop: int) -> list[SharedLink]:
    """The links without the last `drop` jobs; those that one job is left on bind nobody."""
    jobs = {j for link in component for j in link.demands}
    ordered = [name for name in ranking if name in jobs]
    kept = set(ordered[: len(ordered) - drop])
    if not 2 <= len(kept) <= _MOST_JOBS:
        return []
    rest = [
        SharedLink(k.name, k.rate_bps, {j: p for j, p in k.demands.items() if j in kept}) for k in component
    ]
    return [link for link in rest if len(link.demands) > 1]


def _best(
    instance: Instance, links: Sequence[SharedLink], cache: RotationCache
) -> dict[str, JobTiming] | None:
    """The rhythm of the jobs of these links that keeps most GPUs busy, if there is one."""
    by_name = {p.name: p for p in instance.jobs}
    names = list(dict.fromkeys(j for link in links for j in link.demands))
    rounds = {r: _periods(links, dict(zip(names, r, strict=True)), by_name) for r in _repeats(by_name, names)}
    ordered = sorted(rounds, key=lambda r: -_busy(by_name, rounds[r]))
    for repeats in ordered[:_TRIED]:
        for wider in _WIDER:
            periods = _periods(links, dict(zip(names, repeats, strict=True)), by_name, wider)
            if any(t > instance.slowest * by_name[n].alone_ns for n, t in periods.items()):
                break
            turned = cache.shifts_that_fit(links, periods)
            if turned is not None:
                return {n: (periods[n], turned[n]) for n in names}
    return None


def _repeats(by_name: Mapping[str, JointJob], names: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """How often each job comes in a common round, near the ratio of their own periods."""
    own = [by_name[n].alone_ns for n in names]
    for base in own:
        for laps in range(1, _LAPS + 1):
            repeats = tuple(max(1, round(laps * base / t)) for t in own)
            if math.gcd(*repeats) == 1 and math.lcm(*repeats) <= _MOST_LAPS:
                yield repeats


def _periods(
    links: Sequence[SharedLink],
    repeats: Mapping[str, int],
    by_name: Mapping[str, JointJob],
    wider: float = 1.0,
) -> dict[str, int]:
    """`wider` times the shortest periods (ns) at which the jobs come so often, none faster than alone and
    no link overfull."""
    whole = float(max(r * by_name[n].alone_ns for n, r in repeats.items()))
    for link in links:
        needs = sum(
            repeats[j] * sum((p.end_ns - p.start_ns) * p.rate_bps for p in phases)
            for j, phases in link.demands.items()
        )
        whole = max(whole, needs / link.rate_bps)
    laps = math.lcm(*repeats.values())
    unit = math.ceil(whole * MIN_STRETCH * wider / laps)
    return {n: unit * laps // r for n, r in repeats.items()}


def _busy(by_name: Mapping[str, JointJob], periods: Mapping[str, int]) -> float:
    """GPUs kept busy under these periods."""
    return sum(by_name[n].weight * by_name[n].compute_ns / t for n, t in periods.items())
