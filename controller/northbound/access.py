# SPDX-License-Identifier: Apache-2.0
"""Who may call the REST API: the check of each request, and the role that a route needs.

Every request passes `AccessCheck`: the name in its Host header must be one of this server, and the caller
must be known. A route that changes something also declares the role that it needs:

    @router.post("/rollback", dependencies=[requires(Role.OPERATE)])
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.northbound.access_rules import AccessRules
from controller.northbound.problems import Problem
from controller.northbound.tokens import Caller, Role
from controller.wire.limits import MAX_REQUEST_BODY_BYTES

_READS = ("GET", "HEAD", "OPTIONS")
# A browser asks for name and password, and sends them with all later reads of the page.
_CHALLENGES = ('Bearer realm="polyrhythm"', 'Basic realm="polyrhythm", charset="UTF-8"')
_SCHEME = HTTPBearer(auto_error=False, description="A token from the file of --web-tokens.")


def requires(role: Role) -> Any:
    """The dependency of a route that only callers with `role`, or a higher one, may use."""

    async def check(request: Request, _: Annotated[Any, Security(_SCHEME)]) -> Caller:
        caller: Caller = request.state.caller
        if caller.role < role:
            raise HTTPException(
                403,
                f"{caller.name} has the role {caller.role.name.lower()}; legal: {role.name.lower()}",
            )
        return caller

    return Security(check)


class AccessCheck:
    """ASGI middleware that lets through requests of known callers, and tells the route who calls.

    The paths of `public` need no token: health checks have none. A request of another site's page is refused:
    one that reached this server under a foreign name (DNS rebinding), and a write that a foreign page sends
    from the user's browser.
    """

    def __init__(self, app: ASGIApp, rules: AccessRules, public: frozenset[str]) -> None:
        self._app = app
        self._rules = rules
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        reads = scope["method"] in _READS
        refusal = self._foreign(headers, reads)
        caller: Caller | None = None
        if refusal is None and scope["path"] not in self._public:
            found = await self._caller(headers, reads)
            if isinstance(found, Caller):
                caller = found
            else:
                refusal = Problem(401, f"{found}; legal: Authorization: Bearer TOKEN")
                for challenge in _CHALLENGES if reads else _CHALLENGES[:1]:
                    refusal.headers.append("WWW-Authenticate", challenge)
        answer: ASGIApp = self._app
        if refusal is not None:
            answer = refusal
        scope.setdefault("state", {})["caller"] = caller or Caller("anyone", Role.READ)
        if reads:
            await answer(scope, _bounded(receive), send)
        else:
            await self._audited(answer, caller, scope, receive, send)

    async def _audited(
        self, answer: ASGIApp, caller: Caller | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # What ends without an answer is recorded as an error of the server.
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await answer(scope, _bounded(receive), noting)
        finally:
            name, role = (caller.name, caller.role.name.lower()) if caller is not None else ("", "")
            peer = (scope.get("client") or ("unknown",))[0]
            self._rules.audit.record(name, role, peer, scope["method"], scope["path"], status)

    def _foreign(self, headers: Headers, reads: bool) -> Problem | None:
        """The refusal of a request that a page of another site caused."""
        host = headers.get("host", "")
        if not self._is_own(host):
            legal = ", ".join(sorted({"localhost", *self._rules.hosts}))
            return Problem(
                421, f"this server is not {host[:200]!r}; legal: {legal}, an IP address; see --web-host"
            )
        origin = headers.get("origin")
        if not reads and origin is not None and _server_of(origin) != host:
            return Problem(403, f"a page of {origin[:200]!r} may not change anything here")
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name == "localhost" or name in self._rules.hosts:
            return True
        try:
            # A foreign page can make a name lead here, but not an address.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def _caller(self, headers: Headers, reads: bool) -> Caller | str:
        tokens = self._rules.tokens
        if tokens is None:
            return Caller("local", self._rules.without_tokens)
        await tokens.refresh()
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return tokens.caller(shown.strip())
        # Browsers send these by themselves, also for a foreign page, so they serve for reading only.
        if scheme.lower() == "basic" and reads:
            return tokens.caller(_password(shown))
        return "this request needs a token"


def _password(shown: str) -> str:
    try:
        return base64.b64decode(shown, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _server_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _bounded(receive: Receive) -> Callable[[], Any]:
    """`receive` that ends a request whose body is longer than MAX_REQUEST_BODY_BYTES."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_REQUEST_BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_REQUEST_BODY_BYTES:,} bytes")
        return message

    return bounded
