# SPDX-License-Identifier: Apache-2.0
"""What is known of one job while it is measured, and comparisons of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from controller.live.messages import IterationReport
from controller.measure.change import ChangeDetector
from controller.measure.confidence import half_width
from controller.measure.selection import Sample
from controller.measure.series import Series
from controller.model.job import Job

# All values below are chosen.
# Reports from further in the future than this are wrong: agents' clocks may be this far ahead.
CLOCK_TOLERANCE_NS = 1_000_000_000
# Two measurements show the same job if bytes and period differ by at most this fraction.
SAME_TOLERANCE = 0.02
# A first measurement whose period or communication time differs from the declared one by more than this is
# believed only if another one agrees with it, or when this many have been made.
DOUBT_TOLERANCE = 0.15
MOST_MEASUREMENTS = 3
# Iterations that vary are measured for longer: until the period is known to this part of itself, or for so
# many times the iterations that steady ones need.
EXACT = 0.03
MOST_FACTOR = 4


@dataclass(slots=True)
class JobWatch:
    """One job's data: samples and byte counts while it is measured, then what it takes to notice a change."""

    job: Job
    series: Series
    samples: list[Sample] = field(default_factory=list)
    plan_changes_ns: list[int] = field(default_factory=list)
    doubted: list[Job] = field(default_factory=list)
    flops: list[tuple[int, int, float]] = field(default_factory=list)
    detector: ChangeDetector | None = None
    rest: int = 0
    alarms: int = 0
    watched_ns: int = 0
    tried_ns: int = 0
    unlike: int = 0
    changes: int = 0

    def flops_between(self, begin_ns: int, end_ns: int) -> float:
        """The work (flop) of the job's GPUs in a window, from the reports that lie within it."""
        inside = [(a, b, f) for a, b, f in self.flops if a >= begin_ns and b <= end_ns]
        span = sum(b - a for a, b, _ in inside) / max(1, len(self.job.hosts))
        return sum(f for _, _, f in inside) * (end_ns - begin_ns) / span if span else 0.0


def alike(before: Job, after: Job) -> bool:
    """Whether two measurements show the same bytes and the same period."""
    if before.measured is None:
        return False
    figures = [
        (float(sum(f.bytes_per_iteration for f in j.flows)), float(j.profile.period_ns))
        for j in (before, after)
    ]
    return all(abs(new - old) <= SAME_TOLERANCE * old for old, new in zip(*figures, strict=True))


def near(one: Job, other: Job) -> bool:
    """Whether period and communication time of two profiles differ by no more than `DOUBT_TOLERANCE`."""
    pairs = ((j.profile.period_ns, j.profile.up_ns) for j in (one, other))
    return all(abs(a - b) <= DOUBT_TOLERANCE * a for a, b in zip(*pairs, strict=True))


def possible(item: IterationReport, now_ns: int) -> bool:
    """Whether a report can be true: its times are in order and not in the future."""
    length = item.end_ns - item.start_ns
    in_order = item.own_ns > 0 and max(item.communication_ns, item.compute_ns) <= length
    return in_order and item.end_ns <= now_ns + CLOCK_TOLERANCE_NS


def sample_of(item: IterationReport) -> Sample:
    """The iteration that a worker reports."""
    return Sample(
        rank=item.rank,
        index=item.index,
        start_ns=item.start_ns,
        end_ns=item.end_ns,
        held_ns=item.held_ns,
        communication_ns=item.communication_ns,
        compute_ns=item.compute_ns,
        bytes_sent=item.bytes_sent,
        flops=item.flops,
    )


def exact(samples: Sequence[Sample], enough: int) -> bool:
    """Whether the iterations of rank 0 tell the period exactly, or are MOST_FACTOR times `enough`."""
    lengths = [s.own_ns for s in samples if s.rank == 0]
    if len(lengths) < 2:
        return False
    return len(lengths) >= MOST_FACTOR * enough or half_width(lengths) <= EXACT * median(lengths)


def detector_of(samples: Sequence[Sample]) -> ChangeDetector:
    """What notices that a job's iterations differ from these, which are of its rank 0."""
    sent, quiet = (median(x) for x in ([s.bytes_sent for s in samples], [s.quiet_ns for s in samples]))
    return ChangeDetector(sent, quiet, varies_ns=max(abs(s.quiet_ns - quiet) for s in samples))
