# SPDX-License-Identifier: Apache-2.0
"""How late an iteration may begin after its slot before it waits for the next one.

Waiting costs the job the rest of the period. Beginning at once costs it nothing more, but its bursts may then
overlap those of other jobs. The controller knows the gaps between the slots, so it decides; the agents get
one figure for each job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from controller.model.job import Job, Profile
from controller.model.plan import JobPlan, Plan

LATEST = 0.5
"""The most tolerance, as a part of the period. A phase later than that is nearer to its next slot."""
_TOUCH = 0.01
"""Bursts that overlap by up to this part of the period only touch. Chosen: half of the slack of the plans."""


def tolerances(plan: Plan, jobs: Iterable[Job]) -> Mapping[str, float]:
    """The part of its period by which each job that is held to slots may begin late.

    A job may always be late by the smallest gap between one of its bursts and the next burst of another job
    on a link that both use. If it is later than the gap by x, it overlaps each of n other jobs by x in this
    iteration, and by less in each further one: its slots are m ns longer than its own iterations, so it makes
    good m each time. The others lose n (x^2 / 2m + x / 2) in all. The job waits for its next slot if that is
    more than the rest of the period. `plan.links` must have the links that jobs share.
    """
    known = {j.name: j for j in jobs}
    held = {
        name: planned
        for name, planned in plan.jobs.items()
        if planned.period_ns and not planned.once and name in known
    }
    found = {}
    for name, planned in held.items():
        others = {j for link in plan.links if name in link.jobs for j in link.jobs if j in held} - {name}
        gaps = [
            gap
            for other in others
            if (gap := _gap(planned, known[name].profile, held[other], known[other].profile)) is not None
        ]
        if gaps and planned.period_ns:
            margin = planned.period_ns - known[name].profile.period_ns
            found[name] = _latest(planned.period_ns, min(gaps), margin, len(gaps)) / planned.period_ns
    return found


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
            if overlap > _TOUCH * apart:
                return None
            gaps.append(max(0, gap))
    return min(gaps, default=None)


def _latest(period_ns: int, gap_ns: int, margin_ns: int, others: int) -> float:
    """The lateness (ns) at which beginning at once costs the others as much as waiting costs the job."""
    most = LATEST * period_ns
    if margin_ns <= 0 or gap_ns >= most:
        return min(float(gap_ns), most)
    half = others / 2 + 1
    root = math.sqrt(half * half + 2 * others * (period_ns - gap_ns) / margin_ns)
    return min(most, gap_ns + (root - half) * margin_ns / others)
