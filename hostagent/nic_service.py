# SPDX-License-Identifier: Apache-2.0
"""What a host runs for each of its NICs: driver, agent, new flows, safety, and jobs that it observes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from controller.wire import agent_pb2 as pb
from hostagent.agent import Agent
from hostagent.config import Config, ObservedJobSettings
from hostagent.counts import ByteSource
from hostagent.job_connections import JobEnds, SentBytes
from hostagent.loop import AgentLoop
from hostagent.new_flows import NewFlows
from hostagent.nic.choose import byte_counter, port_folder
from hostagent.nic.external import ExternalNic
from hostagent.nic.udp import UdpNic
from hostagent.observed_jobs import ObservedJobs
from hostagent.safety import SafetyMonitor, port_counters

log = logging.getLogger(__name__)


class NicService:
    """One NIC of the host. `config`: of this NIC alone (`Config.of_each_nic`). `addresses`: host name -> IP
    address. `shares_session`: see Agent.
    """

    def __init__(
        self,
        config: Config,
        nic: UdpNic | ExternalNic,
        loop: AgentLoop,
        send: Callable[[pb.AgentMessage], None],
        *,
        addresses: Mapping[str, str],
        shares_session: bool,
    ) -> None:
        self.nic = nic
        self._config = config
        self._loop = loop
        self._addresses = addresses
        self._counter = byte_counter(config)
        self.agent = Agent(
            config.agent.host,
            config.agent.ip,
            nic,
            loop,
            send,
            addresses=addresses,
            seed=config.training.seed,
            shared_clock=False,
            byte_source=self._byte_source if self._counter is not None else None,
            most_wait_ns=int(config.agent.deadline_ms * 1e6),
            present=loop.present,
            shares_session=shares_session,
            connects=config.sockets.protocols,
        )
        self.flows = NewFlows(self.agent, loop)
        self.safety = SafetyMonitor(
            config.safety,
            self.agent,
            loop,
            sees_flows=nic.sees_flows,
            port_counters=port_counters(port_folder(config)) if config.nic.device else None,
        )
        self._observed: ObservedJobs | None = None

    def observe(self) -> None:
        """Begin to observe the jobs that do not report by themselves."""
        self._observed = ObservedJobs(
            self._config.sources.jobs,
            self.agent,
            self._loop,
            line_bps=int(self._config.nic.rate_mbps * 1e6),
            counter=self._counter_of,
        )

    @property
    def observed_ends(self) -> tuple[JobEnds, ...]:
        """Where the connections are of the jobs that are observed by them."""
        return tuple(self.ends_of(job) for job in self._config.sources.jobs if job.connections)

    def stop(self) -> None:
        """Stop observing jobs."""
        if self._observed is not None:
            self._observed.stop()

    def ends_of(self, settings: ObservedJobSettings) -> JobEnds:
        """Where the connections of an observed job are."""
        known = [self._addresses.get(host, "") for host in settings.hosts]
        return JobEnds(settings.name, self.agent.ip, frozenset(known) - {"", self.agent.ip}, settings.user)

    def _counter_of(self, settings: ObservedJobSettings) -> ByteSource | None:
        if settings.connections:
            return SentBytes(self.ends_of(settings))
        return self._counter() if self._counter is not None else None

    def _byte_source(self, job: str) -> ByteSource:
        """The byte counter of the NIC, which does not tell jobs apart. If it cannot be read, it counts
        nothing.
        """
        counter = self._counter() if self._counter is not None else dict

        def read() -> Mapping[str, int]:
            try:
                return counter()
            except (OSError, ValueError) as error:
                log.debug("bytes are not counted: %s", error)
                return {}

        return read
