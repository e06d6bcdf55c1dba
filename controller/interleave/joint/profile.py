# SPDX-License-Identifier: Apache-2.0
"""A measured profile as steps: Up phases, each with the compute that follows it."""

from __future__ import annotations

from controller.interleave.joint.instance import Step
from controller.model import Profile


def steps_of(profile: Profile) -> tuple[Step, ...]:
    """The steps of an iteration, which begins with its first Up phase."""
    phases = profile.phases
    if not phases:
        return ()
    begins = [p.start_ns for p in phases[1:]] + [profile.period_ns + phases[0].start_ns]
    return tuple(
        Step(p.end_ns - p.start_ns, p.rate_bps, max(0, following - p.end_ns))
        for p, following in zip(phases, begins, strict=True)
    )
