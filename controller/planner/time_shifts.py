# SPDX-License-Identifier: Apache-2.0
"""The timing stage: the slots of jobs that share links in time, and the jobs that still overlap in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

from controller.interleave.circle import SharedLink, random_score
from controller.interleave.link_sharing import SLACK, contended, overlapping
from controller.interleave.period import REPEATS, repeating_groups
from controller.interleave.slot_schedule import JobSlot, SlotSchedule
from controller.interleave.timing import TimingProblem
from controller.model import Phase
from controller.planner.ask import ask_schedule
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink


def only(link: SharedLink, jobs: Iterable[str]) -> SharedLink:
    """The same link with the demand of `jobs` alone."""
    return SharedLink(link.name, link.rate_bps, {j: link.demands[j] for j in jobs})


def distinct(shared: Iterable[SharedLink]) -> tuple[SharedLink, ...]:
    """The first of all links that have the same object as demands. What a link means for its jobs depends on
    nothing else, and most links of a cluster are like some other one."""
    found: dict[int, SharedLink] = {}
    for link in shared:
        found.setdefault(id(link.demands), link)
    return tuple(found.values())


def groups_in_step(jobs: Iterable[str], slots: Mapping[str, JobSlot]) -> list[list[str]]:
    """Those of `jobs` that have a slot, in groups. The shifts of a group are relative to one another; those
    of different groups are not.

    A group of slots whose periods hardly ever meet is several groups here: a first plan puts slots of any
    periods into one, and a timing of someone else may.
    """
    groups: dict[int, dict[str, int]] = defaultdict(dict)
    for job in jobs:
        if job in slots:
            groups[slots[job].group][job] = slots[job].period_ns
    return [names for periods in groups.values() for names in repeating_groups(periods, REPEATS)]


@dataclass(frozen=True)
class TimeShifts:
    """The slots of one candidate on the links that its jobs share, and what follows from them."""

    demands: Demands
    shared: tuple[SharedLink, ...]
    schedule: SlotSchedule

    @cached_property
    def periods(self) -> Mapping[str, int]:
        """The period of every job in ns: that of its slot, or its own."""
        slots = self.schedule.slots
        own = self.demands.profiles
        return {n: slots[n].period_ns if n in slots else p.period_ns for n, p in own.items()}

    def groups(self, link: SharedLink) -> list[dict[str, int]]:
        """The jobs of a link that have a slot, as one mapping (job to shift in ns) for each group of
        `groups_in_step`."""
        slots = self.schedule.slots
        return [{job: slots[job].shift_ns for job in jobs} for jobs in groups_in_step(link.demands, slots)]

    @cached_property
    def kinds(self) -> tuple[SharedLink, ...]:
        """The shared links without those that are like earlier ones."""
        return distinct(self.shared)

    @cached_property
    def contending(self) -> Mapping[tuple[str, str], DirectedLink]:
        """Pairs of jobs (sorted) that still overlap in time, and a link that cannot carry both."""
        pairs: dict[tuple[str, str], DirectedLink] = {}
        for link in self.kinds:
            if not contended(link, SLACK):
                continue
            groups = self.groups(link)
            same_group = {p for g in groups for p in combinations(sorted(g), 2)}
            overlaps = set(combinations(sorted(link.demands), 2)) - same_group
            for g in groups:
                overlaps |= overlapping(only(link, g), self.periods, g, slack=SLACK)
            for p in sorted(overlaps):
                pairs.setdefault(p, link.name)
        return pairs

    @cached_property
    def overlapping_jobs(self) -> Mapping[str, list[str]]:
        """The jobs that each job still overlaps with in time, sorted; without jobs that overlap with none."""
        found: dict[str, list[str]] = defaultdict(list)
        for a, b in self.contending:
            found[a].append(b)
            found[b].append(a)
        return {job: sorted(others) for job, others in found.items()}

    def score(self, link: SharedLink) -> float:
        """CASSINI's score of a link under these slots; 1 where all demand fits at once."""
        known = self._scores.get(id(link.demands))
        return self._score(link) if known is None else known

    @cached_property
    def _scores(self) -> Mapping[int, float]:
        return {id(link.demands): self._score(link) for link in self.kinds}

    def _score(self, link: SharedLink) -> float:
        if not contended(link, SLACK):
            return 1.0
        place = {job: i for i, job in enumerate(link.demands)}
        groups = tuple(tuple((place[j], t) for j, t in group.items()) for group in self.groups(link))
        return _score(link.rate_bps, tuple((p, self.periods[j]) for j, p in link.demands.items()), groups)


@lru_cache(maxsize=16_384)
def _score(
    rate_bps: int,
    demands: tuple[tuple[tuple[Phase, ...], int], ...],
    groups: tuple[tuple[tuple[int, int], ...], ...],
) -> float:
    """The score of a link of jobs with these phases and periods, in ns. Each group has the shifts of some of
    the jobs, by their index. Most links have the same jobs from one plan to the next."""
    link = SharedLink(("", ""), rate_bps, {str(i): phases for i, (phases, _) in enumerate(demands)})
    periods = {str(i): period for i, (_, period) in enumerate(demands)}
    in_step = [{str(i): shift for i, shift in group} for group in groups]
    return random_score(link, periods, in_step, slack=SLACK)


def shift_jobs(demands: Demands, shared: tuple[SharedLink, ...], order: tuple[str, ...]) -> TimeShifts:
    """Ask the policy's timing for slots; `order` names the jobs, the most urgent first.

    Raises:
        PolicyError: the timing failed, or its answer is not legal.
    """
    x = demands.inputs
    known = tuple(only(k, [j for j in k.demands if demands.jobs[j].profile.phases]) for k in shared)
    previous: dict[str, tuple[int, int]] = {}
    for j in x.previous.jobs.values() if x.previous else ():
        if x.previous and j.period_ns:
            previous[j.job] = j.period_ns, (j.shift_ns + x.previous.epoch_ns - x.epoch_ns) % j.period_ns
    periods = {name: p.period_ns for name, p in demands.profiles.items()}
    problem = TimingProblem(known, periods, order, previous, SLACK, x.seed)
    return TimeShifts(demands, shared, ask_schedule(x.policy, problem))
