# SPDX-License-Identifier: Apache-2.0
"""The agent as a whole: loop, NIC, session with the controller, socket for training code, monitors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from controller.wire import agent_pb2 as pb
from hostagent.agent import LINGER_NS
from hostagent.config import Config
from hostagent.connections import HostConnections
from hostagent.emulated_training import EmulatedTraining
from hostagent.job_server import JobServer
from hostagent.loop import AgentLoop
from hostagent.nic.choose import open_nics
from hostagent.nic.external import ExternalNic
from hostagent.nic_service import NicService
from hostagent.rails import Rails
from hostagent.session import ControllerSession
from hostagent.tls import newest_credentials
from polyrhythm_files import InvalidValueError

if TYPE_CHECKING:
    from hostagent.metrics import AgentFigures, MetricsServer

log = logging.getLogger(__name__)

KEEPALIVE_S = 2.0
"""The interval of pings, and the time for an answer: a network partition sends no reset. Chosen."""
SILENT_POLLS = 2
"""Questions for the time without any message of the controller after which the session ends. The kernel of a
controller that hangs still answers pings. Chosen: one answer may be late."""
REJOIN_NS = 15_000_000_000
"""How long after its start an agent lists its workers: those that an earlier process had join again by
themselves. Chosen: the job library tries every 5 s at the latest, when its training process calls it."""
_SILENCE_CHECK_NS = 1_000_000_000
_DONE_POLL_NS = 100_000_000


class AgentService:
    """The agent of one host, as a process runs it: one session with the controller for all NICs of the host.

    Raises ValueError if the configuration does not fit this host.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.loop = AgentLoop()
        self._done_since: int | None = None
        each, addresses = config.of_each_nic(), config.addresses()
        self._nics = [
            NicService(alone, nic, self.loop, self._send, addresses=addresses, shares_session=len(each) > 1)
            for alone, nic in zip(each, open_nics(config, self.loop), strict=True)
        ]
        self.agents = Rails(nic.agent for nic in self._nics)
        self.session = ControllerSession(
            config.agent.controllers,
            self._from_controller,
            self._session_lost,
            self._session_up,
            keepalive_s=KEEPALIVE_S,
            credentials=newest_credentials(config.tls).get,
            server_name=config.tls.server_name,
        )
        self.connections = self._open_connections()
        try:
            self.local = self._open_socket()
        except InvalidValueError:
            self._close_connections()
            raise
        self._sessions_lost = 0
        self.metrics = self._open_metrics()
        self._complete = False
        self.loop.call_at(self.loop.now + REJOIN_NS, self._workers_are_back)
        self._heard_ns = self.loop.now
        self.loop.every(_SILENCE_CHECK_NS, self._end_silent_session)
        self.training = EmulatedTraining(
            config.training, [(nic.agent, nic.nic) for nic in self._nics], self.loop, config.payload_bps
        )
        for nic in self._nics:
            nic.observe()

    @property
    def pinning(self) -> str:
        """How flows are pinned: all NICs of a host have the same driver."""
        return self._nics[0].nic.pinning

    def _open_socket(self) -> JobServer | None:
        path = self.config.agent.socket
        if not path:
            return None
        rate_bps = int(self.config.nic.rate_mbps * 1e6)
        flows = {nic.agent.host: nic.flows for nic in self._nics}
        local = JobServer(path, self.config.agent.host, self.agents, flows, self.loop, line_bps=rate_bps)
        for nic in self._nics:
            if isinstance(nic.nic, ExternalNic):
                nic.nic.on_move = local.moved
        return local

    def _open_connections(self) -> HostConnections | None:
        settings = self.config.sockets
        if not settings.map:
            return None
        observed = [ends for nic in self._nics for ends in nic.observed_ends]
        return HostConnections(Path(settings.map), settings.ports, self.agents.agents, self.loop, observed)

    def _close_connections(self) -> None:
        if self.connections is not None:
            self.connections.close()

    def _open_metrics(self) -> MetricsServer | None:
        if not self.config.agent.metrics:
            return None
        # Imported only where it is asked for: an agent's memory is bounded.
        from hostagent.metrics import MetricsServer, figures

        def ask() -> AgentFigures:
            return figures(self.agents, [nic.flows for nic in self._nics], self._sessions_lost)

        try:
            return MetricsServer(self.config.agent, self.config.tls, self.loop, ask)
        except InvalidValueError:
            if self.local is not None:
                self.local.close()
            self._close_connections()
            raise

    def run(self) -> None:
        """Run until `loop.stop`, or until all emulated workers have ended."""
        self.session.start()
        if self.training.workers:
            self.loop.every(_DONE_POLL_NS, self._stop_when_done)
        try:
            self.loop.run()
        finally:
            self.training.stop()
            for nic in self._nics:
                nic.stop()
            if self.local is not None:
                self.local.close()
            self._close_connections()
            if self.metrics is not None:
                self.metrics.close()
            self.session.stop()
            for nic in self._nics:
                nic.nic.close()
            self.loop.close()

    def _stop_when_done(self) -> None:
        """End when all workers have ended, but not before their receiving ends are closed: a peer whose
        acknowledgement was lost would never finish its iteration.
        """
        if not self.training.finished:
            self._done_since = None
        elif self._done_since is None:
            self._done_since = self.loop.now
        elif self.loop.now > self._done_since + LINGER_NS:
            self.loop.stop()

    # -- called on the session's thread

    def _send(self, message: pb.AgentMessage) -> None:
        self.session.send(message)

    def _from_controller(self, message: pb.ControllerMessage) -> None:
        # The time of arrival is taken here: the loop may be busy, and that is no part of the round trip.
        self.loop.call(self._on_message, message, self.loop.present())

    def _on_message(self, message: pb.ControllerMessage, arrived_ns: int) -> None:
        self._heard_ns = self.loop.now
        if message.HasField("flow"):
            self.training.assigned(message.flow.flow, message.flow.source_port, message.flow.dscp)
        try:
            self.agents.on_message(message, arrived_ns)
        except ValueError as error:
            log.error("an illegal message of the controller is ignored: %s", error)

    def _session_up(self) -> None:
        self.loop.call(self._connected)

    def _connected(self) -> None:
        self._heard_ns = self.loop.now
        self.agents.session_up(complete=self._complete)

    def _workers_are_back(self) -> None:
        """Workers that an earlier process of this agent knew have joined again by now, or have ended."""
        self._complete = True
        self.agents.list_workers()

    def _end_silent_session(self) -> None:
        silent_ns = self.loop.now - self._heard_ns
        if self.agents.connected and silent_ns > SILENT_POLLS * self.agents.clock_poll_ns + _SILENCE_CHECK_NS:
            log.warning("the controller has sent nothing for %.0f s; the session ends", silent_ns / 1e9)
            self.session.drop()

    def _session_lost(self) -> None:
        self.loop.call(self._lost)

    def _lost(self) -> None:
        self._sessions_lost += 1
        self.agents.session_lost()
