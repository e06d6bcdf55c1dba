# SPDX-License-Identifier: Apache-2.0
"""The agent's socket for training code of its host: JSON objects, one a line, both ways.

A training process joins with its job, is told where its flows go and when it talks, and reports its
iterations. It may ask for the place of a flow of its own. What it says wrong is answered with an error and
ends its connection; nobody else notices. When its connection ends, its job has left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostagent.agent import Agent
from hostagent.declared import is_text, read
from hostagent.external_worker import ExternalWorker, JoinMessage, StepMessage
from hostagent.loop import AgentLoop
from hostagent.new_flows import FlowPlacement, NewFlows
from hostagent.nic.external import ExternalSendQueue
from polyrhythm_files import ConfigError

log = logging.getLogger(__name__)

PROTOCOL = 1
_LONGEST_LINE = 1 << 16
_MOST_UNSENT = 1 << 20
_MOST_CONNECTIONS = 512
_STEP_WAIT_NS = 500_000_000
"""A step waits so long for others, to be looked at and told with them: what it costs is the waking, of the
agent's code and of gRPC's threads, and hardly what is done then."""
_MOST_STEPS = 256
_REFRESH_NS = 10_000_000_000
"""How often schedules are told again where no answer of the controller tells more: the host's clock drifts
against the fabric's."""


class JobServer:
    """Listens on a Unix socket. Raises ConfigError when that cannot be had."""

    def __init__(self, path: str, agent: Agent, flows: NewFlows, loop: AgentLoop, *, line_bps: int) -> None:
        self._path = Path(path)
        self._agent = agent
        self._flows = flows
        self.loop = loop
        self._line_bps = line_bps
        self._connections: set[_Connection] = set()
        self._steps: list[tuple[_Connection, ExternalWorker, dict[str, Any]]] = []
        self._socket = _listen(self._path)
        loop.watch(self._socket.fileno(), self._accept)
        loop.every(_REFRESH_NS, self._refresh)
        agent.on_clock = self._refresh

    def close(self) -> None:
        """End all connections and take the socket away."""
        for connection in list(self._connections):
            connection.end()
        self.loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def moved(self, queue_pair: ExternalSendQueue) -> None:
        """A flow has another place: its owner is told."""
        job = queue_pair.flow.partition("/")[0]
        for connection in self._connections:
            if (
                connection.guest is not None
                and connection.guest.spec.name == job
                and connection.guest.running
            ):
                connection.guest.tell_flows()

    def _refresh(self) -> None:
        for connection in list(self._connections):
            if connection.guest is not None:
                connection.guest.tell_schedule()

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                log.warning("%s: %s", self._path, error)
            return
        accepted.setblocking(False)
        if len(self._connections) >= _MOST_CONNECTIONS:
            log.warning("%s: more than %d connections; one is refused", self._path, _MOST_CONNECTIONS)
            accepted.close()
            return
        self._connections.add(_Connection(self, accepted))

    # -- what connections ask

    def join(self, join: JoinMessage, connection: _Connection) -> ExternalWorker:
        """A training process brings its job. Raises ValueError for one that cannot be."""
        if not 0 <= join.rank < len(join.hosts):
            raise ConfigError(f"rank: from 0 to {len(join.hosts) - 1} is legal, not {join.rank}")
        guest = ExternalWorker(
            join.spec(self._line_bps), join.rank, connection.tell, self._agent.time.to_local
        )
        self._agent.add_worker(guest, self.loop.now)
        return guest

    def leave(self, guest: ExternalWorker) -> None:
        """A training process is done."""
        self._take_steps()
        guest.done = True
        self._agent.job_left(guest)

    def step(self, connection: _Connection, guest: ExternalWorker, said: dict[str, Any]) -> None:
        """A training process has done an iteration."""
        self._steps.append((connection, guest, said))
        if len(self._steps) == 1:
            self.loop.call_at(self.loop.now + _STEP_WAIT_NS, self._take_steps)
        elif len(self._steps) >= _MOST_STEPS:
            self._take_steps()

    def flow(self, name: str, size: int, connection: _Connection, number: object) -> None:
        """A training process has a new flow."""

        def then(answer: FlowPlacement) -> None:
            place = {"source_port": answer.source_port, "dscp": answer.dscp, "by": answer.by}
            connection.tell({"event": "flow", "id": number, "flow": name, **place})

        self._flows.ask(name, size, then)

    def end_flow(self, name: str) -> None:
        """A flow is over."""
        self._flows.end(name)

    def status(self) -> Mapping[str, Any]:
        """The agent's state, for people and for tests."""
        agent = self._agent
        return {
            "event": "status",
            "host": agent.host,
            "connected": agent.welcomed,
            "policy": agent.marking.policy,
            "equal_dscp": agent.marking.equal_dscp,
            "flows": {
                flow: {"source_port": qp.source_port, "dscp": qp.dscp, "fallen": flow in agent.fallen}
                for flow, qp in sorted(agent.queue_pairs().items())
            },
            "answers": dict(sorted(self._flows.counts.items())),
            "clock_error_ns": agent.fabric_time()[1],
            "refusals": agent.refusals[-10:],
        }

    def _take_steps(self) -> None:
        steps, self._steps = self._steps, []
        records, refused = [], {}
        for connection, guest, said in steps:
            try:
                if connection not in refused:
                    records.append(guest.record(read(StepMessage, said)))
            except ConfigError as error:
                refused[connection] = str(error)
        self._agent.report(*records)
        for connection, why in refused.items():
            connection.refuse(why)

    def gone(self, connection: _Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)


class _Connection:
    """One training process."""

    def __init__(self, server: JobServer, accepted: socket.socket) -> None:
        self.guest: ExternalWorker | None = None
        self._server = server
        self._loop = server.loop
        self._socket = accepted
        self._peer = _peer(accepted)
        self._read = b""
        self._unsent = bytearray()
        self._open = True
        self._loop.watch(accepted.fileno(), self._readable)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message; a process that does not read loses its connection, and harms nobody."""
        if not self._open:
            return
        waits = bool(self._unsent)
        self._unsent += json.dumps(message).encode() + b"\n"
        if len(self._unsent) > _MOST_UNSENT:
            log.warning("%s does not read what it is told; its connection ends", self._peer)
            self.end()
            return
        if not waits:
            self._flush()

    def end(self) -> None:
        """End the connection; its job has left."""
        if not self._open:
            return
        self._open = False
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._server.gone(self)
        if self.guest is not None:
            self._server.leave(self.guest)

    def refuse(self, why: str) -> None:
        """End the connection for what its process said, and say why."""
        log.warning("%s says what makes no sense, and is cut off: %.300s", self._peer, why)
        self.tell({"event": "error", "what": why[:1000]})
        self.end()

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

    def _readable(self) -> None:
        try:
            fresh = self._socket.recv(_LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            fresh = b""
        if not fresh:
            self.end()
            return
        *lines, self._read = (self._read + fresh).split(b"\n")
        for line in lines:
            if self._open:
                self._line(line)
        if len(self._read) > _LONGEST_LINE:
            self.refuse("a line is longer than 64 KiB")

    def _line(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            if not isinstance(said, dict):
                raise ConfigError(f"an object with a key op is needed, not {said!r:.100}")
            self._act(said.pop("op", None), said)
        except (ValueError, RecursionError) as error:
            self.refuse(str(error))

    def _act(self, op: object, said: dict[str, Any]) -> None:
        server = self._server
        if op == "join":
            if said.pop("protocol", PROTOCOL) != PROTOCOL:
                raise ConfigError(f"protocol: {PROTOCOL} is legal")
            if self.guest is not None:
                raise ConfigError(f"this connection has joined with {self.guest.spec.name}; one job each")
            self.guest = server.join(read(JoinMessage, said), self)
        elif op == "step" and self.guest is not None:
            server.step(self, self.guest, said)
        elif op == "flow":
            server.flow(_text(said, "flow"), _count(said, "bytes"), self, said.get("id"))
        elif op == "end":
            server.end_flow(_text(said, "flow"))
        elif op == "status":
            self.tell(server.status())
        else:
            legal = "join, flow, end, status" if self.guest is None else "step, flow, end, status"
            raise ConfigError(f"op: {op!r} is none of {legal}")


def _listen(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _clear(path)
        made.bind(str(path))
        path.chmod(0o666)
        made.listen(64)
    except OSError as error:
        made.close()
        raise ConfigError(f"agent.socket: {path}: {error.strerror or error}") from None
    except ConfigError:
        made.close()
        raise
    return made


def _clear(path: Path) -> None:
    """Take away a socket that nobody listens on any more; refuse one that another agent holds."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise ConfigError(f"agent.socket: {path} is there, and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            probe.connect(str(path))
            raise ConfigError(f"agent.socket: another agent listens on {path}")
    path.unlink(missing_ok=True)


def _peer(accepted: socket.socket) -> str:
    credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return f"process {struct.unpack('=I', credentials[:4])[0]}"


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    if not isinstance(value, str) or not value or not is_text(value):
        raise ConfigError(f"{key}: a name is needed, not {value!r:.100}")
    return value


def _count(said: Mapping[str, Any], key: str) -> int:
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{key}: a whole number from 0 is needed, not {value!r:.100}")
    return value
