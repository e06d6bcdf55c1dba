# SPDX-License-Identifier: Apache-2.0
"""Jobs of one model whose measured profiles differ by no more than they are uncertain: they are planned as
twins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from controller.measure.confidence import BEYOND
from controller.model import Job, Profile

UNCERTAIN = 0.03
"""The part of its period by which a measured profile without a confidence may be wrong. Chosen: below the 5 %
of a noisy measurement, so that jobs that differ are not taken for twins."""

DECLARED = 0.005
"""The same for a profile that a job declares. Chosen: it was measured somewhere too, on a quiet fabric."""


def twin_profiles(jobs: Sequence[Job]) -> Mapping[str, str]:
    """For each job that is planned with the profile of another one, the name of that job.

    Twins have the same model, number of GPUs, flows and phases, congestion control and rates, and periods and
    phases that differ by at most BEYOND times the sum of their confidences. All of them get the profile with
    the longest period: with a shorter one than its own, a job would miss its slots.
    """
    alike: dict[tuple[object, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        if job.profile.phases:
            alike[job.model, job.gpus, len(job.flows), len(job.profile.phases), job.sender].append(job)
    found: dict[str, str] = {}
    for members in alike.values():
        first: list[Job] = []
        for job in sorted(members, key=lambda j: (-j.profile.period_ns, -j.profile.up_ns, j.name)):
            twin = next((f for f in first if _within_confidence(f, job)), None)
            if twin is None:
                first.append(job)
            elif twin.profile != job.profile:
                found[job.name] = twin.name
    return found


def _within_confidence(a: Job, b: Job) -> bool:
    """Whether the profiles of two jobs with as many phases differ by no more than both may be wrong."""
    (period_a, edges_a), (period_b, edges_b) = _uncertainty(a), _uncertainty(b)
    if abs(a.profile.period_ns - b.profile.period_ns) > period_a + period_b:
        return False
    return all(
        abs(p.start_ns - q.start_ns) <= u[0] + v[0]
        and abs(p.end_ns - q.end_ns) <= u[1] + v[1]
        and abs(p.rate_bps - q.rate_bps) <= UNCERTAIN * max(p.rate_bps, q.rate_bps)
        for p, q, u, v in zip(a.profile.phases, b.profile.phases, edges_a, edges_b, strict=True)
    )


def _uncertainty(job: Job) -> tuple[float, list[tuple[float, float]]]:
    """By how much the period, and start and end of each phase, may be wrong, in ns.

    A measured profile says so itself, and so does a declared period that was corrected.
    """
    profile: Profile = job.profile
    if job.measured is None:
        part = DECLARED * profile.period_ns
        return max(part, BEYOND * job.corrected_half_width_ns), [(part, part)] * len(profile.phases)
    known = job.measured.confidence
    if known is not None and len(known.edges_ns) == len(profile.phases):
        return BEYOND * known.period_ns, [(BEYOND * a, BEYOND * b) for a, b in known.edges_ns]
    part = UNCERTAIN * profile.period_ns
    return part, [(part, part)] * len(profile.phases)
