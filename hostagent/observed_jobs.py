# SPDX-License-Identifier: Apache-2.0
"""Jobs that do not report by themselves, observed live in the records of NCCL or of the NIC's counters.

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
from hostagent.observed_iterations import find_profile, iterations
from hostagent.phases import ObservedProfile
from hostagent.record_files import GrowingFiles
from hostagent.records import CommunicationInterval, CounterReadings, RecordReader

log = logging.getLogger(__name__)

_POLL_NS = 100_000_000
_LOOK_NS = 2_000_000_000
_LOOKS_BETWEEN = 5
"""A rhythm is looked for so often, and one that was found is looked at again each so many times."""
_MOST_STRETCHES = 20_000
_SETTLE_NS = 500_000_000
"""Ranks write their files one after another: what is younger may not be whole yet."""
_CHANGED = 0.15
"""Another period by more than this part, seen in so many looks, is another rhythm."""
_CHANGED_LOOKS = 2
_LOST_PERIODS = 8
"""After so many periods without an iteration the next is looked for from here on."""
_DELAYS = 64
_SILENT_NS = 30_000_000_000
_SILENT_PERIODS = 20
_MOST_COMPLAINTS = 10


class ObservedJobs:
    """All observed jobs of an agent's configuration. `line_bps`: the rate of the NIC; `counter` creates a
    reader of the NIC's byte counter.
    """

    def __init__(
        self,
        settings: tuple[ObservedJobSettings, ...],
        agent: Agent,
        loop: AgentLoop,
        *,
        line_bps: int,
        counter: Callable[[], ByteSource] | None,
    ) -> None:
        self._pool = ThreadPoolExecutor(1, "rhythm")
        self._jobs = [_ObservedJob(job, agent, loop, self._pool, line_bps, counter) for job in settings]
        self._loop = loop
        if self._jobs:
            loop.every(_POLL_NS, self._poll)
            loop.every(_LOOK_NS, self._look)
        for job, told in zip(self._jobs, settings, strict=True):
            if not told.record:
                loop.every(int(told.sample_ms * 1e6), job.sample)

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
        counter: Callable[[], ByteSource] | None,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._agent = agent
        self._loop = loop
        self._line_bps = line_bps
        self._busy: deque[CommunicationInterval] = deque(maxlen=_MOST_STRETCHES)
        self._guest: ExternalWorker | None = None
        self._rhythm: ObservedProfile | None = None
        self._other = 0
        self._index = 0
        self._since = 0
        self._begins = False
        self._told_ns = 0
        self._looks = 0
        self._fresh: list[int] = []
        self._delays: deque[int] = deque(maxlen=_DELAYS)
        self._complaints = 0
        self._files = GrowingFiles(Path(settings.record), self._reader) if settings.record else None
        self._readings = CounterReadings()
        self._counter = counter() if counter is not None and self._files is None else None

    def poll(self) -> None:
        """Read what was added to the record, and report the iterations in it."""
        if self._files is not None:
            for reader, fresh in self._files.poll():
                for stretch in reader.feed(fresh):
                    self._take(stretch)
        if self._fresh:
            self._delays.append(min(self._fresh))
            self._fresh.clear()
        if self._guest is not None and self._rhythm is not None:
            self._report(self._guest, self._rhythm)

    def sample(self) -> None:
        """Read the NIC's counter."""
        if self._counter is None:
            return
        try:
            # The loop's time is when this was due; a late reading is of now.
            stretch = self._readings.reading(self._loop.present(), self._counter()[""] // OCTETS)
        except (OSError, ValueError) as error:
            self._complain(str(error))
            return
        if stretch is not None and stretch.size:
            self._take(stretch)

    def look(self) -> None:
        """Check the profile: does the job run, has its period changed, has it ended?"""
        newest = max((b.end_ns for b in self._busy), default=0)
        while self._busy and self._busy[0].end_ns < newest - self._settings.window_s * 10**9:
            self._busy.popleft()
        if self._rhythm is not None and self._is_silent(newest, self._rhythm):
            log.info("job %s: its record stands still; it has left", self._settings.name)
            self._leave()
            self._busy.clear()
        elif self._busy and (self._rhythm is None or self._looks >= _LOOKS_BETWEEN):
            self._looks = 0
            self._pool.submit(self._search, tuple(self._busy))
        self._looks += 1

    def _search(self, busy: tuple[CommunicationInterval, ...]) -> None:
        self._loop.call(self._found, find_profile(busy))

    def _found(self, found: ObservedProfile | None) -> None:
        if found is None or not self._busy:
            return
        if self._rhythm is None:
            self._enter(found)
            return
        was = self._rhythm.period_ns
        changed = abs(found.period_ns - was) > _CHANGED * was
        self._other = self._other + 1 if changed else 0
        if self._other >= _CHANGED_LOOKS:
            log.info("job %s: its period is no longer %.1f ms", self._settings.name, was / 1e6)
            self._leave()
            self._enter(found)

    def stop(self) -> None:
        """Stop observing."""
        if self._files is not None:
            self._files.close()
        self._leave()

    # -- inside

    def _take(self, stretch: CommunicationInterval) -> None:
        self._busy.append(stretch)
        self._fresh.append(self._loop.present() - stretch.end_ns)

    @property
    def _to_local_ns(self) -> int:
        return min(self._delays, default=0)

    def _is_silent(self, newest: int, rhythm: ObservedProfile) -> bool:
        patience = max(_SILENT_NS, _SILENT_PERIODS * rhythm.period_ns)
        return self._loop.now - (newest + self._to_local_ns) > patience

    def _enter(self, rhythm: ObservedProfile) -> None:
        """Let the job join with the profile that was found."""
        told = self._settings
        newest = max(b.end_ns for b in self._busy)
        sent = sum(b.size for b in self._busy if b.start_ns >= newest - 4 * rhythm.period_ns) // 4
        ring = told.ring or tuple(pairwise((*told.hosts, told.hosts[0])))
        flows = max(1, sum(src == self._agent.host for src, _ in ring))
        join = JoinMessage(
            job=told.name, hosts=told.hosts, rank=told.hosts.index(self._agent.host), ring=told.ring,
            model=told.model, gpus=told.gpus, flops_per_iteration=told.flops_per_iteration,
            # A collective's message is not what goes on the wire; the NIC's counter is.
            bytes_per_flow=told.bytes_per_flow or (0 if told.record else sent // flows),
            period_ns=rhythm.period_ns, phases=rhythm.phases,
        )  # fmt: skip
        try:
            guest = ExternalWorker(join.spec(self._line_bps), join.rank, _nobody, self._agent.time.to_local)
            self._agent.add_worker(guest, self._loop.now)
        except ValueError as error:
            self._complain(str(error))
            return
        phases = ", ".join(f"{start / 1e6:.0f}-{end / 1e6:.0f}" for start, end in rhythm.phases)
        log.info("job %s: a period of %.1f ms, Up %s ms", told.name, rhythm.period_ns / 1e6, phases)
        self._guest, self._rhythm, self._other = guest, rhythm, 0
        self._since, self._begins = newest - 2 * rhythm.period_ns, False

    def _leave(self) -> None:
        if self._guest is not None:
            self._guest.done = True
            self._agent.job_left(self._guest)
        self._guest = self._rhythm = None
        self._index = self._told_ns = 0

    def _report(self, guest: ExternalWorker, rhythm: ObservedProfile) -> None:
        offset = self._to_local_ns
        until = self._loop.now - offset - _SETTLE_NS
        if until - self._since < rhythm.period_ns // 2:
            return
        records = []
        for done in iterations(self._lately(rhythm), rhythm, self._since, until, begins=self._begins):
            self._since, self._begins = done.end_ns, True
            # The least delay may have fallen since the last report: iterations never overlap for it.
            start_ns = max(self._told_ns, done.start_ns + offset)
            self._told_ns = max(start_ns, done.end_ns + offset)
            step = StepMessage(
                index=self._index,
                start_ns=start_ns,
                end_ns=self._told_ns,
                communication_ns=done.communication_ns,
            )
            self._index += 1
            records.append(guest.record(step))
        self._agent.report(*records)
        if until - self._since > _LOST_PERIODS * rhythm.period_ns:
            self._since, self._begins = until - 2 * rhythm.period_ns, False

    def _lately(self, rhythm: ObservedProfile) -> list[CommunicationInterval]:
        """The intervals since the last iteration. Those of several ranks arrive in no strict order."""
        found = []
        for stretch in reversed(self._busy):
            if stretch.end_ns < self._since - 2 * rhythm.period_ns:
                break
            found.append(stretch)
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
