# SPDX-License-Identifier: Apache-2.0
"""The web server: uvicorn inside the controller's event loop, and where the page's files lie."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

PORTS_TRIED = 20
_GRACE_S = 2


class AddressError(Exception):
    """No address to listen on; the message says which were tried and why none was had."""


class _Server(uvicorn.Server):
    """uvicorn that leaves the process's signals to the controller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing."""
        yield


@dataclass(frozen=True, slots=True)
class WebServer:
    """A running web server: the address it really listens on, and the way to stop it."""

    host: str
    port: int
    _app: FastAPI
    _server: uvicorn.Server
    _task: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    async def close(self) -> None:
        """End the event streams, finish what is being answered (2 s at most) and free the port."""
        self._app.state.closing.set()
        self._server.should_exit = True
        await self._task


async def serve(app: FastAPI, host: str = "127.0.0.1", port: int = 8080) -> WebServer:
    """Start serving `app` (made by `create_app`) in the running event loop and return at once.

    A busy port gives way to the next free one of 20; port 0 takes any. Raises `AddressError`.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="web server")
    # The socket listens already: who connects before uvicorn has started is only kept waiting.
    actual_host, actual_port = listener.getsockname()[:2]
    return WebServer(actual_host, actual_port, app, server, task)


def assets_dir() -> Path:
    """The folder of the page: inside the installed package, or `dashboard/` of the source tree.

    Raises `FileNotFoundError` if the installation has neither.
    """
    candidates = []
    spec = importlib.util.find_spec("polyrhythm")
    if spec is not None:
        candidates += [Path(place) / "dashboard" for place in spec.submodule_search_locations or ()]
    candidates.append(Path(__file__).resolve().parents[2] / "dashboard")
    for folder in candidates:
        if (folder / "index.html").is_file():
            return folder
    tried = " or ".join(str(folder) for folder in candidates)
    raise FileNotFoundError(
        f"the page's files are missing: no index.html in {tried}; install polyrhythm again"
    )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise AddressError(f"port {port} does not exist: choose one from 0 (any) to 65535")
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
    raise AddressError(f"ports {port} to {last} of {host} are all busy: choose another")
