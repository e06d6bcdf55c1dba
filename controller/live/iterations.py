# SPDX-License-Identifier: Apache-2.0
"""What jobs report about their iterations: statistics, and a check of the period in each job's profile.

A job that is held to a period shorter than its own iteration drifts a little every iteration. When the drift
is too large, it loses a whole slot to re-align (CASSINI thesis, 4.4.2, step 3): a period that is 0.3 % too
short costs several per cent of throughput. So the measured length of iterations, without the time for which
they were held, corrects the period.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from controller.live.job_registry import JobRegistry
from controller.live.measuring import JobMeasurement
from controller.live.messages import IterationReport
from controller.measure.confidence import LEAST_PERIOD, half_width
from controller.model.job import Job
from controller.model.plan import Plan

log = logging.getLogger(__name__)

# Iteration times of a job that the API shows. Chosen: what a chart of the page can show.
RECENT_ITERATIONS = 120
# Iteration times kept for the 99th percentile. Chosen: bounds the memory of a job that runs for weeks.
KEPT_ITERATIONS = 10_000

# Iterations of which some workers have not reported yet. Chosen: a worker that no longer reports leaves
# no more than these.
_MOST_OPEN = 64

# A job is silent when its workers have reported nothing for so many of its iterations, and for at least so
# many ns. Chosen: more than any plan lengthens an iteration by, and than an agent's pause between reports.
SILENT_ITERATIONS = 10
_SILENT_NS = 1_000_000_000

# How many iterations in a row must disagree with the profile before its period is corrected. Chosen: one slow
# iteration (a straggler) is no change of the period.
AGREEING_REPORTS = 4

# Iterations shorter than this fraction of the profile's period correct it too: the job would be held for
# nothing. Chosen: below what iterations vary by.
SHORTER_FACTOR = 0.98

# After new slots, jobs collide for some iterations until all have found theirs, and slots that a late job
# needs move. For so many periods an iteration does not count that is too long mostly because it communicated
# for longer than when it was measured. Chosen. TCP reports no ECN marks.
_SETTLING_PERIODS = 8

# Later, so many iterations in a row that are longer by this factor, mostly for that reason, ask for a
# measurement: only that tells whether the job has changed or others disturb it. Chosen: more than jobs need
# to find their slots again, because a measurement disturbs them too. It takes their slots for up to 24
# iterations, which costs more than a period that is corrected by less.
_COLLISIONS = 12
_COLLIDED_FACTOR = 1.05

# A job without slots has a wrong profile only if its iterations are clearly shorter than that says: others
# may make them longer.
_NEVER_LONGER_NS = 1 << 62

# The lengths that a corrected period is the median of, at most. Chosen: twice a measurement's iterations.
_KEPT_LENGTHS = 12

# Lengths are unlike earlier ones beyond so many of their median deviations. Chosen: two standard deviations.
_SPREADS = 3.0


@dataclass(slots=True)
class IterationStats:
    """The iteration times of one job. An iteration ends when its slowest worker ends it.

    `realigned` counts how often a worker had drifted past the threshold and waited for its next slot.
    """

    ranks: int
    count: int = 0
    realigned: int = 0
    _last_ns: int = 0
    _open: dict[int, dict[int, float]] = field(default_factory=dict)
    _times_ms: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_ITERATIONS))

    def add(self, report: IterationReport) -> tuple[int, ...]:
        """Add one worker's report. A second report of the same worker and index changes nothing.

        Returns the lengths (ns) of the iterations that have ended with it.
        """
        self._last_ns = max(self._last_ns, report.end_ns)
        self.realigned += report.realigned
        times = self._open.setdefault(report.index, {})
        times.setdefault(report.rank, (report.end_ns - report.start_ns) / 1e6)
        if len(times) < self.ranks:
            if len(self._open) > _MOST_OPEN:
                del self._open[min(self._open)]
            return ()
        # Reports of a worker come in order, so reports that earlier iterations still miss will never come.
        ended = [max(self._open.pop(index).values()) for index in sorted(self._open) if index <= report.index]
        self._times_ms.extend(ended)
        self.count += len(ended)
        return tuple(round(ms * 1e6) for ms in ended)

    def silent_ns(self, now_ns: int) -> int:
        """For how long no worker has reported an iteration; 0 if that is no longer than is usual.

        A job that has not ended an iteration yet is not silent.
        """
        past_ns = now_ns - self._last_ns
        if past_ns <= _SILENT_NS or not self._times_ms:
            return 0
        return past_ns if past_ns > SILENT_ITERATIONS * median(self.recent_ms) * 1e6 else 0

    @property
    def last_end_ns(self) -> int | None:
        """When a worker last ended an iteration; None before the first."""
        return self._last_ns or None

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The workers that have not reported the last iteration that others have; empty if all have."""
        last = self._open.get(max(self._open, default=0), {})
        return tuple(rank for rank in range(self.ranks) if rank not in last) if last else ()

    @property
    def recent_ms(self) -> tuple[float, ...]:
        """The last iteration times in ms, oldest first."""
        return tuple(self._times_ms)[-RECENT_ITERATIONS:]

    @property
    def mean_ms(self) -> float | None:
        """The mean iteration time in ms; None before the first iteration."""
        return sum(self._times_ms) / len(self._times_ms) if self._times_ms else None

    @property
    def p99_ms(self) -> float | None:
        """The 99th percentile of iteration times in ms (nearest rank); None before the first iteration."""
        if not self._times_ms:
            return None
        ordered = sorted(self._times_ms)
        return ordered[math.ceil(0.99 * len(ordered)) - 1]


@dataclass(frozen=True, slots=True)
class CorrectedPeriod:
    """A period from the last iterations, and half of its 95 % interval, in ns."""

    period_ns: int
    half_width_ns: int


@dataclass(slots=True)
class PeriodCheck:
    """The lengths of a job's last iterations, and how many in a row disagree with its profile.

    An iteration is as long as that of its slowest worker: the ring makes all workers wait for it. It is
    looked at when the first worker reports the next one, so a worker that no longer reports changes nothing.

    `collisions` counts how many of the last iterations in a row have collided. `doubt` says why the profile
    must be measured again, if it must.
    """

    collisions: int = 0
    doubt: str = ""
    _lengths_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT_LENGTHS))
    _wrong: int = 0
    _open: dict[int, tuple[int, bool, bool]] = field(default_factory=dict)

    def add(
        self,
        report: IterationReport,
        profile_ns: int,
        period_ns: int,
        width_ns: int = 0,
        *,
        own_ns: int | None = None,
        collided: bool = False,
    ) -> CorrectedPeriod | None:
        """Add a report of a job that is held to `period_ns` and whose profile has the period `profile_ns`.

        The profile's period is known to +- `width_ns`. The iteration counts as `own_ns` long whatever the
        network did; None: as long as it was without the time for which it was held. Returns the period that
        the profile should have, once enough iterations in a row were longer than `period_ns` or clearly
        shorter than `profile_ns`, and their median is further off than both periods are uncertain; None until
        then. Otherwise the noise of a job's iterations would ask for plan after plan. Without `own_ns`,
        iterations with ECN marks or retransmits do not count, nor those that have `collided`: the network
        lengthened them.
        """
        lengthened = own_ns is None and bool(report.ecn_marks or report.retransmits)
        if own_ns is None:
            own_ns = report.own_ns
        longest, disturbed, met = self._open.get(report.index, (0, False, False))
        self._open[report.index] = (max(longest, own_ns), disturbed or lengthened, met or collided)
        if report.rank != 0:
            if len(self._open) > _MOST_OPEN:
                del self._open[min(self._open)]
            return None
        before = self._open.get(report.index - 1)
        self._open = {i: seen for i, seen in self._open.items() if i >= report.index}
        return self._judge(*before, profile_ns, period_ns, width_ns) if before is not None else None

    def _judge(
        self,
        own_ns: int,
        disturbed: bool,
        collided: bool,
        profile_ns: int,
        period_ns: int,
        width_ns: int,
    ) -> CorrectedPeriod | None:
        self.collisions = self.collisions + 1 if collided else 0
        disturbed |= collided
        shorter = min(SHORTER_FACTOR * profile_ns, profile_ns - width_ns)
        longer = max(period_ns, profile_ns + width_ns)
        if not disturbed:
            self._lengths_ns.append(own_ns)
        self._wrong = 0 if disturbed or shorter <= own_ns <= longer else self._wrong + 1
        if self._wrong < AGREEING_REPORTS:
            return None
        lengths = self._of_one_pace()
        agreed = int(median(lengths))
        wide = half_width(lengths)
        if shorter <= agreed <= longer or abs(agreed - profile_ns) <= math.hypot(width_ns, wide):
            return None
        self._lengths_ns.clear()
        self._wrong = 0
        return CorrectedPeriod(agreed, round(max(wide, LEAST_PERIOD * agreed)))

    def _of_one_pace(self) -> list[int]:
        """The last lengths: all that are kept, or only those that disagree if those before are unlike them.

        The few that disagree are an extreme choice from lengths that vary.
        """
        last, before = list(self._lengths_ns)[-self._wrong :], list(self._lengths_ns)[: -self._wrong]
        if not before:
            return last
        usual = median(before)
        reach = _SPREADS * median(abs(n - usual) for n in before)
        return [*before, *last] if abs(median(last) - usual) <= reach else last


class PeriodChecks:
    """The period check of each job that is held to a period."""

    def __init__(self) -> None:
        self._checks: dict[str, PeriodCheck] = {}

    def forget(self, job: str) -> None:
        """A job has left, or was measured again."""
        self._checks.pop(job, None)

    def take_doubt(self, job: str) -> str:
        """Why the measured profile of a job is doubtful, in words; empty if it is not. Asking clears it."""
        check = self._checks.get(job)
        if check is None or not check.doubt:
            return ""
        words, check.doubt = check.doubt, ""
        return words

    def check(
        self, report: IterationReport, job: Job | None, plan: Plan | None, *, measurable: bool = False
    ) -> CorrectedPeriod | None:
        """The period that the job's profile should have; None if its present one may stay.

        `measurable`: the job was measured and can be measured again. Then nothing is believed that others may
        have lengthened; `take_doubt` says that a measurement is needed.

        A declared period that was corrected is looked at without slots too. Otherwise one correction from
        slow iterations, which can cost twins their slots, would last as long as the job.
        """
        planned = plan.jobs.get(report.job) if plan is not None else None
        if job is None or plan is None or planned is None:
            return None
        own_ns = None
        if planned.period_ns is None and not measurable:
            if not job.corrected_half_width_ns:
                return None
            own_ns = _without_contention(report, job)
        period_ns = planned.period_ns or _NEVER_LONGER_NS
        profile_ns = job.profile.period_ns
        known = job.measured.confidence if job.measured is not None else None
        width_ns = known.period_ns if known is not None else job.corrected_half_width_ns
        settled = report.start_ns >= plan.epoch_ns + _SETTLING_PERIODS * period_ns
        factor = _COLLIDED_FACTOR if settled else 1.0
        check = self._checks.setdefault(report.job, PeriodCheck())
        suspect = own_ns is None and (measurable or not settled)
        found = check.add(
            report, profile_ns, period_ns, width_ns, own_ns=own_ns,
            collided=suspect and _communicated_longer(report, job, factor),
        )  # fmt: skip
        if not settled:
            check.collisions = 0
        if check.collisions >= _COLLISIONS:
            check.collisions = 0
            check.doubt = "it communicates for longer than when it was measured"
        if found is not None and planned.period_ns is None and measurable:
            check.doubt = (
                f"its iterations take {found.period_ns / 1e6:.1f} ms, less than when it was measured"
            )
            return None
        if found is not None:
            log.info(
                "job %s: its iterations take %.1f ms, its profile says %.1f ms; the period is corrected",
                report.job,
                found.period_ns / 1e6,
                profile_ns / 1e6,
            )
        return found


def _without_contention(report: IterationReport, job: Job) -> int:
    """How long an iteration would have been alone, in ns: contention lengthens only what it communicates."""
    return report.own_ns - max(0, report.communication_ns - job.profile.up_ns)


def _communicated_longer(report: IterationReport, job: Job, factor: float) -> bool:
    """Whether an iteration is longer than `factor` times the profile's period, mostly because it communicated
    for longer. A period that was corrected since the measurement does not raise that limit."""
    own_ns, period_ns = report.own_ns, job.profile.period_ns
    communication_ns = job.profile.up_ns
    if job.measured is not None:
        communication_ns = job.measured.communication_ns
        if job.measured.compute_ns is not None:
            period_ns = min(period_ns, communication_ns + job.measured.compute_ns)
    excess_ns = own_ns - period_ns
    if excess_ns <= 0 or own_ns <= factor * period_ns:
        return False
    return 2 * (report.communication_ns - communication_ns) > excess_ns


class IterationReports:
    """The iteration reports of all jobs. `stats` holds each job's statistics by its name."""

    def __init__(self) -> None:
        self.stats: dict[str, IterationStats] = {}
        self._checks = PeriodChecks()
        self._silent: set[str] = set()

    def arrived(self, job: Job) -> None:
        """A job has arrived."""
        self.stats[job.name] = IterationStats(len(job.hosts))

    def left(self, job: str) -> None:
        """A job has left."""
        self.stats.pop(job, None)
        self._silent.discard(job)
        self._checks.forget(job)

    def measured(self, job: str) -> None:
        """A job was measured: earlier iterations say nothing about its new profile."""
        self._checks.forget(job)

    def add(self, item: IterationReport) -> tuple[int, ...] | None:
        """A worker reports an iteration.

        Returns the lengths (ns) of the iterations that all workers have ended with it. None if its job is not
        on the fabric.
        """
        stats = self.stats.get(item.job)
        return stats.add(item) if stats is not None else None

    def silence(self, now_ns: int, job: Job) -> str:
        """In words, that a job no longer reports its iterations; empty if it reports them."""
        stats = self.stats[job.name]
        silent_ns = stats.silent_ns(now_ns)
        if not silent_ns:
            return ""
        missing = [job.hosts[rank] for rank in stats.missing_ranks]
        words = f"no worker has reported an iteration for {silent_ns / 1e9:.1f} s"
        return f"{words}; the last one was not ended on {', '.join(missing)}" if missing else words

    def due(self, now_ns: int, jobs: Iterable[Job]) -> None:
        """Log which jobs no longer report their iterations, and which report them again."""
        for job in jobs:
            words = self.silence(now_ns, job)
            if words and job.name not in self._silent:
                self._silent.add(job.name)
                log.warning("job %s: %s; plans keep it until its workers leave", job.name, words)
            elif not words and job.name in self._silent:
                self._silent.discard(job.name)
                log.info("job %s reports its iterations again", job.name)

    def new_period(
        self, item: IterationReport, registry: JobRegistry, plan: Plan | None, measuring: JobMeasurement
    ) -> bool:
        """Correct the period of the job in `registry` if its iterations disagree, or have it measured again
        where only that can tell.

        Whether it was corrected.
        """
        known, job = measuring.knows(item.job), registry.get(item.job)
        if job is not None and job.measured is not None and measuring.waits(item.job):
            return False
        found = self._checks.check(item, job, plan, measurable=known)
        if found is not None:
            registry.correct_period(item.job, found.period_ns, found.half_width_ns)
        if known and (why := self._checks.take_doubt(item.job)):
            measuring.doubted(item.job, why)
        return found is not None
