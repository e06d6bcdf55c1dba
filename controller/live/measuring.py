# SPDX-License-Identifier: Apache-2.0
"""Measure the jobs on the fabric: which job is profiled now, with what result, and which has changed since.

Like the rest of the core this takes inputs and yields effects; it does no I/O. The algorithms are in
`controller/measure`; this module feeds them each job's iteration reports and byte counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from controller.live.job_watch import (
    CLOCK_TOLERANCE_NS,
    MOST_MEASUREMENTS,
    JobWatch,
    alike,
    detector_of,
    exact,
    near,
    possible,
    sample_of,
)
from controller.live.messages import BytesCounted, Effect, IterationReport, SendMeasure
from controller.measure.change import longest_silence, looks_changed
from controller.measure.iteration import from_bytes, from_iterations
from controller.measure.profiling_queue import ProfilingQueue, with_job_on_top
from controller.measure.selection import counting
from controller.measure.series import KEPT, Series
from controller.model.job import Job
from controller.model.plan import Plan
from controller.model.traffic import TRAFFIC_CLASSES
from controller.planner import Policy

log = logging.getLogger(__name__)

# All values below are chosen.
# A silent job (one that reports no iterations) is checked for changes in windows of this many periods. It has
# changed when this many windows in a row disagree with its profile.
WATCHED_PERIODS = 10
WATCHED_AGREEING = 2
# The measurement of a silent job needs this many times the iterations that a reporting job needs.
SILENT_FACTOR = 2
# After a measurement a job is not measured again for this many times the measured iterations. The factor
# doubles with each further measurement that shows no change.
REST_FACTOR = 3
# A silent job that could not be measured is tried again after this many measurement windows.
RETRY_WINDOWS = 4
# The counts of a silent job are analysed again once they cover this many times the time of the last analysis.
GROWTH_FACTOR = 1.15


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """How jobs are measured. `enabled` False: plans use the profile that a job declares.

    A job is profiled until `iterations` are seen, and for `window_ns` at most. Agents count bytes in bins of
    `bin_ns` and report them every `report_ns`.
    """

    enabled: bool = True
    window_ns: int = 30_000_000_000
    iterations: int = 6
    bin_ns: int = 5_000_000
    report_ns: int = 250_000_000


AS_DECLARED = MeasureSettings(enabled=False)
"""No job is measured: plans use the declared profiles."""


def depends_on_profiles(policy: Policy) -> bool:
    """Whether a policy's decisions depend on the jobs' profiles."""
    return policy.depends_on_jobs


class JobMeasurement:
    """The measurements of all jobs, one job at a time.

    The core plans again with what `take_measured` returns.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        self._settings = settings
        self._queue = ProfilingQueue(settings.window_ns)
        self._watches: dict[str, JobWatch] = {}
        self._finished: list[Job] = []
        self._wants_plan = False

    def use(self, settings: MeasureSettings) -> None:
        """Measure by other settings from now on."""
        self._settings = settings

    @property
    def enabled(self) -> bool:
        """Whether jobs are measured."""
        return self._settings.enabled

    @property
    def profiled(self) -> str | None:
        """The job that is being measured; None if there is none."""
        return self._queue.window.job if self._queue.window is not None else None

    @property
    def next_timer_ns(self) -> int | None:
        """When the present measurement window ends; None without one."""
        return self._queue.window.until_ns if self._queue.window is not None else None

    def changes(self, job: str) -> int:
        """How often a job has changed its communication pattern since it arrived."""
        watch = self._watches.get(job)
        return watch.changes if watch is not None else 0

    def waits(self, job: str) -> bool:
        """Whether a job waits to be measured, or is being measured."""
        return self._queue.contains(job)

    def knows(self, job: str) -> bool:
        """Whether a job was measured, and is not to be measured before it changes."""
        watch = self._watches.get(job)
        return watch is not None and watch.job.measured is not None and not self.waits(job)

    # Inputs.

    def arrived(self, job: Job) -> None:
        """A job has arrived: queue it for measurement if it sends anything to another host."""
        if self._settings.enabled and any(f.src != f.dst for f in job.flows):
            self._watches[job.name] = JobWatch(job, Series(self._settings.bin_ns))
            self._queue.add(job.name)

    def restored(self, job: Job) -> bool:
        """Take up a job that an earlier controller knew. Whether it has yet to be measured.

        A measured job is not measured again before it changes.
        """
        self.arrived(job)
        watch = self._watches.get(job.name)
        if watch is None or job.measured is None:
            return watch is not None
        self._queue.forget(job.name)
        watch.rest = REST_FACTOR * self._settings.iterations
        return False

    def left(self, job: str) -> None:
        """A job has left."""
        if self._watches.pop(job, None) is not None:
            self._queue.forget(job)

    def given_up(self, job: str) -> Iterator[Effect]:
        """No plan contains this job: it is not measured, and its agents need not count its bytes."""
        watch = self._watches.get(job)
        if watch is None:
            return
        if watch.job.silent or job == self.profiled:
            for host in dict.fromkeys(watch.job.hosts):
                yield self._ask(host, job, stop=True)
        self.left(job)

    def agent_up(self, host: str) -> Iterator[Effect]:
        """An agent may have restarted, so ask it again to count the bytes of jobs that need it."""
        for name, watch in self._watches.items():
            if host in watch.job.hosts and (watch.job.silent or name == self.profiled):
                yield self._ask(host, name)

    def choose(self) -> None:
        """A plan is about to be made: choose the job that is measured while the plan is in force."""
        self._queue.next_job()

    def overlay(self, plan: Plan) -> Plan:
        """The plan with the job that is measured alone on the highest priority level."""
        job = self.profiled
        return plan if job is None else with_job_on_top(plan, job, TRAFFIC_CLASSES.levels)

    def plan_changed(self, now_ns: int, jobs: frozenset[str]) -> None:
        """A plan has come into force that disturbs `jobs`: the iterations under way do not count."""
        watch = self._watches.get(self.profiled or "")
        if watch is not None and watch.job.name in jobs:
            watch.plan_changes_ns.append(now_ns)

    def adopted(self, now_ns: int) -> Iterator[Effect]:
        """The plan is in force: the measurement window of the chosen job begins."""
        if not self._queue.begin(now_ns) or self.profiled is None:
            return
        watch = self._watches[self.profiled]
        watch.doubted.clear()
        self._clear(watch, now_ns)
        log.info(
            "job %s is measured alone on the highest priority level; %d more jobs wait",
            watch.job.name,
            self._queue.waiting,
        )
        for host in dict.fromkeys(watch.job.hosts):
            yield self._ask(host, watch.job.name)

    def _clear(self, watch: JobWatch, now_ns: int) -> None:
        """Forget what was seen of a job: its measurement begins now."""
        watch.samples.clear()
        watch.flops.clear()
        watch.series = Series(self._settings.bin_ns)
        watch.tried_ns = now_ns
        watch.plan_changes_ns = [now_ns]

    def iteration(self, now_ns: int, item: IterationReport) -> Iterator[Effect]:
        """A worker reports an iteration. Impossible reports are ignored."""
        watch, window = self._watches.get(item.job), self._queue.window
        if watch is None or not possible(item, now_ns):
            return
        if window is None or window.job != item.job:
            self._compare(watch, item)
        elif window.begun_ns is not None and item.start_ns >= window.begun_ns and item.index > 0:
            watch.samples.append(sample_of(item))
            yield from self._conclude(watch)

    def doubted(self, job: str, why: str) -> None:
        """A job's iterations contradict its measured profile: measure it again."""
        watch = self._watches.get(job)
        if watch is not None and watch.job.measured is not None:
            self._changed(watch, why)

    def counted(self, now_ns: int, item: BytesCounted) -> Iterator[Effect]:
        """An agent reports byte counts. Counts of the future, or with another bin width, are ignored."""
        watch, window = self._watches.get(item.job), self._queue.window
        if watch is None or item.bin_ns != self._settings.bin_ns or item.host not in watch.job.hosts:
            return
        bins = max((len(sent) for _, sent in item.flows), default=0)
        if item.start_ns + bins * item.bin_ns > now_ns + CLOCK_TOLERANCE_NS:
            return
        # An agent that cannot tell flows apart counts the whole NIC under an empty name.
        known = {f.name: f.name for f in watch.job.flows} | {"": item.host}
        for flow, sent in item.flows:
            if flow in known:
                watch.series.add(known[flow], item.start_ns, sent)
        watch.flops.append((item.start_ns, item.start_ns + bins * item.bin_ns, item.flops))
        if window is not None and window.job == item.job:
            yield from self._conclude(watch)
        elif watch.job.silent and watch.job.measured is not None:
            self._watch_silent(watch)
        elif (
            watch.job.silent
            and 0 < watch.watched_ns < item.start_ns - RETRY_WINDOWS * self._settings.window_ns
        ):
            self._again(watch)

    def due(self, now_ns: int) -> Iterator[Effect]:
        """If the measurement window is over, conclude with what was seen."""
        window = self._queue.window
        if window is not None and window.until_ns is not None and now_ns >= window.until_ns:
            yield from self._conclude(self._watches[window.job], last=True)

    def take_measured(self) -> tuple[Job, ...]:
        """The jobs whose measurement has ended, with their measured profiles. Each is returned once."""
        finished, self._finished = tuple(self._finished), []
        return finished

    def take_plan_request(self) -> bool:
        """Whether a new plan is needed since the last call."""
        wish, self._wants_plan = self._wants_plan, False
        return wish

    # Internal.

    def _ask(self, host: str, job: str, *, stop: bool = False) -> SendMeasure:
        settings = self._settings
        return SendMeasure(
            host, job, 0 if stop else settings.bin_ns, settings.report_ns, job == self.profiled
        )

    def _conclude(self, watch: JobWatch, *, last: bool = False) -> Iterator[Effect]:
        """End the measurement once enough was seen, or, with `last`, because its window is over."""
        window = self._queue.window
        if window is None or window.begun_ns is None:
            return
        enough = self._settings.iterations
        covered = watch.series.covered_until(1)
        result: Job | None = None
        if watch.job.silent:
            until = watch.series.covered_until(len(watch.job.flows) if not last else 1)
            if last or until - window.begun_ns > GROWTH_FACTOR * (watch.tried_ns - window.begun_ns):
                watch.tried_ns = until
                flops = watch.flops_between(window.begun_ns, until)
                result = from_bytes(watch.job, watch.series, window.begun_ns, until, flops)
            if result is not None and result.measured is not None and not last:
                result = result if result.measured.iterations >= SILENT_FACTOR * enough else None
        else:
            usable = counting(watch.samples, watch.plan_changes_ns)
            seen = sum(s.rank == 0 and s.end_ns <= covered for s in usable)
            # Do not wait for byte counts if no agent of the job counts bytes.
            uncounted = not watch.series.flows and len(watch.samples) >= 2 * enough * len(watch.job.hosts)
            ranks = {s.rank for s in usable}
            ready = uncounted or (seen >= enough and len(ranks) == len(watch.job.hosts))
            if last or (ready and exact(usable, enough)):
                result = from_iterations(watch.job, watch.samples, watch.series, watch.plan_changes_ns)
        if result is None and not last:
            return
        if result is not None and self._doubts(watch, result):
            watch.doubted.append(result)
            until_ns = (window.until_ns or 0) if last else 0
            now_ns = max(covered, window.begun_ns, until_ns, *(s.end_ns for s in watch.samples))
            self._queue.begin_again(now_ns)
            self._clear(watch, now_ns)
            return
        self._queue.end()
        self._wants_plan = True
        for host in dict.fromkeys(watch.job.hosts):
            yield self._ask(host, watch.job.name, stop=not watch.job.silent)
        if result is None:
            log.warning(
                "job %s could not be measured: too few iterations in %g s; plans use its declared profile",
                watch.job.name,
                self._settings.window_ns / 1e9,
            )
            watch.watched_ns = window.until_ns or covered
            watch.series.forget(watch.watched_ns)
            return
        self._remember(watch, result, covered)

    def _doubts(self, watch: JobWatch, result: Job) -> bool:
        """Whether a measurement is made again before it is believed.

        That is so if it is the first one of the job, contradicts what the job declares, and no measurement
        before it says the same.
        """
        declared = watch.job
        if declared.measured is not None or not declared.profile.phases:
            return False
        agreed = any(near(one, result) for one in (declared, *watch.doubted))
        if agreed or len(watch.doubted) >= MOST_MEASUREMENTS - 1:
            return False
        log.info(
            "job %s: its iterations take %.1f ms, %.1f of them communicating, but it declares %.1f and %.1f "
            "ms; it is measured again before the plan believes that",
            result.name,
            result.profile.period_ns / 1e6,
            result.profile.up_ns / 1e6,
            declared.profile.period_ns / 1e6,
            declared.profile.up_ns / 1e6,
        )
        return True

    def _remember(self, watch: JobWatch, result: Job, now_ns: int) -> None:
        before, watch.job = watch.job, result
        measured = result.measured
        assert measured is not None
        watch.alarms = watch.alarms + 1 if alike(before, result) else 0
        watch.rest = REST_FACTOR * self._settings.iterations << min(watch.alarms, 8)
        watch.watched_ns = now_ns
        watch.unlike = 0
        if not result.silent:
            first = [s for s in counting(watch.samples, watch.plan_changes_ns) if s.rank == 0]
            watch.detector = detector_of(first)
            watch.series = Series(self._settings.bin_ns)
        self._finished.append(result)
        log.info(
            "job %s was measured over %d iterations: period %.1f ms, of which it communicates for %.1f ms",
            result.name,
            measured.iterations,
            result.profile.period_ns / 1e6,
            measured.communication_ns / 1e6,
        )

    def _compare(self, watch: JobWatch, item: IterationReport) -> None:
        """Check whether the job's rank 0 still behaves as measured."""
        own = sample_of(item)
        if item.rank != 0:
            return
        if watch.detector is None and watch.job.measured is not None:
            # It was measured before a restart: its first iterations are what later ones are compared with.
            watch.samples.append(own)
            if len(watch.samples) == self._settings.iterations:
                watch.detector = detector_of(watch.samples)
            return
        if watch.detector is None:
            # The job could not be measured: it began late, or was compiling. Measure it now that its
            # iterations fit into a window.
            if item.start_ns > watch.watched_ns > 0 and 2 * own.own_ns < self._settings.window_ns:
                self._again(watch)
            return
        watch.rest = max(0, watch.rest - 1)
        if watch.detector.add(own.bytes_sent, own.quiet_ns):
            self._changed(watch, f"it sent {own.bytes_sent:,} bytes in iteration {item.index}")

    def _watch_silent(self, watch: JobWatch) -> None:
        """Check the last few periods of a silent job by its byte counts."""
        job = watch.job
        until = watch.series.covered_until(len(job.flows))
        if until - watch.watched_ns < WATCHED_PERIODS * job.profile.period_ns:
            return
        since = max(watch.watched_ns, until - KEPT * watch.series.bin_ns)
        table, _ = watch.series.window(since, until)
        watch.watched_ns = until
        watch.series.forget(until)
        watch.flops.clear()
        watch.rest = max(0, watch.rest - WATCHED_PERIODS)
        sent = float(sum(f.bytes_per_iteration for f in job.flows))
        silence = longest_silence(job.profile)
        unlike = looks_changed(table.sum(axis=0), self._settings.bin_ns, sent, silence)
        watch.unlike = watch.unlike + 1 if unlike else 0
        if watch.unlike >= WATCHED_AGREEING:
            watch.unlike = 0
            self._changed(watch, "its byte counts do not match the measured iterations")

    def _changed(self, watch: JobWatch, how: str) -> None:
        if watch.rest:
            return
        watch.changes += 1
        log.info(
            "job %s has changed its communication pattern (%s); it is measured again", watch.job.name, how
        )
        self._again(watch)

    def _again(self, watch: JobWatch) -> None:
        self._queue.add(watch.job.name, first=True)
        self._wants_plan = True
