# SPDX-License-Identifier: Apache-2.0
"""When: the rhythms of jobs that gain by taking turns, and who still meets whom in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from controller.interleave.cassini import shift_once
from controller.interleave.circle import SharedLink, random_score
from controller.interleave.link_sharing import SLACK, contended, overlapping
from controller.interleave.slot_schedule import SlotSchedule, schedule_slots
from controller.planner.demand import Demands
from controller.planner.inputs import DirectedLink


def only(link: SharedLink, jobs: Iterable[str]) -> SharedLink:
    """The same link as if no other jobs used it."""
    return SharedLink(link.name, link.rate_bps, {j: link.demands[j] for j in jobs})


@dataclass(frozen=True)
class TimeShifts:
    """The shifts and periods of one planning run; `order` names the jobs, the first before the others.

    A `given` holding is taken as it is."""

    demands: Demands
    shared: tuple[SharedLink, ...]
    order: tuple[str, ...]
    given: SlotSchedule | None = None

    @cached_property
    def holding(self) -> SlotSchedule:
        """Which jobs are held or shifted to a place in a period, and where that is."""
        if self.given is not None:
            return self.given
        demands, x = self.demands, self.demands.inputs
        if x.policy.interleave == "none":
            return SlotSchedule({}, {}, (), ())
        known = [only(k, [j for j in k.demands if demands.jobs[j].profile.phases]) for k in self.shared]
        previous: dict[str, tuple[int, int]] = {}
        for j in x.previous.jobs.values() if x.previous else ():
            if x.previous and j.period_ns:
                previous[j.job] = j.period_ns, (j.shift_ns + x.previous.epoch_ns - x.epoch_ns) % j.period_ns
        periods = {name: p.period_ns for name, p in demands.profiles.items()}
        if x.policy.interleave == "cassini":
            return shift_once(known, periods, previous=previous, slack=SLACK, seed=x.seed)
        return schedule_slots(
            known,
            periods,
            list(self.order),
            previous=previous,
            slack=SLACK,
            seed=x.seed,
        )

    @cached_property
    def periods(self) -> Mapping[str, int]:
        """The period of every job in ns: held, or its own."""
        held = self.holding.slots
        return {n: held[n].period_ns if n in held else p.period_ns for n, p in self.demands.profiles.items()}

    def groups(self, link: SharedLink) -> list[dict[str, int]]:
        """The held jobs on a link, by the group that they keep step with: job -> shift."""
        groups: dict[int, dict[str, int]] = defaultdict(dict)
        for job in link.demands:
            if job in self.holding.slots:
                held = self.holding.slots[job]
                groups[held.group][job] = held.shift_ns
        return list(groups.values())

    @cached_property
    def contending(self) -> Mapping[tuple[str, str], DirectedLink]:
        """Pairs of jobs (sorted) that still meet in time on a link that cannot carry both, and where."""
        pairs: dict[tuple[str, str], DirectedLink] = {}
        for link in self.shared:
            if not contended(link, SLACK):
                continue
            groups = self.groups(link)
            in_step = {p for g in groups for p in combinations(sorted(g), 2)}
            meet = set(combinations(sorted(link.demands), 2)) - in_step
            for g in groups:
                meet |= overlapping(only(link, g), self.periods, g, slack=SLACK)
            for p in sorted(meet):
                pairs.setdefault(p, link.name)
        return pairs

    def score(self, link: SharedLink) -> float:
        """CASSINI's score of a link under these rhythms; 1 where all fits at once."""
        full = contended(link, SLACK)
        return random_score(link, self.periods, self.groups(link), slack=SLACK) if full else 1.0
