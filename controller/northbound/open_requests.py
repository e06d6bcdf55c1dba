# SPDX-License-Identifier: Apache-2.0
"""Bounds how many requests and event streams are open at once."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from controller.northbound.problems import Problem


class OpenRequests:
    """ASGI middleware that answers 503 while too many requests are open. Health checks are always answered:
    who holds many streams open must not make the controller look dead.

    `exempt`: the paths of the health checks.
    """

    def __init__(self, app: ASGIApp, exempt: frozenset[str], most: int) -> None:
        self._app = app
        self._exempt = exempt
        self._most = most
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
            return
        if self._open >= self._most:
            detail = f"{self._most} requests and event streams are open; legal: no more at once"
            refusal = Problem(503, detail, {"Retry-After": "1"})
            await refusal(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
