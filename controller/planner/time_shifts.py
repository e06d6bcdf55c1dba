# SPDX-License-Identifier: Apache-2.0
"""The timing stage: the slots of jobs that share links in time, and the jobs that still overlap in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from controller.interleave.circle import SharedLink, random_score
from controller.interleave.link_sharing import SLACK, contended, overlapping
from controller.interleave.slot_schedule import SlotSchedule
from controller.interleave.timing import TimingProblem
from controller.planner.ask import ask_schedule
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink


def only(link: SharedLink, jobs: Iterable[str]) -> SharedLink:
    """The same link with the demand of `jobs` alone."""
    return SharedLink(link.name, link.rate_bps, {j: link.demands[j] for j in jobs})


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
        """The jobs of a link that have a slot, as one mapping (job to shift in ns) for each group. The shifts
        of a group are relative to one another; those of different groups are not."""
        groups: dict[int, dict[str, int]] = defaultdict(dict)
        for job in link.demands:
            if job in self.schedule.slots:
                slot = self.schedule.slots[job]
                groups[slot.group][job] = slot.shift_ns
        return list(groups.values())

    @cached_property
    def contending(self) -> Mapping[tuple[str, str], DirectedLink]:
        """Pairs of jobs (sorted) that still overlap in time, and a link that cannot carry both."""
        pairs: dict[tuple[str, str], DirectedLink] = {}
        for link in self.shared:
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

    def score(self, link: SharedLink) -> float:
        """CASSINI's score of a link under these slots; 1 where all demand fits at once."""
        full = contended(link, SLACK)
        return random_score(link, self.periods, self.groups(link), slack=SLACK) if full else 1.0


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
