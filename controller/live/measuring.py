# SPDX-License-Identifier: Apache-2.0
"""Measuring the jobs on the fabric: who is profiled, what came of it, who has changed since.

It takes inputs and gives effects like the rest of the core, and touches nothing. `controller/measure` has
what is decided; here is whose reports and counts it is decided from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from controller.live.messages import BytesCounted, Effect, IterationReport, SendMeasure
from controller.measure.change import ChangeDetector, longest_silence, looks_changed
from controller.measure.iteration import Sample, from_bytes, from_iterations
from controller.measure.profiling_queue import ProfilingQueue, with_job_on_top
from controller.measure.series import KEPT, Series
from controller.model.job import Job
from controller.model.plan import Plan, Policy
from controller.model.traffic import TRAFFIC_CLASSES

log = logging.getLogger(__name__)

# A silent job is watched in windows of so many of its periods, and has changed when two in a row say so.
WATCHED_PERIODS = 10
WATCHED_AGREEING = 2
# Its period is known from more iterations than that of one that reports them.
SILENT_FACTOR = 2
# A job that was measured is not measured again before it has run so many times as many iterations, and
# twice as many after each time that nothing had changed.
REST = 3
# A silent job that could not be measured gets another turn after so many windows.
RETRY = 4
# Agents' clocks may be so far ahead of the controller's.
CLOCKS_OFF_NS = 1_000_000_000
# So much longer than the last time a silent job's counts have to be to be looked at again.
LONGER = 1.15
ALIKE = 0.02


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """How jobs are measured. `enabled` False: a job is what it declares.

    `window_ns` is the longest that a job is profiled, which ends as soon as `iterations` are seen. Bytes
    are counted in bins of `bin_ns` and reported every `report_ns`.
    """

    enabled: bool = True
    window_ns: int = 30_000_000_000
    iterations: int = 6
    bin_ns: int = 5_000_000
    report_ns: int = 250_000_000


AS_DECLARED = MeasureSettings(enabled=False)
"""Jobs are what they declare."""


def depends_on_profiles(policy: Policy) -> bool:
    """Whether anything that a policy decides depends on what jobs do."""
    return policy.priority != "equal" or policy.interleave != "none"


def with_paths_of(plan: Plan, shown: Plan) -> Plan:
    """A plan with its flows on the paths of another, and all else as it is."""
    flows = {
        name: replace(flow, path=at.path, source_port=at.source_port, why=at.why)
        for name, flow in plan.flows.items()
        if (at := shown.flows.get(name)) is not None
    }
    return replace(plan, flows={**plan.flows, **flows})


@dataclass(slots=True)
class _Watch:
    """What is known of one job: its samples and counts while it is measured, and how to notice a change."""

    job: Job
    series: Series
    samples: list[Sample] = field(default_factory=list)
    flops: list[tuple[int, int, float]] = field(default_factory=list)
    detector: ChangeDetector | None = None
    rest: int = 0
    alarms: int = 0
    watched_ns: int = 0
    tried_ns: int = 0
    unlike: int = 0
    changes: int = 0


class JobMeasurement:
    """The jobs' measurements. `measured` takes what `take_measured` gives, and the core plans anew."""

    def __init__(self, settings: MeasureSettings) -> None:
        self._settings = settings
        self._queue = ProfilingQueue(settings.window_ns)
        self._watches: dict[str, _Watch] = {}
        self._finished: list[Job] = []
        self._wants_plan = False

    @property
    def profiled(self) -> str | None:
        """The job that is being measured."""
        return self._queue.window.job if self._queue.window is not None else None

    @property
    def next_timer_ns(self) -> int | None:
        """When the window under way is over."""
        return self._queue.window.until_ns if self._queue.window is not None else None

    def changes(self, job: str) -> int:
        """How often a job has changed its pattern since it came."""
        watch = self._watches.get(job)
        return watch.changes if watch is not None else 0

    def waits(self, job: str) -> bool:
        """Whether a job is still to be measured, or is being measured."""
        return self._queue.contains(job)

    # What happens.

    def arrived(self, job: Job) -> None:
        """A job is there: it wants a turn, if it sends anything at all."""
        if self._settings.enabled and any(f.src != f.dst for f in job.flows):
            self._watches[job.name] = _Watch(job, Series(self._settings.bin_ns))
            self._queue.add(job.name)

    def left(self, job: str) -> None:
        """A job is gone."""
        if self._watches.pop(job, None) is not None:
            self._queue.forget(job)

    def agent_up(self, host: str) -> Iterator[Effect]:
        """An agent that has started again counts nothing until it is asked."""
        for name, watch in self._watches.items():
            if host in watch.job.hosts and (watch.job.silent or name == self.profiled):
                yield self._ask(host, name)

    def choose(self) -> None:
        """A plan is about to be made: the next job's turn begins with it."""
        self._queue.next_job()

    def overlay(self, plan: Plan) -> Plan:
        """The plan with the job whose turn it is on top."""
        job = self.profiled
        return plan if job is None else with_job_on_top(plan, job, TRAFFIC_CLASSES.levels)

    def adopted(self, now_ns: int) -> Iterator[Effect]:
        """The plan is in force: the window of the job on top opens."""
        if not self._queue.begin(now_ns) or self.profiled is None:
            return
        watch = self._watches[self.profiled]
        watch.samples.clear()
        watch.flops.clear()
        watch.series = Series(self._settings.bin_ns)
        watch.tried_ns = now_ns
        log.info("job %s is being measured, %d more wait", watch.job.name, self._queue.waiting)
        for host in dict.fromkeys(watch.job.hosts):
            yield self._ask(host, watch.job.name)

    def iteration(self, now_ns: int, item: IterationReport) -> Iterator[Effect]:
        """A worker reports an iteration. One that cannot have been is not counted."""
        watch, window = self._watches.get(item.job), self._queue.window
        if watch is None or not _possible(item, now_ns):
            return
        if window is None or window.job != item.job:
            self._compare(watch, item)
        elif window.begun_ns is not None and item.start_ns >= window.begun_ns and item.index > 0:
            watch.samples.append(_sample(item))
            yield from self._conclude(watch)

    def counted(self, now_ns: int, item: BytesCounted) -> Iterator[Effect]:
        """An agent's byte counts. Those of the future, or of another grid, are not counted."""
        watch, window = self._watches.get(item.job), self._queue.window
        if watch is None or item.bin_ns != self._settings.bin_ns or item.host not in watch.job.hosts:
            return
        bins = max((len(sent) for _, sent in item.flows), default=0)
        if item.start_ns + bins * item.bin_ns > now_ns + CLOCKS_OFF_NS:
            return
        # A source that cannot tell flows apart counts the whole NIC.
        known = {f.name: f.name for f in watch.job.flows} | {"": item.host}
        for flow, sent in item.flows:
            if flow in known:
                watch.series.add(known[flow], item.start_ns, sent)
        watch.flops.append((item.start_ns, item.start_ns + bins * item.bin_ns, item.flops))
        if window is not None and window.job == item.job:
            yield from self._conclude(watch)
        elif watch.job.silent and watch.job.measured is not None:
            self._watch_silent(watch)
        elif watch.job.silent and 0 < watch.watched_ns < item.start_ns - RETRY * self._settings.window_ns:
            self._again(watch)

    def due(self, now_ns: int) -> Iterator[Effect]:
        """The window may be over: what was seen has to do."""
        window = self._queue.window
        if window is not None and window.until_ns is not None and now_ns >= window.until_ns:
            yield from self._conclude(self._watches[window.job], last=True)

    def take_measured(self) -> tuple[Job, ...]:
        """The jobs whose measurement has ended, with what it showed; taken once."""
        finished, self._finished = tuple(self._finished), []
        return finished

    def take_wish(self) -> bool:
        """Whether a plan is wanted for what has happened here; taken once."""
        wish, self._wants_plan = self._wants_plan, False
        return wish

    # Inside.

    def _ask(self, host: str, job: str, *, stop: bool = False) -> SendMeasure:
        settings = self._settings
        return SendMeasure(
            host, job, 0 if stop else settings.bin_ns, settings.report_ns, job == self.profiled
        )

    def _conclude(self, watch: _Watch, *, last: bool = False) -> Iterator[Effect]:
        """End the window once enough has been seen, or when it is over."""
        window = self._queue.window
        if window is None or window.begun_ns is None:
            return
        enough = self._settings.iterations
        covered = watch.series.covered_until(1)
        result: Job | None = None
        if watch.job.silent:
            until = watch.series.covered_until(len(watch.job.flows) if not last else 1)
            if last or until - window.begun_ns > LONGER * (watch.tried_ns - window.begun_ns):
                watch.tried_ns = until
                flops = self._flops(watch, window.begun_ns, until)
                result = from_bytes(watch.job, watch.series, window.begun_ns, until, flops)
            if result is not None and result.measured is not None and not last:
                result = result if result.measured.iterations >= SILENT_FACTOR * enough else None
        else:
            seen = sum(s.rank == 0 and s.end_ns <= covered for s in watch.samples)
            # Whoever counts no bytes at all is not waited for.
            uncounted = not watch.series.flows and len(watch.samples) >= 2 * enough * len(watch.job.hosts)
            ranks = {s.rank for s in watch.samples}
            if last or uncounted or (seen >= enough and len(ranks) == len(watch.job.hosts)):
                result = from_iterations(watch.job, watch.samples, watch.series)
        if result is None and not last:
            return
        self._queue.end()
        self._wants_plan = True
        for host in dict.fromkeys(watch.job.hosts):
            yield self._ask(host, watch.job.name, stop=not watch.job.silent)
        if result is None:
            log.warning("job %s could not be measured; it counts as it declares", watch.job.name)
            watch.watched_ns = window.until_ns or covered
            watch.series.forget(watch.watched_ns)
            return
        self._remember(watch, result, covered)

    def _remember(self, watch: _Watch, result: Job, now_ns: int) -> None:
        before, watch.job = watch.job, result
        measured = result.measured
        assert measured is not None
        watch.alarms = watch.alarms + 1 if _alike(before, result) else 0
        watch.rest = REST * self._settings.iterations << min(watch.alarms, 8)
        watch.watched_ns = now_ns
        watch.unlike = 0
        if not result.silent:
            first = [s for s in watch.samples if s.rank == 0]
            sent = round(sum(s.bytes_sent for s in first) / len(first))
            quiet = round(sum(s.own_ns - s.communication_ns for s in first) / len(first))
            watch.detector = ChangeDetector(sent, quiet)
            watch.series = Series(self._settings.bin_ns)
        self._finished.append(result)
        log.info(
            "job %s measured over %d iterations: %.1f ms, %.1f of them communicating",
            result.name,
            measured.iterations,
            result.profile.period_ns / 1e6,
            measured.communication_ns / 1e6,
        )

    def _compare(self, watch: _Watch, item: IterationReport) -> None:
        """Look whether the job's first worker still does what was measured."""
        own = _sample(item)
        if item.rank != 0:
            return
        if watch.detector is None:
            # It has begun late, or was compiling: once an iteration would fit, it gets another turn.
            if item.start_ns > watch.watched_ns > 0 and 2 * own.own_ns < self._settings.window_ns:
                self._again(watch)
            return
        watch.rest = max(0, watch.rest - 1)
        if watch.detector.add(own.bytes_sent, own.own_ns - own.communication_ns):
            self._changed(watch, f"{own.bytes_sent} bytes in iteration {item.index}")

    def _watch_silent(self, watch: _Watch) -> None:
        """Look at the last few periods of a job that only its bytes tell of."""
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
            self._changed(watch, "its bytes do not add up to the measured iterations")

    def _changed(self, watch: _Watch, how: str) -> None:
        if watch.rest:
            return
        watch.changes += 1
        log.info("job %s has changed its pattern (%s); it is measured again", watch.job.name, how)
        self._again(watch)

    def _again(self, watch: _Watch) -> None:
        self._queue.add(watch.job.name, first=True)
        self._wants_plan = True

    def _flops(self, watch: _Watch, begin_ns: int, end_ns: int) -> float:
        """What the job's GPUs did in a window, by the reports that lie in it."""
        inside = [(a, b, f) for a, b, f in watch.flops if a >= begin_ns and b <= end_ns]
        span = sum(b - a for a, b, _ in inside) / max(1, len(watch.job.hosts))
        return sum(f for _, _, f in inside) * (end_ns - begin_ns) / span if span else 0.0


def _alike(before: Job, after: Job) -> bool:
    """Whether a second measurement shows what the first one did."""
    if before.measured is None:
        return False
    figures = [
        (float(sum(f.bytes_per_iteration for f in j.flows)), float(j.profile.period_ns))
        for j in (before, after)
    ]
    return all(abs(new - old) <= ALIKE * old for old, new in zip(*figures, strict=True))


def _possible(item: IterationReport, now_ns: int) -> bool:
    """Whether a report can be true: its times are in order, and not of the future."""
    length = item.end_ns - item.start_ns
    in_order = length - item.held_ns > 0 and max(item.communication_ns, item.compute_ns) <= length
    return in_order and item.end_ns <= now_ns + CLOCKS_OFF_NS


def _sample(item: IterationReport) -> Sample:
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
