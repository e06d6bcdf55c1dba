# SPDX-License-Identifier: Apache-2.0
"""Response headers that keep the page to its own server and its answers fresh; HEAD where there is GET."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"
# Swagger UI's page starts from an inline script and styles its elements in place.
_DOCS_POLICY = _POLICY + "; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'"


class ResponseHeaders:
    """ASGI middleware. It wraps `send` only, so an event stream is never buffered."""

    def __init__(self, app: ASGIApp, docs_path: str, api_path: str) -> None:
        self._app = app
        self._docs_path = docs_path
        self._api_path = api_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers to the start of every HTTP response, and route the API's HEAD as GET: the server
        sends no body where its own scope says HEAD."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD" and scope["path"].startswith(self._api_path):
            scope = {**scope, "method": "GET"}
        policy = _DOCS_POLICY if scope["path"].startswith(self._docs_path) else _POLICY

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                # Files carry an ETag, so asking again costs a 304; figures are never asked twice.
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self._app(scope, receive, send_with_headers)
