# SPDX-License-Identifier: Apache-2.0
"""Measured periods that differ by no more than noise: jobs are planned with one period or multiples of it.

Jobs can share a link in time if their periods are alike to 2 %. Noise of 5 % on the iterations moves a
measured period by as much. So noise would decide whether jobs of one period take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.measure.confidence import BEYOND
from controller.model.job import Job

RATIOS = (1, 2, 3, 4)
"""The multiples of the shortest period that are compared. Chosen: with more, periods agree by chance."""
NOISY = 0.01
"""From this half-width on, as a part of the period, a measurement is noisy. Chosen: four times the least."""
MOST_NOISE = 0.05
"""Two noisy periods may differ by this part. Chosen: few iterations tell little of how much they vary, and
a profile must bear noise of 5 % on each."""


@dataclass(slots=True)
class _Group:
    """Jobs whose periods are `ratio` times one period, with their (ratio, period, half-width) in ns."""

    members: dict[str, tuple[int, float, float]] = field(default_factory=dict)

    @property
    def period_ns(self) -> float:
        """The one period: the mean of all, weighted by how exactly each is known.

        It is no shorter than that of a member that is not noisy: in shorter slots that would be late.
        """
        each = [(p / r, (r / w) ** 2) for r, p, w in self.members.values()]
        mean = sum(p * weight for p, weight in each) / sum(weight for _, weight in each)
        return max(mean, *(p / r for r, p, w in self.members.values() if w < NOISY * p), 0.0)

    def ratio_of(self, period: float, width: float) -> int | None:
        """The ratio at which a period belongs to the group; None if it does not."""
        one = self.period_ns
        widest = max(w / r for r, _, w in self.members.values())
        for ratio in RATIOS:
            reach = BEYOND * (width + ratio * widest)
            if width >= NOISY * period and widest >= NOISY * one:
                reach = max(reach, MOST_NOISE * period)
            if abs(period - ratio * one) <= reach:
                return ratio
        return None


def with_common_periods(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs, where those whose measured periods agree have one period or small multiples of it.

    Two periods agree if they differ by at most BEYOND times the sum of their half-widths, or by 5 % if both
    are noisy. The shortest is compared first. Phases stay, and no period becomes shorter than its phases.
    Jobs without a measured confidence stay as they are.
    """
    groups: list[_Group] = []
    for job, width in sorted(_known(jobs), key=lambda k: (k[0].profile.period_ns, k[0].name)):
        period = float(job.profile.period_ns)
        for group in groups:
            ratio = group.ratio_of(period, width)
            if ratio is not None:
                group.members[job.name] = ratio, period, width
                break
        else:
            groups.append(_Group({job.name: (1, period, width)}))
    found = {
        name: ratio * group.period_ns
        for group in groups
        if len(group.members) > 1
        for name, (ratio, _, _) in group.members.items()
    }
    return tuple(_with_period(job, found) for job in jobs)


def _known(jobs: Sequence[Job]) -> list[tuple[Job, float]]:
    """The jobs whose period was measured, with its half-width (ns)."""
    return [
        (j, float(j.measured.confidence.period_ns))
        for j in jobs
        if j.measured is not None and j.measured.confidence is not None and j.profile.phases
        if j.measured.confidence.period_ns > 0
    ]


def _with_period(job: Job, found: Mapping[str, float]) -> Job:
    if job.name not in found:
        return job
    least = max(p.end_ns for p in job.profile.phases)
    return replace(job, profile=replace(job.profile, period_ns=max(round(found[job.name]), least)))
