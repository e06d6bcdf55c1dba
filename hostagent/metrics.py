# SPDX-License-Identifier: Apache-2.0
"""The agent's `/metrics` and `/healthz`, on a thread of their own; the figures come from the agent's loop."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from controller.wire import metric_table as table
from controller.wire.log_lines import lines_left_out
from hostagent.agent import Agent
from hostagent.config import AgentSettings, TlsSettings, metrics_address
from hostagent.loop import AgentLoop
from hostagent.new_flows import NewFlows
from hostagent.rails import Rails
from polyrhythm_files import InvalidValueError
from polyrhythm_files.renewal import FromFiles

log = logging.getLogger(__name__)

# Chosen, in seconds: how long a request may take as a whole, and the agent's loop for the figures. Requests
# are answered one after another, so that connections cannot pile up.
REQUEST_S = 3.0
FIGURES_S = 2.0


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """What the agent's loop knows. `flows`: how many are pinned, on ECMP, and fallen back."""

    connected: bool
    sessions_lost: int
    flows: Counter[str]
    new_flows: dict[str, int]
    clock_error_s: float


def figures(rails: Rails, flows: Iterable[NewFlows], sessions_lost: int) -> AgentFigures:
    """The figures now, of all NICs of the host together. Call it on the agent's loop."""
    agents = rails.agents.values()
    paths = Counter(
        "fallen" if name in agent.fallen else "pinned" if _pinned(agent, name) else "ecmp"
        for agent in agents
        for name in agent.queue_pairs()
    )
    answers: Counter[str] = Counter()
    for each in flows:
        answers.update(each.counts)
    error_s = max(a.fabric_time()[1] / 1e9 if a.time.known else float("inf") for a in agents)
    return AgentFigures(rails.welcomed, sessions_lost, paths, dict(answers), error_s)


def _pinned(agent: Agent, flow: str) -> bool:
    pin = agent.pins.get(flow)
    return pin is not None and bool(pin.source_port)


class _Collector:
    def __init__(self, now: AgentFigures) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        now = self._now
        yield table.BUILD_INFO.family([((version("polyrhythm"),), 1)])
        yield table.LOG_LINES.family([((), lines_left_out())])
        yield table.AGENT_CONNECTED.family([((), now.connected)])
        yield table.AGENT_LOSSES.family([((), now.sessions_lost)])
        yield table.AGENT_FLOWS.family(((path,), now.flows[path]) for path in ("pinned", "ecmp", "fallen"))
        yield table.AGENT_ANSWERS.family(((by,), count) for by, count in now.new_flows.items())
        yield table.AGENT_CLOCK_ERROR.family([((), now.clock_error_s)])


class MetricsServer:
    """Serves the figures that `ask` returns; `ask` runs on the agent's loop.

    Raises InvalidValueError for an address that cannot be used.
    """

    def __init__(self, settings: AgentSettings, tls: TlsSettings, loop: AgentLoop, ask: Any) -> None:
        host, port = metrics_address(settings, tls)
        self._loop = loop
        self._ask = ask
        contexts = FromFiles((tls.cert, tls.key), lambda: _context(tls)) if tls.cert else None
        try:
            self._server = _Server(host, port, self, contexts)
        except OSError as error:
            raise InvalidValueError(
                ("agent", "metrics"), f"cannot listen on {settings.metrics}: {error.strerror or error}"
            ) from None
        self.port: int = self._server.server_address[1]
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        with contextlib.suppress(OSError):
            # This wakes the thread, which waits for a connection.
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(REQUEST_S + FIGURES_S)
        self._server.server_close()

    def page(self) -> bytes:
        """The metrics. Raises TimeoutError if the agent's loop does not answer."""
        answer: Future[AgentFigures] = Future()
        self._loop.call(lambda: answer.set_result(self._ask()))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(answer.result(FIGURES_S)))
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def _run(self) -> None:
        while not self._closed:
            self._server.handle_request()


class _Server(HTTPServer):
    """One request at a time, each within REQUEST_S."""

    def __init__(
        self, host: str, port: int, page: MetricsServer, tls: FromFiles[ssl.SSLContext] | None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.page = page
        self._tls = tls
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, with TLS if there is a certificate."""
        accepted, address = super().get_request()
        accepted.settimeout(REQUEST_S)
        if self._tls is not None:
            try:
                accepted = self._tls.get().wrap_socket(accepted, server_side=True)
            except OSError:
                accepted.close()
                raise
        return accepted, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer, and cut a client off that sends or reads too slowly."""
        cut = threading.Timer(REQUEST_S, _cut, [request])
        cut.start()
        try:
            super().process_request(request, client_address)
        finally:
            cut.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or was cut off is no error of the agent."""


def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.cert, tls.key)
    return context


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer /metrics and /healthz."""
        if self.path not in ("/metrics", "/healthz"):
            self._answer(404, b"legal: /metrics, /healthz\n", "text/plain")
            return
        try:
            page = self.server.page.page()
        except LateError:
            self._answer(503, b"the agent's loop does not answer\n", "text/plain")
            return
        healthy = b'{"status": "ok"}\n'
        if self.path == "/healthz":
            self._answer(200, healthy, "application/json")
        else:
            self._answer(200, page, CONTENT_TYPE_PLAIN_0_0_4)

    def version_string(self) -> str:
        """The Server header, without versions."""
        return "polyrhythm"

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
