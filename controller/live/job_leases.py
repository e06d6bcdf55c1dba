# SPDX-License-Identifier: Apache-2.0
"""Ends the workers of hosts whose agent is gone, and those that an agent has no longer.

A worker whose trainer and agent died says no goodbye. Its agent's next session lists the workers that are
left; if no session comes within the lease, all of the host's workers have ended. The process of an agent that
has just started does not know yet which workers are left: it lists them later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from controller.live.job_names import announced_name
from controller.live.job_registry import JobRegistry
from controller.live.messages import AgentDown, AgentUp, Input, WorkerJoined, WorkerLeft, WorkersListed
from controller.model.job import Job

log = logging.getLogger(__name__)

LEASE_NS = 60_000_000_000
"""How long a host's jobs outlive its agent's session. Chosen: an agent is back a few seconds after a restart,
and a short cut of the management network must end no job; a ghost job keeps others off its slots."""


class JobLeases:
    """When the workers of each host without a session end. Times are those of the fabric, in ns."""

    def __init__(self, lease_ns: int = LEASE_NS) -> None:
        self._lease_ns = lease_ns
        self._until: dict[str, int] = {}
        # By host: the workers of an earlier process of its agent that have not joined again so far.
        self._unconfirmed: dict[str, set[tuple[str, int]]] = {}

    @property
    def next_timer_ns(self) -> int | None:
        """When the next lease is over; None while no agent is away."""
        return min(self._until.values(), default=None)

    def ended_by(self, now_ns: int, item: Input, registry: JobRegistry) -> Iterable[WorkerLeft]:
        """The workers of which an input tells that they have ended."""
        match item:
            case AgentUp(host):
                self._until.pop(host, None)
                if item.workers is not None:
                    return self._missing(host, item.workers, registry)
                self._unconfirmed[host] = set(registry.workers_of(host))
            case WorkersListed(host, workers):
                return self._missing(host, workers, registry)
            case AgentDown(host):
                self._agent_down(now_ns, host)
            case WorkerJoined(host, rank, job):
                gone = self._replaced(job, registry)
                self._unconfirmed.get(host, set()).discard((job.name, rank))
                return gone
            case _:
                pass
        return ()

    def _agent_down(self, now_ns: int, host: str) -> None:
        log.warning(
            "agent of host %s: the session is lost; the host's flows keep their ports and DSCPs, and its "
            "jobs end in %g s if it does not return",
            host,
            self._lease_ns / 1e9,
        )
        self._until[host] = now_ns + self._lease_ns
        self._unconfirmed.pop(host, None)

    def _missing(
        self, host: str, listed: frozenset[tuple[str, int]], registry: JobRegistry
    ) -> Iterable[WorkerLeft]:
        """The workers of a host that its agent does not list."""
        self._unconfirmed.pop(host, None)
        gone = []
        for name, rank in registry.workers_of(host):
            job = registry.declared(name)
            if job is not None and (announced_name(job), rank) not in listed:
                log.info("job %s: rank %d on host %s ended while its agent was away", name, rank, host)
                gone.append(WorkerLeft(host, rank, name))
        return gone

    def _replaced(self, job: Job, registry: JobRegistry) -> Iterable[WorkerLeft]:
        """The workers of an earlier job of that name which has ended: this one is described differently, and
        none of the earlier one's workers has joined again.
        """
        earlier = registry.declared(job.name)
        if earlier is None or not registry.differs(job):
            return ()
        left = {(h, r) for h in set(earlier.hosts) for n, r in registry.workers_of(h) if n == job.name}
        if not left or not all((job.name, rank) in self._unconfirmed.get(host, ()) for host, rank in left):
            return ()
        log.info("job %s: a new job has its name; the earlier one's workers have ended", job.name)
        return [WorkerLeft(host, rank, job.name) for host, rank in sorted(left)]

    def due(self, now_ns: int, registry: JobRegistry) -> Iterable[WorkerLeft]:
        """The workers whose lease is over."""
        gone = []
        for host in [h for h, until in self._until.items() if until <= now_ns]:
            del self._until[host]
            for name, rank in registry.workers_of(host):
                words = "job %s: rank %d on host %s has ended: its agent was away for %g s"
                log.warning(words, name, rank, host, self._lease_ns / 1e9)
                gone.append(WorkerLeft(host, rank, name))
        return gone
