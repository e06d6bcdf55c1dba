# SPDX-License-Identifier: Apache-2.0
"""The open TCP and UDP connections that carry flows, as agents report them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from controller.live.connection_paths import ConnectionPaths
from controller.live.job_registry import JobRegistry
from controller.live.messages import AgentUp, ConnectionsSeen, SendConnectionPath
from controller.model.job import Job
from controller.model.plan import Connection, Plan
from controller.southbound.table_writes import FabricCondition
from controller.wire.limits import MAX_CONNECTIONS_OF_FLOW
from topo.graph import Topology

log = logging.getLogger(__name__)

_Ports = tuple[int, int, int]


class Connections:
    """The connections of each flow, and what the agents of its ends know of its ports.

    `version` changes with the connections.
    """

    def __init__(self, topology: Topology) -> None:
        self.version = 0
        self._paths = ConnectionPaths(topology)
        self._open: dict[str, dict[tuple[str, _Ports], Connection]] = {}

    def __iter__(self) -> Iterator[Connection]:
        """All of them, sorted by flow."""
        for _, known in sorted(self._open.items()):
            yield from known.values()

    @property
    def any(self) -> bool:
        """Whether one is open."""
        return bool(self._open)

    def seen(self, item: ConnectionsSeen, registry: JobRegistry) -> bool:
        """Connections have opened or closed. Returns whether one is news.

        A flow keeps so many; of others nothing is known, and they go by ECMP. Those of no job are ignored.
        """
        version = self.version
        for is_open, connection in item.connections:
            if registry.flow(connection.flow) is None:
                continue
            known = self._open.setdefault(connection.flow, {})
            key = item.host, (connection.protocol, connection.source_port, connection.dest_port)
            if not is_open:
                self.version += known.pop(key, None) is not None
            elif known.get(key) != connection:
                if key not in known and len(known) >= MAX_CONNECTIONS_OF_FLOW:
                    log.debug("flow %s has too many connections; one goes by ECMP", connection.flow)
                    continue
                known[key] = connection
                self.version += 1
            if not known:
                del self._open[connection.flow]
        return self.version != version

    def tell(
        self, plan: Plan | None, jobs: Iterable[Job | None], condition: FabricCondition
    ) -> Iterator[SendConnectionPath]:
        """The messages to agents for what a plan changes in the ports of these jobs' connections."""
        if plan is not None and self._paths.wanted:
            yield from self._paths.changes(plan, filter(None, jobs), condition)

    def agent_up(self, item: AgentUp) -> None:
        """A new session: the agent knows nothing, and reports its connections again."""
        self._paths.agent_up(item)
        host = item.host
        for flow, known in list(self._open.items()):
            for key in [key for key in known if key[0] == host]:
                del known[key]
                self.version += 1
            if not known:
                del self._open[flow]

    def left(self, job: Job) -> None:
        """A job has left: forget the connections of its flows."""
        self._paths.left(job)
        for flow in job.flows:
            self.version += self._open.pop(flow.name, None) is not None
