# SPDX-License-Identifier: Apache-2.0
"""After a start: which agents have reported, and which workers that an earlier controller knew are gone."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from controller.live.job_registry import RegisteredJob
from controller.live.messages import AgentUp, Input, WorkerLeft, WorkersListed

log = logging.getLogger(__name__)

# How long after its Hello an agent may take to announce its jobs. Chosen: it does so at once, but its host
# may be busy.
REPORT_NS = 5_000_000_000
# How long after the start of the controller an agent may take to come back. Chosen: agents try again every
# 2 s at most, and a host that restarts its agent takes longer.
RESTART_GRACE_NS = 30_000_000_000


class Reannouncement:
    """Which agents have reported since the start, and which earlier workers have not been announced again.

    A worker leaves if its agent is back and does not announce it, or if the agent does not come back within
    the grace time.
    """

    def __init__(self, hosts: Iterable[str], grace_ns: int) -> None:
        self._awaited = set(hosts)
        self._grace_ns = grace_ns
        self._until_ns: int | None = None
        self._reports: dict[str, int] = {}
        self._workers: dict[tuple[str, str, int], None] = {}
        self.over = not grace_ns

    @property
    def next_timer_ns(self) -> int | None:
        """When `due` must be called next; None once it is over."""
        if self.over:
            return None
        return min((*self._reports.values(), self._until_ns or 0))

    def expect(self, jobs: Iterable[RegisteredJob]) -> None:
        """These jobs are taken up: their workers are to be announced again."""
        for job in jobs:
            for rank in sorted(job.ranks):
                self._workers[job.announced.hosts[rank], job.announced.name, rank] = None

    def heard(self, now_ns: int, item: Input) -> None:
        """Take an input: an agent that has listed its workers announces their jobs now."""
        match item:
            case AgentUp(host, workers=frozenset()) | WorkersListed(host):
                self.agent_up(now_ns, host)
            case _:
                pass

    def agent_up(self, now_ns: int, host: str) -> None:
        """An agent is back, and announces its jobs now."""
        if host in self._awaited:
            self._reports[host] = now_ns + REPORT_NS

    def announced(self, host: str, job: str, rank: int) -> None:
        """An agent announces a worker."""
        self._workers.pop((host, job, rank), None)

    def due(self, now_ns: int) -> tuple[WorkerLeft, ...]:
        """The workers that nobody has announced in time: they have left."""
        if self.over:
            return ()
        if self._until_ns is None:
            self._until_ns = now_ns + self._grace_ns
        late = now_ns >= self._until_ns
        reported = {host for host, at in self._reports.items() if late or now_ns >= at}
        for host in reported:
            del self._reports[host]
        self._awaited -= self._awaited if late else reported
        gone = [key for key in self._workers if key[0] not in self._awaited]
        for key in gone:
            del self._workers[key]
            how = "has not come back" if key[0] not in reported else "is back without it"
            words = "job %s: the worker of rank %d has left: the agent of host %s %s"
            log.warning(words, key[1], key[2], key[0], how)
        self.over = not self._awaited
        if self.over:
            log.info("all agents have reported since the start, or their time is over")
        return tuple(WorkerLeft(host, rank, job) for host, job, rank in gone)
