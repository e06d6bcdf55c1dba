# SPDX-License-Identifier: Apache-2.0
"""Who may call the REST API: tokens and roles, names in the Host header, and pages of other sites."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from fake_source import FakeStatus, view
from fastapi import APIRouter, Body

from controller.northbound import web
from controller.northbound.access import requires
from controller.northbound.access_rules import AccessRules
from controller.northbound.api import create_app
from controller.northbound.source import ViewBoard
from controller.northbound.tokens import Role, Tokens, token_hash
from controller.northbound.web import serve
from controller.wire.limits import MAX_REQUEST_BODY_BYTES

ROLES = {"read": Role.READ, "job": Role.JOB, "operate": Role.OPERATE}


def served(rules: AccessRules, use: Callable[[httpx.AsyncClient], Any]) -> Any:
    """What `use` returns, of a served application with one more route for each role."""

    async def main() -> Any:
        board = ViewBoard()
        board.publish(view(0))
        app = create_app(board, None, FakeStatus(), 0.0, rules)
        more = APIRouter()
        for name, role in ROLES.items():

            def change(given: dict[str, Any] = Body(default={})) -> str:  # noqa: B008
                return "done"

            more.add_api_route(f"/{name}", change, methods=["POST"], dependencies=[requires(role)])
        # Before the route of the API that answers all other paths.
        app.router.routes[:0] = more.routes
        server = await serve(app, port=0)
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                return await use(client)
        finally:
            await server.close()

    return asyncio.run(main())


@pytest.fixture
def rules(tmp_path: Path) -> AccessRules:
    file = tmp_path / "tokens.json"
    entries = [{"name": f"{role}er", "role": role, "sha256": token_hash(f"{role}-secret")} for role in ROLES]
    entries.append(
        {"name": "old", "role": "operate", "sha256": token_hash("late"), "expires": "2020-01-01T00:00:00Z"}
    )
    file.write_text(json.dumps({"tokens": entries}))
    return AccessRules(Tokens(file))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'me:{token}'.encode()).decode()}"}


def test_each_role_may_do_what_it_may_and_no_more(rules: AccessRules) -> None:
    async def use(client: httpx.AsyncClient) -> dict[tuple[str, str], int]:
        return {
            (role, path): (await client.post(path, headers=bearer(f"{role}-secret"))).status_code
            for role in ROLES
            for path in ROLES
        }

    assert served(rules, use) == {
        (role, path): 200 if ROLES[role] >= ROLES[path] else 403 for role in ROLES for path in ROLES
    }


def test_every_route_that_changes_something_declares_its_role() -> None:
    app = create_app(ViewBoard(), None, FakeStatus(), operations=MagicMock())
    paths = app.openapi()["paths"]
    changing = {
        (path, method): told
        for path, item in paths.items()
        for method, told in item.items()
        if method != "get"
    }
    assert changing
    # Only `requires` asks for the scheme.
    assert [key for key, told in changing.items() if told.get("security") != [{"HTTPBearer": []}]] == []


def test_without_a_valid_token_only_health_is_answered(rules: AccessRules) -> None:
    wrong = {
        "none": {},
        "unknown": bearer("guess"),
        "hash": bearer(token_hash("operate-secret")),
        "expired": bearer("late"),
        "empty": {"Authorization": "Bearer"},
        "scheme": {"Authorization": "Digest x"},
        "no base64": {"Authorization": "Basic ?"},
        "no colon": {"Authorization": "Basic YQ=="},
    }
    paths = (
        "metrics",
        "api/v1/jobs",
        "api/v1/stream",
        "api/v1/docs",
        "api/v1/openapi.json",
        "",
        "x",
    )

    async def use(client: httpx.AsyncClient) -> list[httpx.Response]:
        assert (await client.get("api/v1/healthz")).status_code == 200
        assert (await client.get("api/v1/jobs", headers=bearer("read-secret"))).status_code == 200
        got = [await client.get(path, headers=headers) for path in paths for headers in wrong.values()]
        return got + [await client.post("read", headers=headers) for headers in wrong.values()]

    for answer in served(rules, use):
        assert answer.status_code == 401, answer.url
        assert "Bearer" in answer.headers["www-authenticate"]
        assert "legal: Authorization: Bearer TOKEN" in answer.json()["detail"]


def test_a_browser_reads_by_name_and_password_and_changes_nothing_by_them(rules: AccessRules) -> None:
    async def use(client: httpx.AsyncClient) -> tuple[int, ...]:
        asked = await client.get("api/v1/jobs")
        assert any(c.startswith("Basic") for c in asked.headers.get_list("www-authenticate"))
        read = await client.get("api/v1/jobs", headers=basic("operate-secret"))
        changed = await client.post("operate", headers=basic("operate-secret"))
        assert "Basic" not in changed.headers["www-authenticate"]
        return read.status_code, changed.status_code

    assert served(rules, use) == (200, 401)


def test_a_foreign_name_in_the_host_header_is_refused() -> None:
    known = (
        "localhost",
        "localhost:8080",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]:80",
        "192.0.2.7",
        "ctl.example:9",
    )
    foreign = (
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
        "a@b",
    )

    async def use(client: httpx.AsyncClient) -> tuple[list[int], list[int]]:
        async def status(name: str) -> int:
            return (await client.get("api/v1/jobs", headers={"Host": name})).status_code

        return [await status(name) for name in known], [await status(name) for name in foreign]

    good, bad = served(AccessRules(hosts=frozenset({"ctl.example"})), use)
    assert good == [200] * len(known)
    # The HTTP parser itself may refuse what is no name.
    assert set(bad) <= {421, 400}
    assert bad[0] == bad[2] == 421


def test_a_page_of_another_site_changes_nothing() -> None:
    """Without tokens every user of this host may change plans; a page that one of them looks at may not."""

    async def use(client: httpx.AsyncClient) -> list[int]:
        own = str(client.base_url).rstrip("/")
        origins = ("http://evil.example", "null", own.replace("http:", "http://x@"), own)
        return [(await client.post("operate", headers={"Origin": o})).status_code for o in origins] + [
            (await client.post("operate")).status_code
        ]

    assert served(AccessRules(), use) == [403, 403, 403, 200, 200]


def test_without_tokens_another_address_only_reads() -> None:
    async def use(client: httpx.AsyncClient) -> tuple[int, int]:
        return (await client.get("api/v1/jobs")).status_code, (await client.post("job")).status_code

    assert served(AccessRules(without_tokens=Role.READ), use) == (200, 403)


def test_a_body_of_any_size_costs_no_memory() -> None:
    async def use(client: httpx.AsyncClient) -> list[int]:
        async def endless() -> Any:
            for _ in range(MAX_REQUEST_BODY_BYTES // 65536 + 1):
                yield b"[" * 65536

        sizes = [await client.post("operate", content=endless())]
        sizes.append(await client.post("operate", json={"x": "y" * (MAX_REQUEST_BODY_BYTES - 100)}))
        return [answer.status_code for answer in sizes]

    assert served(AccessRules(), use) == [413, 200]


def test_silent_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_IDLE_S", 0.05)

    async def use(client: httpx.AsyncClient) -> tuple[bytes, bytes]:
        async def until_closed(said: bytes) -> bytes:
            loop = asyncio.get_running_loop()
            with socket.create_connection((client.base_url.host, client.base_url.port)) as silent:
                silent.setblocking(False)
                await loop.sock_sendall(silent, said)
                return await asyncio.wait_for(loop.sock_recv(silent, 100), 60)

        return await until_closed(b""), await until_closed(b"GET / HTTP/1.1\r\nHost: loc")

    assert served(AccessRules(), use) == (b"", b"")
