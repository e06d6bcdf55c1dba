# SPDX-License-Identifier: Apache-2.0
"""What agents know about the ports of connections: for each flow of their hosts, in both directions.

A connection carries the flows between its two hosts both ways, and the host that opens it chooses its port.
So the agents of both ends receive the conditions for each flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from controller.live.messages import AgentUp, SendConnectionPath
from controller.model.flow_plans import header_of
from controller.model.job import Job
from controller.model.plan import Plan
from controller.routing.forwarding import forwarding
from controller.routing.paths import Forwarding
from controller.routing.port_conditions import port_conditions
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology


class ConnectionPaths:
    """What each agent that steers connections has received last."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._connects: dict[str, tuple[int, ...]] = {}
        self._sent: dict[tuple[str, str, int], SendConnectionPath] = {}
        self._ended: list[SendConnectionPath] = []

    @property
    def wanted(self) -> bool:
        """Whether an agent steers connections."""
        return bool(self._ended) or any(self._connects.values())

    def agent_up(self, item: AgentUp) -> None:
        """A new session: the agent knows nothing."""
        self._connects[item.host] = item.connects
        self._forget(key for key in self._sent if key[0] == item.host)

    def left(self, job: Job) -> None:
        """A job has left: its agents hear it with the next changes."""
        names = {flow.name for flow in job.flows}
        gone = [key for key in self._sent if key[1] in names]
        self._ended += (replace(self._sent[key], ended=True) for key in gone)
        self._forget(gone)

    def changes(
        self, plan: Plan, jobs: Iterable[Job], condition: FabricCondition
    ) -> Iterator[SendConnectionPath]:
        """The messages for what a plan changes, and for jobs that have left since the last call."""
        ended, self._ended = self._ended, []
        yield from ended
        table = forwarding(
            self._topology,
            condition.down_links,
            condition.down_switches,
            condition.drained_links,
            condition.drained_switches,
        )
        for job in jobs:
            count: Counter[tuple[str, str]] = Counter()
            for flow in job.flows:
                ends = flow.src, flow.dst
                index = count[ends]
                count[ends] += 1
                for host in ends:
                    for protocol in self._connects.get(host, ()):
                        yield from self._change(plan, table, job.name, flow.name, ends, index, host, protocol)

    def _change(
        self,
        plan: Plan,
        table: Forwarding,
        job: str,
        flow: str,
        ends: tuple[str, str],
        index: int,
        host: str,
        protocol: int,
    ) -> Iterator[SendConnectionPath]:
        header, planned = header_of(plan.flows, flow), plan.flows.get(flow)
        if header is None or planned is None:
            return
        src, dst = (self._topology.host[end].ip for end in ends)
        path = planned.path
        conditions = None if path is None else port_conditions(self._topology, table, path, protocol)
        message = SendConnectionPath(host, flow, job, src, dst, index, protocol, header[1], conditions)
        if self._sent.get((host, flow, protocol)) != message:
            self._sent[host, flow, protocol] = message
            yield message

    def _forget(self, keys: Iterable[tuple[str, str, int]]) -> None:
        for key in list(keys):
            del self._sent[key]
