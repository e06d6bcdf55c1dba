# SPDX-License-Identifier: Apache-2.0
"""The slots that the joint search chose, as a schedule; CASSINI's score and the gaps of links under slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.interleave.affinity import LinkFit
from controller.interleave.circle import SharedLink, random_score
from controller.interleave.joint.instance import UNSCHEDULED, JobTiming
from controller.interleave.link_sharing import SLACK, SLOT_SCORE, contended
from controller.interleave.period import repeating_groups
from controller.interleave.slot_schedule import JobSlot, SlotSchedule
from controller.model import Phase
from controller.planner.time_shifts import groups_in_step, only


def searched_schedule(
    timings: Mapping[str, JobTiming], shared: Sequence[SharedLink], contending: Iterable[str]
) -> SlotSchedule:
    """The schedule of jobs with these timings. Jobs whose periods meet again soon are one group: their shifts
    are relative to one another. `contending` are the jobs that may need slots.
    """
    timed = {job: t for job, t in timings.items() if t != UNSCHEDULED}
    groups = repeating_groups({job: period for job, (period, _) in timed.items()})
    number = {job: i for i, group in enumerate(groups) for job in group}
    slots = {job: JobSlot(period, shift, number[job]) for job, (period, shift) in timed.items()}
    may_need, why = set(contending), "in the joint search it gained nothing from sharing links in time"
    reasons = {job: why for job in timings if job in may_need and job not in timed}
    fits = []
    for link in shared:
        jobs = [j for j in link.demands if j in slots]
        if len(jobs) < 2 or not contended(link, SLACK):
            continue
        got = slots_score(only(link, jobs), slots, {j: slots[j].shift_ns for j in jobs})
        fits.append(LinkFit(link.name, tuple(jobs), got, got))
    sharing = {j for f in fits for j in f.jobs}
    return SlotSchedule({j: s for j, s in slots.items() if j in sharing}, reasons, tuple(fits), ())


def slots_score(link: SharedLink, slots: Mapping[str, JobSlot], shifts: Mapping[str, int]) -> float:
    """CASSINI's score of a link whose jobs all have slots, at these shifts in ns.

    Groups of slots meet in all positions alike: no circle holds periods that do not meet again soon.
    """
    groups = [{job: shifts[job] for job in jobs} for jobs in groups_in_step(link.demands, slots)]
    periods = {job: slots[job].period_ns for job in link.demands}
    return random_score(link, periods, groups, slack=SLACK)


def tight(shared: Sequence[SharedLink], slots: Mapping[str, JobSlot], jitter: float) -> bool:
    """Whether jobs that share a link in time leave no gaps there: they would overlap if each phase were
    longer by the part `jitter` of its period at both ends.
    """
    for link in shared:
        periods = {j: slots[j].period_ns for j in link.demands if j in slots}
        if len(periods) < 2 or not contended(link, SLACK):
            continue
        more = {j: round(2 * jitter * t) for j, t in periods.items()}
        demands = {j: _longer(link.demands[j], more[j], t) for j, t in periods.items()}
        shifts = {j: slots[j].shift_ns - more[j] // 2 for j in periods}
        if slots_score(replace(link, demands=demands), slots, shifts) < SLOT_SCORE:
            return True
    return False


def _longer(phases: Sequence[Phase], by: int, period: int) -> tuple[Phase, ...]:
    """The phases, each ending `by` ns later, but not after the start of the next phase."""
    until = [p.start_ns for p in phases[1:]] + [period]
    return tuple(replace(p, end_ns=min(p.end_ns + by, t)) for p, t in zip(phases, until, strict=True))
