# SPDX-License-Identifier: Apache-2.0
"""How many requests one address may make, on a clock of the test."""

from __future__ import annotations

import asyncio

import httpx
from starlette.responses import PlainTextResponse

from controller.northbound.request_rate import RequestRate


def test_an_address_that_asks_too_fast_is_refused_and_no_other() -> None:
    now = 0.0
    limited = RequestRate(PlainTextResponse("ok"), exempt=frozenset({"/healthz"}), per_s=2, clock=lambda: now)

    async def ask(address: str, path: str = "/") -> httpx.Response:
        transport = httpx.ASGITransport(limited, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    async def main() -> None:
        nonlocal now
        assert [(await ask("10.0.0.1")).status_code for _ in range(4)] == [200, 200, 429, 429]
        refused = await ask("10.0.0.1")
        assert refused.headers["Retry-After"] == "1"
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert refused.json() == {
            "type": "about:blank",
            "title": "Too Many Requests",
            "status": 429,
            "detail": "too many requests; legal: 2 a second from one address",
        }
        assert (await ask("10.0.0.2")).status_code == 200
        assert (await ask("10.0.0.1", "/healthz")).status_code == 200
        now += 0.5
        assert [(await ask("10.0.0.1")).status_code for _ in range(2)] == [200, 429]

    asyncio.run(main())
