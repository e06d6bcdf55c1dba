# SPDX-License-Identifier: Apache-2.0
"""Jobs that do not report by themselves, observed live: in the records of NCCL, by the NIC's counters, or by
the bytes of their connections.

When a record shows a period, the job joins with its profile, as if it had reported it. Each iteration in the
record is reported. A job whose period changes joins again, and a job whose record stops growing has ended.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from hostagent.agent import Agent
from hostagent.config import ObservedJobSettings
from hostagent.counts import OCTETS, ByteSource
from hostagent.external_worker import ExternalWorker, JoinMessage, StepMessage
from hostagent.loop import AgentLoop
from hostagent.observed_iterations import BelievedProfile, find_profile, iterations
from hostagent.phases import ObservedProfile
from hostagent.record_files import GrowingFiles
from hostagent.records import CommunicationInterval, CounterReadings, RecordReader

log = logging.getLogger(__name__)

_POLL_NS = 100_000_000
_LOOK_NS = 2_000_000_000
_LOOKS_BETWEEN = 5
"""A profile is searched for every _LOOK_NS. While one is believed, it is checked every so many of these
rounds."""
_MOST_STRETCHES = 20_000
_SETTLE_NS = 500_000_000
"""Iterations that ended less than this ago are not reported yet: ranks write their files one after
another."""
_LOST_PERIODS = 8
"""After so many periods without an iteration, older intervals are skipped. Chosen."""
_DELAYS = 64
_SILENT_NS = 30_000_000_000
_SILENT_PERIODS = 20
_MOST_COMPLAINTS = 10


class ObservedJobs:
    """All observed jobs of an agent's configuration. `line_bps`: the rate of the NIC; `counter` creates a
    reader of the bytes that a job without a record sends; None: they are not counted.
    """

    def __init__(
        self,
        settings: tuple[ObservedJobSettings, ...],
        agent: Agent,
        loop: AgentLoop,
        *,
        line_bps: int,
        counter: Callable[[ObservedJobSettings], ByteSource | None],
    ) -> None:
        self._pool = ThreadPoolExecutor(1, "profile")
        self._jobs = [_ObservedJob(job, agent, loop, self._pool, line_bps, counter) for job in settings]
        self._loop = loop
        if self._jobs:
            loop.every(_POLL_NS, self._poll)
            loop.every(_LOOK_NS, self._look)
        for job, its_settings in zip(self._jobs, settings, strict=True):
            if not its_settings.record:
                loop.every(int(its_settings.sample_ms * 1e6), job.sample)

    def stop(self) -> None:
        """Stop observing: the jobs end for the controller."""
        for job in self._jobs:
            job.stop()
        self._pool.shutdown(cancel_futures=True)

    def _poll(self) -> None:
        for job in self._jobs:
            job.poll()

    def _look(self) -> None:
        for job in self._jobs:
            job.look()


class _ObservedJob:
    """One job. Its profile is searched for in a thread of `pool`, because the agent's own thread has to
    answer new flows.

    The least recent delay between the end of an interval and its reading converts times of the record into
    the host's, so the record may use any clock.
    """

    def __init__(
        self,
        settings: ObservedJobSettings,
        agent: Agent,
        loop: AgentLoop,
        pool: ThreadPoolExecutor,
        line_bps: int,
        counter: Callable[[ObservedJobSettings], ByteSource | None],
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._agent = agent
        self._loop = loop
        self._line_bps = line_bps
        self._busy: deque[CommunicationInterval] = deque(maxlen=_MOST_STRETCHES)
        self._worker: ExternalWorker | None = None
        self._believed = BelievedProfile()
        self._index = 0
        self._since = 0
        self._begins = False
        self._reported_ns = 0
        self._looks = 0
        self._fresh: list[int] = []
        self._delays: deque[int] = deque(maxlen=_DELAYS)
        self._complaints = 0
        self._files = GrowingFiles(Path(settings.record), self._reader) if settings.record else None
        self._readings = CounterReadings()
        self._counter = counter(settings) if self._files is None else None

    def poll(self) -> None:
        """Read what was added to the record, and report the iterations in it."""
        if self._files is not None:
            for reader, fresh in self._files.poll():
                for interval in reader.feed(fresh):
                    self._take(interval)
        if self._fresh:
            self._delays.append(min(self._fresh))
            self._fresh.clear()
        if self._worker is not None and self._believed.profile is not None:
            self._report(self._worker, self._believed.profile)

    def sample(self) -> None:
        """Read the counter."""
        if self._counter is None:
            return
        try:
            # The loop's time is when this was due. The reading may be late, so it gets the present time.
            interval = self._readings.reading(self._loop.present(), self._counter()[""] // OCTETS)
        except (OSError, ValueError) as error:
            self._complain(str(error))
            return
        if interval is not None and interval.size:
            self._take(interval)

    def look(self) -> None:
        """Check the profile: does the job run, has its period changed, has it ended?"""
        newest = max((b.end_ns for b in self._busy), default=0)
        while self._busy and self._busy[0].end_ns < newest - self._settings.window_s * 10**9:
            self._busy.popleft()
        profile = self._believed.profile
        if profile is not None and self._is_silent(newest, profile):
            log.info("job %s: its record does not grow any more; the job has ended", self._settings.name)
            self._leave()
            self._believed.forget()
            self._busy.clear()
        elif self._busy and (self._believed.doubted or self._looks >= _LOOKS_BETWEEN):
            self._looks = 0
            self._pool.submit(self._search, tuple(self._busy))
        self._looks += 1

    def _search(self, busy: tuple[CommunicationInterval, ...]) -> None:
        self._loop.call(self._found, find_profile(busy))

    def _found(self, found: ObservedProfile | None) -> None:
        if not self._busy:
            return
        was = self._believed.profile
        if self._believed.found(found) and was is not None:
            log.info("job %s: its period is no longer %.1f ms", self._settings.name, was.period_ns / 1e6)
            self._leave()
        if self._worker is None and self._believed.profile is not None:
            self._enter(self._believed.profile)

    def stop(self) -> None:
        """Stop observing."""
        if self._files is not None:
            self._files.close()
        self._leave()

    def _take(self, interval: CommunicationInterval) -> None:
        self._busy.append(interval)
        self._fresh.append(self._loop.present() - interval.end_ns)

    @property
    def _to_local_ns(self) -> int:
        return min(self._delays, default=0)

    def _is_silent(self, newest: int, profile: ObservedProfile) -> bool:
        patience = max(_SILENT_NS, _SILENT_PERIODS * profile.period_ns)
        return self._loop.now - (newest + self._to_local_ns) > patience

    def _enter(self, profile: ObservedProfile) -> None:
        """Let the job join with the profile that was found."""
        settings = self._settings
        newest = max(b.end_ns for b in self._busy)
        sent = sum(b.size for b in self._busy if b.start_ns >= newest - 4 * profile.period_ns) // 4
        ring = settings.ring or tuple(pairwise((*settings.hosts, settings.hosts[0])))
        flows = max(1, sum(src == self._agent.host for src, _ in ring))
        join = JoinMessage(
            job=settings.name, hosts=settings.hosts, ring=settings.ring,
            rank=settings.hosts.index(self._agent.host),
            model=settings.model, gpus=settings.gpus, flops_per_iteration=settings.flops_per_iteration,
            # Records give message sizes of collectives; only counters give what is sent.
            bytes_per_flow=settings.bytes_per_flow or (0 if settings.record else sent // flows),
            period_ns=profile.period_ns, phases=profile.phases,
        )  # fmt: skip
        try:
            worker = ExternalWorker(join.spec(self._line_bps), join.rank, _nobody, self._agent.time.to_local)
            self._agent.add_worker(worker, self._loop.now)
        except ValueError as error:
            self._complain(str(error))
            return
        phases = ", ".join(f"{start / 1e6:.0f}-{end / 1e6:.0f}" for start, end in profile.phases)
        log.info("job %s: period %.1f ms, Up phases %s ms", settings.name, profile.period_ns / 1e6, phases)
        self._worker = worker
        self._since, self._begins = newest - 2 * profile.period_ns, False

    def _leave(self) -> None:
        if self._worker is not None:
            self._worker.done = True
            self._agent.job_left(self._worker)
        self._worker = None
        self._index = self._reported_ns = 0

    def _report(self, worker: ExternalWorker, profile: ObservedProfile) -> None:
        offset = self._to_local_ns
        until = self._loop.now - offset - _SETTLE_NS
        if until - self._since < profile.period_ns // 2:
            return
        records = []
        for done in iterations(self._lately(profile), profile, self._since, until, begins=self._begins):
            self._since, self._begins = done.end_ns, True
            # The least delay may have decreased since the last report. Iterations must not overlap because of
            # it.
            start_ns = max(self._reported_ns, done.start_ns + offset)
            self._reported_ns = max(start_ns, done.end_ns + offset)
            step = StepMessage(
                index=self._index,
                start_ns=start_ns,
                end_ns=self._reported_ns,
                communication_ns=done.communication_ns,
            )
            self._index += 1
            records.append(worker.record(step))
        self._agent.report(*records)
        if until - self._since > _LOST_PERIODS * profile.period_ns:
            self._since, self._begins = until - 2 * profile.period_ns, False

    def _lately(self, profile: ObservedProfile) -> list[CommunicationInterval]:
        """The intervals since the last iteration. Those of several ranks arrive in no strict order."""
        found = []
        for interval in reversed(self._busy):
            if interval.end_ns < self._since - 2 * profile.period_ns:
                break
            found.append(interval)
        return found

    def _reader(self, path: Path) -> RecordReader:
        return RecordReader(lambda what: self._complain(f"{path}: {what}"))

    def _complain(self, what: str) -> None:
        """Log an error of the record, up to a number: a record may be wrong for hours."""
        self._complaints += 1
        if self._complaints <= _MOST_COMPLAINTS:
            log.warning("job %s: %s", self._settings.name, what)


def _nobody(_: Mapping[str, Any]) -> None:
    """Drop the events for an observed job: it has no connection with the agent."""
