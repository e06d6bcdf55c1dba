# SPDX-License-Identifier: Apache-2.0
"""Bounds how many requests a second one client address may make."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from controller.northbound.problems import Problem
from controller.wire.limits import MAX_WEB_REQUESTS_PER_S
from controller.wire.token_bucket import TokenBucket

# Chosen: more addresses than a management network has clients. The one that was silent longest is forgotten.
_MOST_ADDRESSES = 4096


class RequestRate:
    """ASGI middleware that answers 429 to an address that asks too fast. Health checks are never refused.

    `exempt`: the paths of the health checks.
    """

    def __init__(
        self,
        app: ASGIApp,
        exempt: frozenset[str],
        per_s: int = MAX_WEB_REQUESTS_PER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._exempt = exempt
        self._per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        wait_s = 0.0
        if scope["type"] == "http" and scope["path"] not in self._exempt:
            wait_s = self._bucket((scope.get("client") or ("",))[0]).refusal_s()
        if not wait_s:
            await self._app(scope, receive, send)
            return
        detail = f"too many requests; legal: {self._per_s:,} a second from one address"
        refusal = Problem(429, detail, {"Retry-After": str(math.ceil(wait_s))})
        await refusal(scope, receive, send)

    def _bucket(self, address: str) -> TokenBucket:
        found = self._buckets.pop(address, None) or TokenBucket(self._per_s, self._clock)
        self._buckets[address] = found
        if len(self._buckets) > _MOST_ADDRESSES:
            self._buckets.popitem(last=False)
        return found
