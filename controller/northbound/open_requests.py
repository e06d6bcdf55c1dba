# SPDX-License-Identifier: Apache-2.0
"""Bounds how many requests and event streams are open at once."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from controller.northbound.problems import Problem


class OpenRequests:
    """ASGI middleware that answers 503 while too many requests are open. Health checks are always answered:
    who holds many streams open must not make the controller look dead. An eighth of the requests cannot be
    streams, so that operators are heard while many pages are open.

    `exempt`: the paths of the health checks; `stream`: the path of the event streams.
    """

    def __init__(self, app: ASGIApp, exempt: frozenset[str], stream: str, most: int) -> None:
        self._app = app
        self._exempt = exempt
        self._stream = stream
        self._most = most
        self._most_streams = most - max(1, most // 8)
        self._open = 0
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
            return
        streams = scope["path"] == self._stream
        full = ""
        if self._open >= self._most:
            full = f"{self._most} requests and event streams"
        elif streams and self._streams >= self._most_streams:
            full = f"{self._most_streams} event streams"
        if full:
            refusal = Problem(503, f"{full} are open; legal: no more at once", {"Retry-After": "1"})
            await refusal(scope, receive, send)
            return
        self._open += 1
        self._streams += streams
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
            self._streams -= streams
