# SPDX-License-Identifier: Apache-2.0
"""Flows whose port or DSCP the plan cannot choose freely, because of their NIC or of an unexpected hash.

Some NICs choose the UDP source port of a queue pair themselves, some keep the DSCP that it was opened with.
Where a probe took another path than the hash predicts, the source port does not lead where it should.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from controller.live.messages import AgentUp, FlowOpened
from controller.model.job import Job
from controller.model.plan import Plan, QueuePair
from controller.wire.protocol import FIXED_DSCP, NO_PINNING

log = logging.getLogger(__name__)

_UNSEEN = QueuePair(port_fixed=True)


class QueuePairs:
    """What agents report about their NICs and open queue pairs.

    `mistrusted` holds flows whose probe took another path than their source port should lead to; switches
    pin them.
    """

    def __init__(self) -> None:
        self.mistrusted: set[str] = set()
        self._nics: dict[str, AgentUp] = {}
        self._opened: dict[str, FlowOpened] = {}
        self._changed: set[str] = set()
        # A cache by job, cleared when an agent reports something: plans are far more frequent than reports.
        self._found: dict[str, tuple[Job, Mapping[str, QueuePair]]] = {}

    def agent_up(self, item: AgentUp) -> None:
        """An agent reports what its NIC can do. It will report its open queue pairs again.

        Until then they count as open: a plan that is made meanwhile must not move them.
        """
        nic = replace(item, workers=None)
        if self._nics.get(item.host) == nic:
            return
        self._nics[item.host] = nic
        for name in [name for name, o in self._opened.items() if o.host == item.host]:
            del self._opened[name]
            self._changed.add(name)
        self._found.clear()

    def restore(self, nics: Iterable[AgentUp], opened: Iterable[FlowOpened]) -> None:
        """Take up what agents have reported to an earlier controller."""
        self._nics = {nic.host: nic for nic in nics}
        self._opened = {queue_pair.flow: queue_pair for queue_pair in opened}

    @property
    def nics(self) -> Mapping[str, AgentUp]:
        """What each host's agent has reported about its NIC."""
        return self._nics

    def take_changed(self) -> Mapping[str, FlowOpened | None]:
        """The queue pairs that have changed since the last call, by flow; None for one that is gone."""
        changed, self._changed = self._changed, set()
        return {flow: self._opened.get(flow) for flow in changed}

    def opened(self, item: FlowOpened, job: Job | None, plan: Plan | None) -> bool:
        """A queue pair is open. Returns whether this needs a new plan. `job` is the job of its flow."""
        if job is None:
            log.warning(
                "host %s has opened flow %s, which belongs to no job here; ignored", item.host, item.flow
            )
            return False
        nic = self._nics.get(item.host)
        if nic is None or self._opened.get(item.flow) == item:
            return False
        self._opened[item.flow] = item
        self._changed.add(item.flow)
        self._found.pop(job.name, None)
        planned = plan.flows.get(item.flow) if plan is not None else None
        if plan is None or planned is None:
            return False
        moved = nic.pinning == NO_PINNING and (planned.source_port or 0) != item.source_port
        remarked = {r.flow: r for r in plan.remarks}.get(item.flow)
        if nic.dscp != FIXED_DSCP:
            return moved
        actual = (item.dscp, planned.source_port or item.source_port)
        known = (planned.dscp, actual[1]) if remarked is None else (remarked.sent_dscp, remarked.source_port)
        return moved or actual != known

    @property
    def mltcp_hosts(self) -> frozenset[str]:
        """The hosts whose NICs can send by MLTCP."""
        return frozenset(host for host, nic in self._nics.items() if nic.mltcp)

    def left(self, job: Job) -> None:
        """A job has left: forget its flows."""
        self._found.pop(job.name, None)
        for flow in job.flows:
            if self._opened.pop(flow.name, None) is not None:
                self._changed.add(flow.name)
            self.mistrusted.discard(flow.name)

    def mistrust(self, misrouted: Set[str]) -> bool:
        """The probes of these flows took other paths than planned, though nothing has failed since the plan.

        Returns whether some of them were not known before.
        """
        fresh = misrouted - self.mistrusted
        self.mistrusted |= fresh
        if fresh:
            log.warning(
                "flows %s: their probes took other paths than the hash predicts; switches now pin them",
                ", ".join(sorted(fresh)),
            )
        return bool(fresh)

    def of(self, jobs: Iterable[Job]) -> Mapping[str, QueuePair]:
        """The queue pairs of those flows whose NIC fixes the source port or the DSCP, by flow name."""
        result: dict[str, QueuePair] = {}
        for job in jobs:
            found = self._found.get(job.name)
            if found is None or found[0] is not job:
                found = self._found[job.name] = job, self._of(job)
            result.update(found[1])
        return result

    def _of(self, job: Job) -> Mapping[str, QueuePair]:
        result = {}
        for flow in job.flows:
            nic, opened = self._nics.get(flow.src), self._opened.get(flow.name)
            if nic is None:
                continue
            port_fixed = nic.pinning == NO_PINNING
            dscp = opened.dscp if opened is not None and nic.dscp == FIXED_DSCP else None
            if opened is None and port_fixed:
                result[flow.name] = _UNSEEN
            elif opened is not None and (port_fixed or dscp is not None):
                result[flow.name] = QueuePair(opened.source_port, port_fixed, dscp)
        return result
