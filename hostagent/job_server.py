# SPDX-License-Identifier: Apache-2.0
"""The agent's Unix socket for the training processes of its host; see polyrhythm_job.protocol.

A training process joins with its job, receives the source ports of its flows and the slots of its job, and
reports its iterations. It may also ask for the source port of a new flow. An illegal request is answered with
an error and closes that connection only. When a connection closes, the job of its process has ended.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from controller.wire.limits import (
    MAX_FLOW_NAME_CHARS,
    MAX_LOCAL_CONNECTIONS,
    MAX_LOCAL_LINE_BYTES,
    MAX_LOCAL_SILENCE_S,
    MAX_LOCAL_STATUS_WAITING,
    MAX_LOCAL_UNSENT_BYTES,
)
from hostagent.external_worker import ExternalWorker, JoinMessage, StepMessage
from hostagent.flow_owners import FlowOwners
from hostagent.job import IterationRecord
from hostagent.local_socket import listen, peer
from hostagent.loop import AgentLoop
from hostagent.new_flows import NewFlows
from hostagent.nic.external import ExternalSendQueue
from hostagent.rails import Rails
from hostagent.status import agent_status
from hostagent.user_shares import UserShares
from polyrhythm_files import ConfigError, convert, is_text, value_document
from polyrhythm_job.protocol import (
    PROTOCOL_VERSION,
    FlowPlacement,
    encode,
    error_event,
    flow_event,
    split_lines,
)

log = logging.getLogger(__name__)

_STEP_WAIT_NS = 500_000_000
"""Steps are collected for this long and reported in one message. Measured: most of what a report costs is
waking the agent's and gRPC's threads, so an agent with many jobs should wake no more often than one with one
job."""
_MOST_STEPS = 256
"""Steps that are reported at once, before that time is over."""
_GATHER_NS = 1_000_000
"""Flows that a plan moves are told together after this time. Chosen, as for the port map: each time a process
is told all flows of its job."""
_REFRESH_NS = 10_000_000_000
"""How often slots are sent again: the host's clock drifts against fabric time. Also after each answer of the
controller to the question for the time."""
_ACCEPT_PAUSE_NS = 1_000_000_000
"""The pause after a connection that the system could not open, for want of descriptors for example. Chosen:
without a pause the loop would try again without end."""

T = TypeVar("T")


class JobServer:
    """Listens on the Unix socket `path`. Raises InvalidValueError if it cannot.

    `host` is the name of this host, `rails` are the agents of its NICs, and `flows` their new flows, by the
    name of the NIC. `line_bps` is the rate of a NIC: the rate of flows of which the process gives no bytes.
    """

    def __init__(
        self,
        path: str,
        host: str,
        rails: Rails,
        flows: Mapping[str, NewFlows],
        loop: AgentLoop,
        *,
        line_bps: int,
    ) -> None:
        self._path = Path(path)
        self._host = host
        self._rails = rails
        self._flows = flows
        self.loop = loop
        self._line_bps = line_bps
        self._connections: set[_Connection] = set()
        self._owners: FlowOwners[_Connection] = FlowOwners()
        self.shares = UserShares(loop)
        self._steps: list[tuple[_Connection, dict[str, Any]]] = []
        self._moved: set[str] = set()
        self._socket = listen(self._path)
        loop.watch(self._socket.fileno(), self._accept)
        loop.every(_REFRESH_NS, self._refresh)
        for agent in rails.agents.values():
            agent.on_clock = self._refresh

    def close(self) -> None:
        """Close all connections and remove the socket."""
        for connection in list(self._connections):
            connection.end()
        self.loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def moved(self, queue_pair: ExternalSendQueue) -> None:
        """A flow has another source port: tell the process that owns its queue pairs soon."""
        if not self._moved:
            self.loop.call_at(self.loop.now + _GATHER_NS, self._tell_moved)
        self._moved.add(queue_pair.flow.partition("/")[0])

    def _tell_moved(self) -> None:
        jobs, self._moved = self._moved, set()
        for connection in list(self._connections):
            if any(worker.spec.name in jobs for worker in connection.workers):
                connection.send_flows()

    def _refresh(self) -> None:
        for connection in list(self._connections):
            for worker in connection.workers[:1]:
                worker.send_schedule()

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                log.warning("%s: no connection can be accepted for a moment: %s", self._path, error.strerror)
                self.loop.unwatch(self._socket.fileno())
                self.loop.call_at(self.loop.present() + _ACCEPT_PAUSE_NS, self._accept_again)
            return
        accepted.setblocking(False)
        process, user = peer(accepted)
        free = MAX_LOCAL_CONNECTIONS - len(self._connections)
        of_user = sum(c.user == user for c in self._connections)
        if not free or (user and of_user >= free):
            log.warning("%s: user %d has %d connections; one is refused", self._path, user, of_user)
            accepted.close()
            return
        connection = _Connection(self, accepted, process, user)
        self._connections.add(connection)
        self.loop.call_at(self.loop.now + MAX_LOCAL_SILENCE_S * 10**9, connection.end_if_silent)

    def _accept_again(self) -> None:
        # Not after `close`.
        if self._socket.fileno() >= 0:
            self.loop.watch(self._socket.fileno(), self._accept)

    # -- requests of the connections

    def join(self, join: JoinMessage, connection: _Connection) -> tuple[ExternalWorker, ...]:
        """A training process joins with its job: with a worker for each NIC of this host that the job uses.

        Raises ValueError for an impossible job.
        """
        if not 0 <= join.rank < len(join.hosts):
            raise ConfigError(
                f"rank: {join.rank} is wrong; legal: a whole number from 0 to {len(join.hosts) - 1}"
            )
        spec, agents = join.spec(self._line_bps), self._rails.agents
        ranks = [rank for rank in join.ranks() if spec.hosts[rank] in agents]
        if not ranks:
            raise ConfigError(
                f"rank: job {spec.name}: rank {join.rank} belongs to {spec.hosts[join.rank]}; legal: of this "
                f"host, {', '.join(agents)}"
            )
        workers: list[ExternalWorker] = []
        for rank in ranks:
            agent = agents[spec.hosts[rank]]
            # Slots and level are the job's: one of the workers tells them.
            send = connection.send if not workers else partial(_flows_only, connection)
            worker = ExternalWorker(spec, rank, send, agent.time.to_local)
            agent.check_worker(worker)
            workers.append(worker)
        for worker in workers:
            agents[spec.hosts[worker.rank]].add_worker(worker, self.loop.now)
        return tuple(workers)

    def leave(self, workers: tuple[ExternalWorker, ...]) -> None:
        """A training process has ended."""
        self._take_steps()
        for worker in workers:
            worker.done = True
            self._rails.agents[worker.spec.hosts[worker.rank]].job_left(worker)

    def step(self, connection: _Connection, fields: dict[str, Any]) -> None:
        """A training process has ended an iteration."""
        self._steps.append((connection, fields))
        if len(self._steps) == 1:
            self.loop.call_at(self.loop.now + _STEP_WAIT_NS, self._take_steps)
        elif len(self._steps) >= _MOST_STEPS:
            self._take_steps()

    def flow(self, name: str, size: int, connection: _Connection, number: object) -> None:
        """A training process asks for the source port of a new flow."""

        def answer(placement: FlowPlacement) -> None:
            connection.send(flow_event(number, name, placement))

        self._owners.ask(name, connection, connection.user)
        self._flows_of(name).ask(name, size, answer)

    def end_flow(self, name: str, connection: _Connection) -> None:
        """A flow has ended. Raises ConfigError if it is another user's."""
        if self._owners.end(name, connection.user):
            self._flows_of(name).end(name)

    def status(self) -> Mapping[str, Any]:
        """The agent's state, for operators and for tests."""
        return agent_status(self._host, self._rails, self._flows.values())

    def _flows_of(self, flow: str) -> NewFlows:
        """The new flows of the NIC that a flow leaves by."""
        return self._flows[self._rails.of_flow(flow).host]

    def _take_steps(self) -> None:
        steps, self._steps = self._steps, []
        records: dict[str, list[IterationRecord]] = {}
        refused = {}
        for connection, fields in steps:
            try:
                if connection not in refused:
                    step = _read(StepMessage, fields)
                    for worker in connection.workers:
                        records.setdefault(worker.spec.hosts[worker.rank], []).append(worker.record(step))
            except ConfigError as error:
                refused[connection] = str(error)
        for host, done in records.items():
            self._rails.agents[host].report(*done)
        for connection, why in refused.items():
            connection.refuse(why)

    def gone(self, connection: _Connection) -> None:
        """A connection is closed."""
        self._connections.discard(connection)
        for flow in self._owners.closed(connection):
            self._flows_of(flow).end(flow)


class _Connection:
    """The connection of one training process."""

    def __init__(self, server: JobServer, accepted: socket.socket, process: int, user: int) -> None:
        self.user = user
        self.workers: tuple[ExternalWorker, ...] = ()
        self._server = server
        self._loop = server.loop
        self._socket = accepted
        self._peer = f"process {process} of user {user}"
        self._silent = True
        self._status_waiting = 0
        self._incomplete = b""
        self._unsent = bytearray()
        self._flows_moved = False
        self._refused = False
        self._open = True
        self._loop.watch(accepted.fileno(), self._readable)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message without waiting. A process that does not read loses its connection."""
        if not self._open or self._refused:
            return
        waiting = len(self._unsent)
        if waiting > MAX_LOCAL_UNSENT_BYTES:
            log.warning("%s does not read what the agent sends; its connection is closed", self._peer)
            self.end()
            return
        self._unsent += encode(message)
        if not waiting:
            self._flush()

    def send_flows(self) -> None:
        """Send where the flows go, once the process has read what waits for it: only the latest counts."""
        self._flows_moved = bool(self._unsent)
        if not self._flows_moved:
            for worker in self.workers:
                if worker.running:
                    worker.send_flows()

    def end(self) -> None:
        """Close the connection: the job of its process has ended."""
        if not self._open:
            return
        self._open = False
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._server.gone(self)
        if self.workers:
            self._server.leave(self.workers)

    def end_if_silent(self) -> None:
        """Close the connection if no request has come on it."""
        if self._silent and self._open:
            log.warning("%s has sent no request; its connection is closed", self._peer)
            self.end()

    def refuse(self, why: str) -> None:
        """Answer an illegal request with an error, and close the connection when the process has read it, or
        soon."""
        if not self._open or self._refused:
            return
        log.warning("%s sent an illegal request; its connection is closed: %.300s", self._peer, why)
        self.send(error_event(why))
        if not self._unsent:
            self.end()
        elif self._open:
            self._refused = True
            self._loop.unwatch(self._socket.fileno())
            self._loop.watch_write(self._socket.fileno(), self._flush)
            self._loop.call_at(self._loop.now + MAX_LOCAL_SILENCE_S * 10**9, self.end)

    def _send_status(self) -> None:
        self._status_waiting -= 1
        if self._open:
            self.send(self._server.status())

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.end()
            return
        del self._unsent[:sent]
        self._loop.watch_write(self._socket.fileno(), self._flush if self._unsent else None)
        if self._unsent:
            return
        if self._refused:
            self.end()
        elif self._flows_moved:
            self.send_flows()

    def _readable(self) -> None:
        try:
            fresh = self._socket.recv(MAX_LOCAL_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            fresh = b""
        if not fresh:
            self.end()
            return
        lines, self._incomplete = split_lines(self._incomplete + fresh)
        self._silent = self._silent and not lines
        for line in lines:
            if self._open and not self._refused:
                self._line(line)
        if len(self._incomplete) > MAX_LOCAL_LINE_BYTES:
            self.refuse("a line is longer than 64 KiB")

    def _line(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise ConfigError(f"{fields!r:.100} is wrong; legal: an object with a key op")
            self._handle(fields.pop("op", None), fields)
        except (ValueError, RecursionError) as error:
            self.refuse(str(error))

    def _handle(self, op: object, fields: dict[str, Any]) -> None:
        server = self._server
        if op == "join":
            if fields.pop("protocol", PROTOCOL_VERSION) != PROTOCOL_VERSION:
                raise ConfigError(f"protocol: another version; legal: {PROTOCOL_VERSION}")
            if self.workers:
                joined = self.workers[0].spec.name
                raise ConfigError(f"this connection has joined with job {joined}; open one for each job")
            self.workers = server.join(_read(JoinMessage, fields), self)
        elif op == "step" and self.workers:
            server.step(self, fields)
        elif op == "flow":
            server.flow(_text(fields, "flow"), _count(fields, "bytes"), self, fields.get("id"))
        elif op == "end":
            server.end_flow(_text(fields, "flow"), self)
        elif op == "status":
            if self._status_waiting >= MAX_LOCAL_STATUS_WAITING:
                raise ConfigError(f"op: {MAX_LOCAL_STATUS_WAITING} times status; legal: to read the answers")
            self._status_waiting += 1
            server.shares.take(self.user, self._send_status)
        else:
            legal = "join, flow, end, status" if not self.workers else "step, flow, end, status"
            raise ConfigError(f"op: {op!r:.100} is wrong; legal: {legal}")


def _flows_only(connection: _Connection, event: Mapping[str, Any]) -> None:
    """Send an event of a further worker of a connection, if it is about flows."""
    if event["event"] == "flows":
        connection.send(event)


def _read(kind: type[T], fields: Mapping[str, Any]) -> T:
    """The fields of a request as its declared type. Raises ConfigError."""
    document = value_document(fields)
    document.check_values()
    return convert(document, kind)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not is_text(value) or not 0 < len(value) <= MAX_FLOW_NAME_CHARS:
        raise ConfigError(
            f"{key}: {value!r:.100} is wrong; legal: a name of 1 to {MAX_FLOW_NAME_CHARS:,} characters"
        )
    return value


def _count(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{key}: {value!r:.100} is wrong; legal: a whole number from 0")
    return value
