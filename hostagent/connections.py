# SPDX-License-Identifier: Apache-2.0
"""The TCP and UDP connections of the host's jobs: the socket map for the shim, and what the shim reports.

The shim sends a datagram for each connection. The agent believes it where the kernel shows the same user's
socket, tells the controller which flows the connection carries, and also when it has closed. Connections of
jobs that are observed by them it finds by itself.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.wire import agent_pb2 as pb
from controller.wire.limits import MAX_CONNECTIONS_OF_HOST, MAX_CONNECTIONS_OF_MESSAGE, MAX_NAME_CHARS
from hostagent.agent import Agent
from hostagent.job_connections import JobEnds
from hostagent.loop import AgentLoop
from hostagent.nic.port_map import replace_file
from hostagent.sock_diag import OpenSocket, open_sockets, plain
from hostagent.socket_map import (
    PROTOCOL_NAMES,
    PairPaths,
    format_socket_map,
    pairs_of,
    reports_path,
    shim_name,
)
from polyrhythm_files import InvalidValueError

log = logging.getLogger(__name__)

_GATHER_NS = 1_000_000
"""Changes of the map are written together after this time. Chosen, as for the port map."""
_REPORTS_NS = 100_000_000
"""Reports are looked up in the kernel together after this time. Chosen: a program that opens thousands of
connections a second costs ten dumps of the sockets a second, and its short connections are gone by then."""
_LOOK_NS = 2_000_000_000
"""How often the agent looks which connections have closed. Chosen: a pin that is no longer needed does no
harm, and a dump of 10,000 sockets takes some ms."""
_MOST_DATAGRAMS = 256
"""Reports that are read at once, so that others of the agent's tasks get their turn."""
_REPORT_BYTES = 2048
_CREDENTIALS = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class Reported:
    """A connection as the shim reports it: number `number` of a process of `job` ("*": of an unknown job) to
    the same peer. `job` as in the map."""

    protocol: int
    job: str
    local: tuple[str, int]
    peer: tuple[str, int]
    number: int
    dscp: int

    @property
    def key(self) -> tuple[int, tuple[str, int], tuple[str, int]]:
        """What the kernel knows it by."""
        return self.protocol, self.local, self.peer


def parse_report(text: str) -> Reported:
    """Read a datagram of the shim: "tcp JOB FROM PORT TO PORT NUMBER DSCP". Raises ValueError."""
    protocols = {name: number for number, name in PROTOCOL_NAMES.items()}
    try:
        name, job, own, own_port, other, other_port, number, dscp = text.split(" ")
        figures = [int(field) for field in (own_port, other_port, number, dscp)]
        local, peer = (plain(own), figures[0]), (plain(other), figures[1])
        if name in protocols and len(job) <= 3 * MAX_NAME_CHARS and all(0 <= f < 1 << 16 for f in figures):
            return Reported(protocols[name], job, local, peer, figures[2], figures[3] & 63)
    except ValueError:
        pass
    raise ValueError(f"no report of a connection: {text!r:.200}")


class HostConnections:
    """The connections of all NICs of a host. `agents`: those of its NICs, by host name. `observed`: where the
    connections are of the jobs that are observed by them.

    Writes the map at `path`, and listens for reports at `path`.sock. `ports`: see `format_socket_map`.
    Raises InvalidValueError if it cannot.
    """

    def __init__(
        self,
        path: Path,
        ports: str,
        agents: Mapping[str, Agent],
        loop: AgentLoop,
        observed: Sequence[JobEnds] = (),
    ) -> None:
        self._path = path
        self._observed = observed
        self._ports = ports
        self._agents = agents
        self._loop = loop
        self._pairs: dict[tuple[int, str, str, str], PairPaths] = {}
        self._known: dict[object, Reported] = {}
        self._told: dict[object, tuple[tuple[Agent, pb.Connection], ...]] = {}
        self._waiting: list[tuple[Reported, int]] = []
        self._due = self._reading = self._written = False
        self._socket = self._listen()
        loop.watch(self._socket.fileno(), self._readable)
        loop.every(_LOOK_NS, self._look)
        for agent in agents.values():
            agent.flow_paths.on_change = self._changed
        self._changed(anew=True)

    @property
    def reports(self) -> Path:
        """Where the shim sends its reports."""
        return reports_path(self._path)

    def close(self) -> None:
        """Stop listening. The map stays, because the jobs go on."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self.reports.unlink(missing_ok=True)

    # -- the map

    def _changed(self, anew: bool) -> None:
        """What the controller says has changed: write the map, and report what has changed for connections.
        With `anew` a session has begun, and the controller knows no connection.
        """
        if anew:
            self._told.clear()
        if not self._due:
            self._due = True
            self._loop.call_at(self._loop.now + _GATHER_NS, self._write)

    def _write(self) -> None:
        self._due = False
        paths = [path for agent in self._agents.values() for path in agent.flow_paths.known.values()]
        self._pairs = pairs_of(paths, (agent.ip for agent in self._agents.values()))
        # An agent that has restarted keeps the map of the one before until the controller has spoken.
        if self._pairs or self._written:
            self._written = True
            try:
                replace_file(self._path, format_socket_map(self._pairs, self._ports))
            except OSError as error:
                log.error("socket map %s cannot be written: %s", self._path, error.strerror)
        self._tell(self._known.values())

    # -- reports of the shim

    def _listen(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self.reports.unlink(missing_ok=True)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            made.bind(str(self.reports))
            self.reports.chmod(0o666)
        except OSError as error:
            made.close()
            words = f"{self.reports}: {error.strerror or error}; legal: a path in a writable folder"
            raise InvalidValueError(("sockets", "map"), words) from None
        return made

    def _readable(self) -> None:
        for _ in range(_MOST_DATAGRAMS):
            try:
                text, about, _, _ = self._socket.recvmsg(_REPORT_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                break
            user = next((_CREDENTIALS.unpack(data)[1] for _, _, data in about), None)
            # Split fields and text that is no report: whoever sends it, sends it for nothing.
            with contextlib.suppress(ValueError):
                report = parse_report(text.decode("ascii"))
                if user is not None and len(self._waiting) < MAX_CONNECTIONS_OF_HOST:
                    self._waiting.append((report, user))
        if self._waiting and not self._reading:
            self._reading = True
            self._loop.call_at(self._loop.now + _REPORTS_NS, self._take_reports)

    def _take_reports(self) -> None:
        """Believe the reports of connections that the kernel shows with the same user.

        A job reports connections before it joins, and those to hosts that are none of its own too. The latter
        make room where it is short.
        """
        self._reading = False
        waiting, self._waiting = self._waiting, []
        present = self._present()
        own = {agent.ip for agent in self._agents.values()}
        if len(self._known) + len(waiting) > MAX_CONNECTIONS_OF_HOST:
            self._known = {key: known for key, known in self._known.items() if self._told.get(key)}
        fresh = []
        for report, user in waiting:
            shown = present.get(report.key)
            if shown is None or shown.user != user or report.local[0] not in own:
                continue
            if report.key in self._known or len(self._known) < MAX_CONNECTIONS_OF_HOST:
                self._known[report.key] = report
                fresh.append(report)
        self._tell(fresh)

    def _look(self) -> None:
        """Tell the controller which connections have closed, and which those of observed jobs are."""
        if not self._known and not self._observed:
            return
        present = self._present()
        gone = [key for key in self._known if key not in present]
        closed = []
        for key in gone:
            del self._known[key]
            closed += [(agent, _closed(said)) for agent, said in self._told.pop(key, ())]
        self._send(closed)
        self._tell(self._found(present.values()))

    def _found(self, present: Collection[OpenSocket]) -> list[Reported]:
        """The new connections of observed jobs, each numbered among those of its job to the same address."""
        fresh = []
        numbers = Counter((known.job, known.local[0], known.peer[0]) for known in self._known.values())
        for ends in self._observed:
            for found in sorted(filter(ends.reports, ends.of(present)), key=lambda s: (s.peer, s.local)):
                to = shim_name(ends.job), found.local[0], found.peer[0]
                report = Reported(found.protocol, to[0], found.local, found.peer, numbers[to], found.dscp)
                if report.key not in self._known and len(self._known) < MAX_CONNECTIONS_OF_HOST:
                    numbers[to] += 1
                    self._known[report.key] = report
                    fresh.append(report)
        return fresh

    def _present(self) -> Mapping[object, OpenSocket]:
        found: dict[object, OpenSocket] = {}
        try:
            for protocol in PROTOCOL_NAMES:
                found.update({(s.protocol, s.local, s.peer): s for s in open_sockets(protocol)})
        except OSError as error:
            log.debug("the kernel shows no sockets: %s", error)
        return found

    # -- to the controller

    def _tell(self, connections: Iterable[Reported]) -> None:
        """Tell the controller which flows these connections carry. It forgets at the end of a session, and a
        job's flows may come later than its connections."""
        said = []
        for connection in connections:
            messages = tuple(self._messages(connection))
            before = self._told.get(connection.key, ())
            said += [(agent, _closed(old)) for agent, old in before if (agent, old) not in messages]
            said += [told for told in messages if told not in before]
            self._told[connection.key] = messages
        self._send(said)

    def _messages(self, connection: Reported) -> Iterable[tuple[Agent, pb.Connection]]:
        ends = connection.local[0], connection.peer[0]
        jobs = [
            paths
            for (protocol, job, *pair), paths in self._pairs.items()
            if protocol == connection.protocol
            and tuple(pair) == ends
            and connection.job in ("*", shim_name(job))
        ]
        agent = next((a for a in self._agents.values() if a.ip == ends[0]), None)
        if len(jobs) != 1 or agent is None:
            return
        own, other = connection.local[1], connection.peer[1]
        flows = jobs[0].of_connection(connection.number)
        for path, ports in zip(flows, ((own, other), (other, own)), strict=True):
            if path is not None:
                yield (
                    agent,
                    pb.Connection(
                        flow=path.flow, protocol=connection.protocol, source_port=ports[0],
                        dest_port=ports[1], sent_dscp=connection.dscp,
                    ),
                )  # fmt: skip

    def _send(self, said: Iterable[tuple[Agent, pb.Connection]]) -> None:
        by_agent: dict[str, list[pb.Connection]] = {}
        for agent, connection in said:
            by_agent.setdefault(agent.host, []).append(connection)
        for host, connections in by_agent.items():
            for at in range(0, len(connections), MAX_CONNECTIONS_OF_MESSAGE):
                self._agents[host].report_connections(connections[at : at + MAX_CONNECTIONS_OF_MESSAGE])


def _closed(connection: pb.Connection) -> pb.Connection:
    closed = pb.Connection()
    closed.CopyFrom(connection)
    closed.closed = True
    return closed
