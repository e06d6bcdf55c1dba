# SPDX-License-Identifier: Apache-2.0
"""The web server: uvicorn inside the controller's event loop, its response headers, and the page's files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import socket
import ssl
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.wire.limits import MAX_IDLE_S, MAX_WEB_CONNECTIONS
from controller.wire.server_tls import ServerTls
from polyrhythm_files.renewal import FromFiles

PORTS_TRIED = 20
_GRACE_S = 2

ASKS_FOR_HEAD = "polyrhythm.head"
"""Is in the scope of a request that was HEAD and is routed as GET: an endless answer must not begin."""

_CONTENT_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"
# Swagger UI's page needs an inline script and inline styles.
_DOCS_CONTENT_POLICY = (
    _CONTENT_POLICY + "; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'"
)


class AddressError(Exception):
    """The server cannot listen; the message names the address and ports that were tried, and why."""


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the controller handles the signals of the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing."""
        yield


class _Protocol(H11Protocol):
    """HTTP/1.1 that closes a connection which waits for its client for MAX_IDLE_S, and the oldest of these
    when there are too many connections.

    uvicorn waits for a first request, and for the rest of any request, without end.
    """

    _seen: object = None
    _since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self.loop.call_later(MAX_IDLE_S, self._close_idle)
        if len(self.connections) > MAX_WEB_CONNECTIONS:
            waiting = [c for c in self.connections if isinstance(c, _Protocol) and c._waits]
            min(waiting, key=lambda c: c._since_s).transport.close()

    @property
    def _waits(self) -> bool:
        """Whether the client has to say something: its first or next request, or the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _close_idle(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or (self._waits and self.cycle is self._seen):
            self.transport.close()
            return
        self._seen = self.cycle
        self.loop.call_later(MAX_IDLE_S, self._close_idle)


@dataclass(frozen=True, slots=True)
class WebServer:
    """A running web server, with the address that it listens on."""

    host: str
    port: int
    _app: FastAPI
    _server: uvicorn.Server
    _task: asyncio.Task[None]
    _scheme: str = "http"

    @property
    def url(self) -> str:
        """The address of the page for a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    async def close(self) -> None:
        """End the event streams, finish open requests (2 s at most) and free the port."""
        self._app.state.closing.set()
        self._server.should_exit = True
        await self._task


async def serve(
    app: FastAPI, host: str = "127.0.0.1", port: int = 8080, tls: ServerTls | None = None
) -> WebServer:
    """Start serving `app` (made by `create_app`) in the running event loop and return at once.

    If the port is busy, the next free one of 20 is used; port 0 takes any free port. With `tls` the port
    speaks HTTPS only, and a new connection uses the certificate as it is by then. Raises `AddressError`.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=_Protocol,
        ws="none",
        # Nobody may choose the address that the audit log shows.
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else str(tls.key),
    )
    if tls is not None:
        config.load()
        _renew_certificate(config, FromFiles(tls.files, tls.context))
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="web server")
    # The socket listens already, so a client that connects before uvicorn has started only waits.
    actual_host, actual_port = listener.getsockname()[:2]
    return WebServer(actual_host, actual_port, app, server, task, "http" if tls is None else "https")


def _renew_certificate(config: uvicorn.Config, contexts: FromFiles[ssl.SSLContext]) -> None:
    """Let each TLS handshake use the certificate as its files are by then."""

    def chosen(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = contexts.get()

    # OpenSSL calls this in every handshake, with a server name or without.
    if config.ssl is not None:
        config.ssl.sni_callback = chosen


class ResponseHeaders:
    """ASGI middleware that adds response headers, and answers HEAD wherever the API answers GET,
    and at `head_paths`.

    The headers let the page load files from its own server only. The middleware wraps `send` only, so an
    event stream is never buffered.
    """

    def __init__(
        self, app: ASGIApp, docs_path: str, api_path: str, head_paths: Container[str] = frozenset()
    ) -> None:
        self._app = app
        self._head_paths = head_paths
        self._docs_path = docs_path
        self._api_path = api_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers to every HTTP response, and route a HEAD request of the API as GET.

        The server sends no body where its own scope says HEAD.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if scope["method"] == "HEAD" and (path.startswith(self._api_path) or path in self._head_paths):
            scope = {**scope, "method": "GET", ASKS_FOR_HEAD: True}
        policy = _DOCS_CONTENT_POLICY if scope["path"].startswith(self._docs_path) else _CONTENT_POLICY

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                # Files have an ETag, so checking for a newer version costs one answer 304.
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self._app(scope, receive, send_with_headers)


def assets_dir() -> Path:
    """The folder of the page's files: in the installed package, or `dashboard/dist` of the source tree.

    Raises `FileNotFoundError` if there is neither.
    """
    candidates = []
    spec = importlib.util.find_spec("polyrhythm")
    if spec is not None:
        candidates += [Path(place) / "dashboard" for place in spec.submodule_search_locations or ()]
    candidates.append(Path(__file__).resolve().parents[2] / "dashboard" / "dist")
    for folder in candidates:
        if (folder / "index.html").is_file():
            return folder
    tried = " or ".join(str(folder) for folder in candidates)
    raise FileNotFoundError(
        f"the page's files are missing: no index.html in {tried}; install polyrhythm again"
    )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise AddressError(f"port {port}: legal: 0 (any free port) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise AddressError(f"no address for host {host!r}: {error.strerror}") from error
    last = min(port + PORTS_TRIED - 1, 65535) if port else 0
    for candidate in range(port, last + 1):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address[0], candidate, *address[2:]))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise AddressError(f"cannot listen on {host} port {candidate}: {error.strerror}") from error
        else:
            listener.setblocking(False)
            return listener
    raise AddressError(f"ports {port} to {last} of {host} are all busy: choose another port")
