# SPDX-License-Identifier: Apache-2.0
"""Which jobs to hold to a common rhythm: only those that gain by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from controller.interleave.affinity import LinkFit, LinkName, Loop, align, components
from controller.interleave.circle import SharedLink, random_score
from controller.interleave.link_arrays import group_identical_links
from controller.interleave.link_sharing import SLACK, SLOT_SCORE, contended
from controller.interleave.period import quantise
from controller.interleave.previous_slots import TOLERANCE, GroupTiming, keep_previous
from controller.interleave.rotate import rotate
from controller.interleave.search import places

MIN_STRETCH = 1.002
NEGLIGIBLE_SCORE = 0.95
LEAST_GAIN = 0.01
_FULL = 1 - 1e-6
_HOPEFUL = 0.9
_NODES = 60
_MOST_PLACES = 1_000_000
"""Of all searches together, those that a sweep of each job looks at. Jobs of periods much alike take some ten
thousand; those of half a second beside some of a minute, hundreds of millions."""


@dataclass(frozen=True, slots=True)
class JobSlot:
    """A job's place in its group's rhythm, both in ns; `group` numbers those that keep step. `once`: it is
    shifted there once, and again when it has drifted by more than `realign` of the period (None: the agents'
    threshold); otherwise every iteration begins there."""

    period_ns: int
    shift_ns: int
    group: int
    once: bool = False
    realign: float | None = None


@dataclass(frozen=True, slots=True)
class SlotSchedule:
    """`held` by job; the others run free, `reasons` says why; `fits` are the links among held jobs."""

    slots: Mapping[str, JobSlot]
    reasons: Mapping[str, str]
    fits: tuple[LinkFit, ...]
    loops: tuple[Loop, ...]


def schedule_slots(
    links: Sequence[SharedLink],
    periods: Mapping[str, int],
    ranking: Sequence[str],
    *,
    previous: Mapping[str, tuple[int, int]] | None = None,
    slack: float = SLACK,
    seed: int = 0,
    cache: RotationCache | None = None,
) -> SlotSchedule:
    """Decide who takes turns on the shared `links`, at which period and shift (ns).

    `periods` are measured, alone; held ones are between HOLD and 1 + TOLERANCE times as long. A group
    is held if on each of its links the score reaches SLOT_SCORE, if the link can carry the group's
    demand at that pace, and if each job gains LEAST_GAIN on some link. Otherwise the job that ranks
    last (`ranking`: highest first) on the worst link is let go, and the rest tried again. Links that
    score NEGLIGIBLE_SCORE at random and would gain less than LEAST_GAIN bind nobody. `previous` (period,
    shift) stay where they are as good. `known` remembers what was found out for the same periods before.
    """
    place = {job: i for i, job in enumerate(ranking)}
    cache = cache or RotationCache(periods, slack, seed)
    free: dict[str, str] = {}
    slots: dict[str, JobSlot] = {}
    fits: list[LinkFit] = []
    loops: list[Loop] = []
    todo = components(cache.links_to_schedule(links))
    while todo:
        part = todo.pop()
        jobs = tuple(dict.fromkeys(job for link in part for job in link.demands))
        timing, misfit = cache.best_timing(part)
        idle = cache.jobs_without_gain(part, timing) if timing is not None and misfit is None else ()
        if timing is not None and misfit is None and not idle:
            timing = keep_previous(part, timing, periods, previous or {}, slack)
            group = len(slots)
            for j in jobs:
                slots[j] = JobSlot(timing.periods[j], timing.alignment.shifts[j], group)
            fits += timing.alignment.links
            loops += timing.alignment.loops
            continue
        against = misfit.jobs if misfit else idle or jobs
        leaving = max(against, key=place.__getitem__)
        others = ", ".join(j for j in against if j != leaving)
        if misfit is not None:
            at_random = cache.random_score_on(part, misfit.link)
            free[leaving] = (
                f"cannot take turns with {others} on {misfit.link[0]}->{misfit.link[1]} "
                f"(best score {misfit.best_score:.2f}, {at_random:.2f} at random)"
            )
        elif idle:
            free[leaving] = "it would gain nothing by taking turns"
        else:
            free[leaving] = f"no period within {TOLERANCE:.0%} of its own keeps step with {others}"
        rest = [
            SharedLink(k.name, k.rate_bps, {j: p for j, p in k.demands.items() if j != leaving}) for k in part
        ]
        todo += components(cache.links_to_schedule(rest))
    return SlotSchedule(slots, free, tuple(fits), tuple(loops))


class RotationCache:
    """Finds rhythms for parts of the affinity graph, and what in them is not worth holding.

    `periods` (ns) are the jobs' own; `fast` takes the kernels. It remembers what it was asked.
    """

    def __init__(self, periods: Mapping[str, int], slack: float, seed: int, *, fast: bool = False) -> None:
        self.periods = periods
        self._slack = slack
        self._seed = seed
        self._fast = fast
        self._found: dict[tuple[object, ...], GroupTiming | None] = {}
        self._fitting_shifts: dict[tuple[object, ...], Mapping[str, int] | None] = {}
        self._alone: dict[tuple[object, ...], GroupTiming | None] = {}
        self._chance: dict[tuple[object, ...], float] = {}
        self._work_done = 0

    def _nodes(self, part: Sequence[SharedLink], periods: Mapping[str, int]) -> int:
        """How hard to search for the part's shifts: when circles with many laps have taken their share, one
        descent has to do."""
        self._work_done += sum(places(alike[0], periods) for alike in group_identical_links(part))
        return _NODES if self._work_done <= _MOST_PLACES else 0

    def shifts_that_fit(
        self, links: Sequence[SharedLink], periods: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Shifts (ns) at which all fits on `links` together, at periods that need not be the jobs' own; None
        if no such are found."""
        key = (tuple((k.rate_bps, *k.demands.items()) for k in links), *periods.items())
        if key not in self._fitting_shifts:
            nodes = _NODES if self._fast else 0
            search = partial(rotate, slack=self._slack, seed=self._seed, nodes=nodes, fast=self._fast)
            most = (1 - SLOT_SCORE) * len(links)
            # Gaps are made even only where all fits: that takes longer than finding it out.
            tried = search(links, periods, widen=False)
            if tried.loss <= most:
                tried = search(links, periods, start=tried.shifts)
            self._fitting_shifts[key] = tried.shifts if tried.loss <= most else None
        return self._fitting_shifts[key]

    def links_to_schedule(self, links: Sequence[SharedLink]) -> list[SharedLink]:
        """The contended links, without those that are well off whatever the shifts."""
        kept = []
        for link in links:
            if not contended(link, self._slack):
                continue
            chance = self._random(link)
            if chance >= NEGLIGIBLE_SCORE:
                alone = self._timing_alone(link)
                if alone is None or alone.alignment.links[0].score - chance < LEAST_GAIN:
                    continue
            kept.append(link)
        return kept

    def jobs_without_gain(self, part: Sequence[SharedLink], timing: GroupTiming) -> tuple[str, ...]:
        """Jobs that gain less than LEAST_GAIN on every link of theirs."""
        gains = {f.link: f.score - self.random_score_on(part, f.link) for f in timing.alignment.links}
        return tuple(
            job
            for job in timing.periods
            if max(gains[link.name] for link in part if job in link.demands) < LEAST_GAIN
        )

    def best_timing(self, part: Sequence[SharedLink]) -> tuple[GroupTiming | None, LinkFit | None]:
        """The rhythm of a part, None if its periods keep no step; and its worst unfit link, if any.

        What cannot be held on a link alone cannot be held with others: that is asked first.
        """
        misfits = []
        timing = None
        for link in part:
            alone = self._timing_alone(link)
            if alone is None:
                continue
            fit = replace(alone.alignment.links[0], link=link.name)
            if not self._passes(fit, link, alone):
                timing = alone
                misfits.append(fit)
        if not misfits:
            jobs = dict.fromkeys(job for link in part for job in link.demands)
            timing = self._timing_together(part, tuple(jobs))
            if timing is not None:
                at = {link.name: link for link in part}
                misfits = [f for f in timing.alignment.links if not self._passes(f, at[f.link], timing)]
        return timing, min(misfits, key=lambda f: f.score, default=None)

    def random_score_on(self, part: Sequence[SharedLink], name: LinkName) -> float:
        """The score of a link of the part at random phases."""
        return self._random(next(k for k in part if k.name == name))

    def _random(self, link: SharedLink) -> float:
        key = (link.rate_bps, *link.demands.items())
        if key not in self._chance:
            self._chance[key] = random_score(link, self.periods, slack=self._slack)
        return self._chance[key]

    def _timing_alone(self, link: SharedLink) -> GroupTiming | None:
        key = (link.rate_bps, *link.demands.items())
        if key not in self._alone:
            own = {j: self.periods[j] for j in link.demands}
            self._alone[key] = self._compute_timing([link], own)
        return self._alone[key]

    def _timing_together(self, part: Sequence[SharedLink], jobs: Sequence[str]) -> GroupTiming | None:
        key = tuple((k.name, k.rate_bps, *k.demands.items()) for k in part)
        if key not in self._found:
            own = {j: self.periods[j] for j in jobs}
            self._found[key] = self._compute_timing(part, own)
        return self._found[key]

    def _compute_timing(self, part: Sequence[SharedLink], periods: Mapping[str, int]) -> GroupTiming | None:
        """Quantised periods and shifts; the periods go up to the tolerance only if all then fits."""

        def attempt(stretch: float) -> GroupTiming | None:
            fitted = quantise(
                list(periods.values()), min_stretch=MIN_STRETCH, tolerance=TOLERANCE, stretch=stretch
            )
            if fitted is None:
                return None
            longer = dict(zip(periods, fitted.periods, strict=True))
            nodes = self._nodes(part, longer)
            found = align(part, longer, slack=self._slack, seed=self._seed, nodes=nodes, fast=self._fast)
            return GroupTiming(longer, found)

        first, longest = attempt(0.0), None
        if first is not None and _HOPEFUL <= min(f.score for f in first.alignment.links) < _FULL:
            longest = attempt(1.0)
        if longest is None or not _fits(longest):
            return first
        between = (attempt(stretch) for stretch in (0.25, 0.5, 0.75))
        return next((r for r in between if r is not None and _fits(r)), longest)

    def _passes(self, fit: LinkFit, link: SharedLink, timing: GroupTiming) -> bool:
        sent = sum(
            p.rate_bps * (p.end_ns - p.start_ns) / timing.periods[j]
            for j, phases in link.demands.items()
            for p in phases
        )
        if sent > link.rate_bps * (1 + self._slack):
            return False
        return fit.score >= SLOT_SCORE


def _fits(timing: GroupTiming) -> bool:
    return all(f.score >= _FULL for f in timing.alignment.links)
