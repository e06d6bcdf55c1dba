# SPDX-License-Identifier: Apache-2.0
"""The slot schedule: which jobs keep a common period and shift. Only jobs that gain by it are scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.interleave.affinity import LinkFit, LinkName, Loop, components
from controller.interleave.circle import SharedLink
from controller.interleave.known_alignments import (
    SearchOptions,
    known_align,
    known_fitting_shifts,
    known_random_score,
)
from controller.interleave.link_arrays import group_identical_links
from controller.interleave.link_sharing import (
    SLACK,
    SLOT_SCORE,
    contended,
    mean_demand,
    unavoidable_loss,
)
from controller.interleave.period import REPEATS, quantise
from controller.interleave.previous_slots import TOLERANCE, GroupTiming, keep_previous
from controller.interleave.search import places

MIN_STRETCH = 1.002
"""The least factor between the period of a scheduled job and its own. Chosen: a job as long as its period
would miss its slot at the first delay."""
NEGLIGIBLE_SCORE = 0.95
"""A link that scores this at random phases is scheduled only if that gains LEAST_GAIN. Chosen."""
LEAST_GAIN = 0.01
"""The score that a job must gain on some link to be scheduled. Chosen: about what the longer period costs."""
_FULL = 1 - 1e-6
"""A score that counts as 1, within rounding."""
_HOPEFUL = 0.9
"""From this score on, longer periods are tried to reach full compatibility. Chosen: below, they never do."""
_NODES = 60
"""The sweeps of each exact search. Chosen: a planner must answer in a moment."""
_MOST_PLACES = 1_000_000
"""The positions that all searches together may visit. Chosen: jobs with similar periods need about ten
thousand, and jobs of half a second beside others of a minute hundreds of millions."""


@dataclass(frozen=True, slots=True)
class JobSlot:
    """The period of a job and its shift in that period, in ns. `group` numbers the jobs that keep step.

    Without `once`, every iteration begins at the shift. With `once`, only the next iteration does; later ones
    do when the job has drifted by more than `realign` of the period (None: the threshold of the agents).
    """

    period_ns: int
    shift_ns: int
    group: int
    once: bool = False
    realign: float | None = None


@dataclass(frozen=True, slots=True)
class SlotSchedule:
    """`slots` by job. The other jobs run at their own pace, and `reasons` says why. `fits`: links of
    scheduled jobs.
    """

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
    """Decide which jobs share the `links` in time, with their periods and shifts (ns).

    `periods` are measured, without contention. Scheduled periods are between MIN_STRETCH and 1 + TOLERANCE
    times as long. A group is scheduled if the score of each of its links reaches SLOT_SCORE, if each link can
    carry the group's demand at these periods, and if each job gains LEAST_GAIN on some link. Otherwise the
    job that ranks last (`ranking`: highest first) on the worst link is removed, and the rest is tried again.
    Links that score NEGLIGIBLE_SCORE at random phases and would gain less than LEAST_GAIN are ignored.
    `previous` (period, shift) is kept where it is as good. `cache` has results for the same periods.
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
        load = cache.load(part, misfit.link) if misfit is not None else 0.0
        if misfit is not None and load > 1 + slack:
            free[leaving] = (
                f"it cannot share {misfit.link[0]}->{misfit.link[1]} in time with {others}: together they "
                f"send {load:.0%} of what the link carries"
            )
        elif misfit is not None:
            at_random = cache.random_score_on(part, misfit.link)
            free[leaving] = (
                f"it cannot share {misfit.link[0]}->{misfit.link[1]} in time with {others} "
                f"(best score {misfit.best_score:.2f}, {at_random:.2f} at random)"
            )
        elif idle:
            free[leaving] = "it would gain nothing from sharing links in time"
        else:
            free[leaving] = f"no period within {TOLERANCE:.0%} of its own keeps step with {others}"
        rest = [
            SharedLink(k.name, k.rate_bps, {j: p for j, p in k.demands.items() if j != leaving}) for k in part
        ]
        todo += components(cache.links_to_schedule(rest))
    return SlotSchedule(slots, free, tuple(fits), tuple(loops))


class RotationCache:
    """Finds the timings of parts of the affinity graph, and what in them gains nothing; remembers the
    results.

    `periods` (ns) are the jobs' own; `fast` uses the compiled kernels.
    """

    def __init__(self, periods: Mapping[str, int], slack: float, seed: int, *, fast: bool = False) -> None:
        self.periods = periods
        self._slack = slack
        self._seed = seed
        self._fast = fast
        self._found: dict[tuple[object, ...], GroupTiming | None] = {}
        self._alone: dict[tuple[object, ...], GroupTiming | None] = {}
        self._work_done = 0

    def _nodes(self, part: Sequence[SharedLink], periods: Mapping[str, int]) -> int:
        """The number of nodes for the exact search of a part; 0 (one descent) once the work exceeds
        _MOST_PLACES.
        """
        self._work_done += sum(places(alike[0], periods) for alike in group_identical_links(part))
        return _NODES if self._work_done <= _MOST_PLACES else 0

    def shifts_that_fit(
        self, links: Sequence[SharedLink], periods: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Shifts (ns) at which all jobs fit on `links` at these periods, which may differ from the jobs' own.

        None if no such shifts are found.
        """
        return known_fitting_shifts(links, periods, self._options(self._nodes_each))

    def shifts_that_overlap_least(
        self, links: Sequence[SharedLink], periods: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Shifts (ns) at which the jobs on `links` send at once for as short as is found, at these periods,
        which have a small common multiple and may differ from the jobs' own."""
        return known_align(links, periods, self._options(self._nodes_each)).shifts

    @property
    def _nodes_each(self) -> int:
        """The number of nodes for one of many searches: one descent without the compiled kernels."""
        return _NODES if self._fast else 0

    def _options(self, nodes: int) -> SearchOptions:
        return SearchOptions(self._slack, self._seed, nodes, self._fast)

    def links_to_schedule(self, links: Sequence[SharedLink]) -> list[SharedLink]:
        """The contended links, without those on which a schedule would gain nothing."""
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
        """The jobs that gain less than LEAST_GAIN on each of their links."""
        gains = {f.link: f.score - self.random_score_on(part, f.link) for f in timing.alignment.links}
        return tuple(
            job
            for job in timing.periods
            if max(gains[link.name] for link in part if job in link.demands) < LEAST_GAIN
        )

    def best_timing(self, part: Sequence[SharedLink]) -> tuple[GroupTiming | None, LinkFit | None]:
        """The timing of a part, None if its periods cannot keep step, and its worst link that does not fit,
        if any.

        Jobs that do not fit on a link alone do not fit with further links. So the links are tried alone
        first.
        """
        misfits = []
        timing = None
        for link in part:
            load = self._load(link)
            if load > 1 + self._slack:
                # No search can find shifts, and the score is at most this.
                most = 1 - (load - 1 - self._slack)
                misfits.append(LinkFit(link.name, tuple(link.demands), most, most))
                continue
            most = 1 - self._unavoidable(link)
            if most < SLOT_SCORE:
                misfits.append(LinkFit(link.name, tuple(link.demands), most, most))
                continue
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

    def load(self, part: Sequence[SharedLink], name: LinkName) -> float:
        """What the jobs of a link send on average at their longest periods, as a part of what it carries."""
        return self._load(next(k for k in part if k.name == name))

    def _load(self, link: SharedLink) -> float:
        longest = {j: round(self.periods[j] * (1 + TOLERANCE)) for j in link.demands}
        return mean_demand(link.demands, longest) / link.rate_bps

    def _unavoidable(self, link: SharedLink) -> float:
        """What the link loses at least, whatever the shifts are, at the longest periods of the jobs."""
        longest = {j: round(self.periods[j] * (1 + TOLERANCE)) for j in link.demands}
        return unavoidable_loss(link, longest, self._slack)

    def random_score_on(self, part: Sequence[SharedLink], name: LinkName) -> float:
        """The score of a link of the part at random phases."""
        return self._random(next(k for k in part if k.name == name))

    def _random(self, link: SharedLink) -> float:
        return known_random_score(link, self.periods, slack=self._slack)

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
        """Quantised periods and shifts. Periods grow up to the tolerance only if all jobs then fit."""
        if max(periods.values()) > REPEATS * min(periods.values()):
            return None

        def attempt(stretch: float) -> GroupTiming | None:
            fitted = quantise(
                list(periods.values()), min_stretch=MIN_STRETCH, tolerance=TOLERANCE, stretch=stretch
            )
            if fitted is None:
                return None
            longer = dict(zip(periods, fitted.periods, strict=True))
            found = known_align(part, longer, self._options(self._nodes(part, longer)))
            return GroupTiming(longer, found)

        first, longest = attempt(0.0), None
        if first is not None and _HOPEFUL <= min(f.score for f in first.alignment.links) < _FULL:
            longest = attempt(1.0)
        if longest is None or not _fits(longest):
            return first
        between = (attempt(stretch) for stretch in (0.25, 0.5, 0.75))
        return next((r for r in between if r is not None and _fits(r)), longest)

    def _passes(self, fit: LinkFit, link: SharedLink, timing: GroupTiming) -> bool:
        if mean_demand(link.demands, timing.periods) > link.rate_bps * (1 + self._slack):
            return False
        return fit.score >= SLOT_SCORE


def _fits(timing: GroupTiming) -> bool:
    return all(f.score >= _FULL for f in timing.alignment.links)
