# SPDX-License-Identifier: Apache-2.0
"""Ends the workers of hosts whose agent is gone, and those that an agent has when it returns no longer.

A worker whose trainer and agent died says no goodbye. Its agent's next session tells which workers are left;
if no session comes within the lease, all of the host's workers have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from controller.live.job_names import announced_name
from controller.live.job_registry import JobRegistry
from controller.live.messages import AgentDown, AgentUp, Input, WorkerLeft

log = logging.getLogger(__name__)

LEASE_NS = 60_000_000_000
"""How long a host's jobs outlive its agent's session. Chosen: an agent is back a few seconds after a restart,
and a short cut of the management network must end no job; a ghost job keeps others off its slots."""


class JobLeases:
    """When the workers of each host without a session end. Times are those of the fabric, in ns."""

    def __init__(self, lease_ns: int = LEASE_NS) -> None:
        self._lease_ns = lease_ns
        self._until: dict[str, int] = {}

    @property
    def next_timer_ns(self) -> int | None:
        """When the next lease is over; None while no agent is away."""
        return min(self._until.values(), default=None)

    def ended_by(self, now_ns: int, item: Input, registry: JobRegistry) -> Iterable[WorkerLeft]:
        """The workers of which an input tells that they have ended."""
        match item:
            case AgentUp():
                return self.agent_up(item, registry)
            case AgentDown(host):
                self.agent_down(now_ns, host)
            case _:
                pass
        return ()

    def agent_down(self, now_ns: int, host: str) -> None:
        """A host's agent has lost its session."""
        log.warning(
            "agent of host %s: the session is lost; the host's flows keep their ports and DSCPs, and its "
            "jobs end in %g s if it does not return",
            host,
            self._lease_ns / 1e9,
        )
        self._until[host] = now_ns + self._lease_ns

    def agent_up(self, item: AgentUp, registry: JobRegistry) -> Iterable[WorkerLeft]:
        """An agent has a session: the workers that it had and has no longer."""
        self._until.pop(item.host, None)
        if item.workers is None:
            return ()
        gone = []
        for name, rank in registry.workers_of(item.host):
            job = registry.declared(name)
            if job is not None and (announced_name(job), rank) not in item.workers:
                log.info("job %s: rank %d on host %s ended while its agent was away", name, rank, item.host)
                gone.append(WorkerLeft(item.host, rank, name))
        return gone

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
