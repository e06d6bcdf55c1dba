# SPDX-License-Identifier: Apache-2.0
"""How late an iteration may begin after its slot before it waits for the next one.

Waiting costs the job the rest of the period. Beginning at once costs it nothing more, but its bursts may then
overlap those of other jobs, until their slots have moved (`controller/live/slot_drift.py`). The controller
knows the gaps between the slots, so it decides; the agents get one figure for each job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.model.job import Job, Profile
from controller.model.plan import REALIGN, JobPlan, Plan

LATEST = 0.5
"""The most tolerance, as a part of the period. A phase later than that is nearer to its next slot."""
STEP = REALIGN
"""The part of the shortest period of the jobs that share links by which all their slots move at once, at
most. Chosen: one threshold of drift (CASSINI thesis, 4.4.2, step 3), in an iteration or in a slot."""
TOUCH = 0.01
"""Bursts that overlap by up to this part of the period only touch. Chosen: half of the slack of the plans."""


@dataclass(frozen=True, slots=True)
class SlotTolerance:
    """How late an iteration of a job may begin.

    Up to `gap_ns` its bursts reach no burst of another job. Beyond the part `latest` of its period it waits
    for its next slot. `group` are the jobs whose slots depend on one another, with the job itself, and
    `step_ns` is how far their slots move at once.
    """

    gap_ns: int
    latest: float
    group: frozenset[str]
    step_ns: int


def tolerances(plan: Plan, jobs: Iterable[Job]) -> Mapping[str, SlotTolerance]:
    """How late each job that is held to slots may begin; without those that no lateness makes worse.

    A job may always be late by the smallest gap between one of its bursts and the next burst of another job
    on a link that both use. If it is later than the gap by x, it overlaps each of n other jobs by x in this
    iteration, and by less in each further one. The slots of all move later by up to a step s, and its own
    slots are m ns longer than its iterations, so it makes good m + s each time. The others lose
    n (x^2 / 2 (m + s) + x / 2) in all. The job waits for its next slot if that is more than the rest of the
    period. `plan.links` must have the links that jobs share.
    """
    known = {j.name: j for j in jobs}
    held = {
        name: planned
        for name, planned in plan.jobs.items()
        if planned.period_ns and not planned.once and name in known
    }
    groups = _groups(plan, held)
    found = {}
    for name, planned in held.items():
        others = {j for link in plan.links if name in link.jobs for j in link.jobs if j in held} - {name}
        gaps = [
            gap
            for other in others
            if (gap := _gap(planned, known[name].profile, held[other], known[other].profile)) is not None
        ]
        if gaps and planned.period_ns:
            step = round(STEP * min(held[j].period_ns or 0 for j in groups[name]))
            made_good = step + max(0, planned.period_ns - known[name].profile.period_ns)
            latest = _latest(planned.period_ns, min(gaps), made_good, len(gaps)) / planned.period_ns
            found[name] = SlotTolerance(min(gaps), latest, groups[name], step)
    return found


def _groups(plan: Plan, held: Mapping[str, JobPlan]) -> Mapping[str, frozenset[str]]:
    """For each job with slots those that share a link with it, with one of these, and so on, and itself."""
    groups = {name: frozenset([name]) for name in held}
    for link in plan.links:
        joined = frozenset().union(*(groups[name] for name in link.jobs if name in held))
        groups.update(dict.fromkeys(joined, joined))
    return groups


def _gap(own: JobPlan, profile: Profile, other: JobPlan, other_profile: Profile) -> int | None:
    """The time (ns) by which a job may be late without a burst of it reaching one of another job's.

    None if bursts of the two overlap already, or if one of them sends nothing: being late changes little.
    """
    # The bursts of two periods meet at all distances that differ by multiples of their common divisor.
    apart = math.gcd(own.period_ns or 0, other.period_ns or 0)
    gaps = []
    for p in profile.phases:
        for q in other_profile.phases:
            after = (q.start_ns + other.shift_ns - p.start_ns - own.shift_ns) % apart
            gap = after - (p.end_ns - p.start_ns)
            overlap = max(-gap, after + q.end_ns - q.start_ns - apart)
            if overlap > TOUCH * apart:
                return None
            gaps.append(max(0, gap))
    return min(gaps, default=None)


def _latest(period_ns: int, gap_ns: int, made_good_ns: int, others: int) -> float:
    """The lateness (ns) at which beginning at once costs the others as much as waiting costs the job.

    The job makes good `made_good_ns` of it in each iteration.
    """
    most = LATEST * period_ns
    if made_good_ns <= 0 or gap_ns >= most:
        return min(float(gap_ns), most)
    half = others / 2 + 1
    root = math.sqrt(half * half + 2 * others * (period_ns - gap_ns) / made_good_ns)
    return min(most, gap_ns + (root - half) * made_good_ns / others)
