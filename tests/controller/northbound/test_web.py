# SPDX-License-Identifier: Apache-2.0
"""The web server inside a running loop: ports, addresses, shutdown, and the page's files."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from fake_source import FakeStatus, view

from controller.northbound import web
from controller.northbound.api import create_app
from controller.northbound.source import ViewBoard
from controller.northbound.web import AddressError, assets_dir, serve
from controller.wire.server_tls import ServerTls


def busy() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    assert listener.getsockname()[1] < 65500
    return listener


def app() -> object:
    board = ViewBoard()
    board.publish(view(0))
    return create_app(board, None, FakeStatus())


def test_a_busy_port_gives_way_to_one_of_the_next() -> None:
    async def main(port: int) -> tuple[int, int]:
        server = await serve(app(), port=port)
        async with httpx.AsyncClient(timeout=60) as client:
            status = (await client.get(f"{server.url}api/v1/healthz")).status_code
        await server.close()
        return server.port, status

    with busy() as taken:
        port = taken.getsockname()[1]
        got, status = asyncio.run(main(port))
    assert port < got <= port + 19
    assert status == 200


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_a_new_connection_gets_the_certificate_that_is_there_by_then(tmp_path: Path) -> None:
    cert, key = tmp_path / "web.pem", tmp_path / "web.key"

    def issue() -> str:
        make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=web"
        subprocess.run(
            ["openssl", *make.split(), "-keyout", key, "-out", cert], check=True, capture_output=True
        )
        return cert.read_text()

    async def main() -> list[bool]:
        found = [issue()]
        server = await serve(app(), port=0, tls=ServerTls("web", cert, key))
        at = ("127.0.0.1", server.port)
        shown = [await asyncio.to_thread(ssl.get_server_certificate, at)]
        found.append(issue())
        shown += [await asyncio.to_thread(ssl.get_server_certificate, at)]
        key.unlink()
        found.append(found[-1])
        shown += [await asyncio.to_thread(ssl.get_server_certificate, at)]
        await server.close()
        return [a == b for a, b in zip(found, shown, strict=True)]

    assert asyncio.run(main()) == [True] * 3


def test_when_all_are_busy_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PORTS_TRIED", 1)
    with busy() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=f"ports {port} to {port} of 127.0.0.1 are all busy"):
            asyncio.run(serve(app(), port=port))


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        ("127.0.0.1", 70000, "port 70000: legal: 0 .any free port. to 65535"),
        ("127.0.0.1", -1, "port -1: legal: 0"),
        ("no such host", 0, "no address for host 'no such host'"),
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1 port 0"),
    ],
)
def test_an_address_nobody_has(host: str, port: int, says: str) -> None:
    with pytest.raises(AddressError, match=says):
        asyncio.run(serve(app(), host, port))


def test_close_ends_open_event_streams_and_frees_the_port() -> None:
    async def main() -> tuple[int, bytes]:
        server = await serve(app(), port=0)
        async with (
            httpx.AsyncClient(timeout=300) as client,
            client.stream(
                "GET", f"{server.url}api/v1/stream", headers={"Accept-Encoding": "identity"}
            ) as answer,
        ):
            chunks = answer.aiter_raw()
            first = await anext(chunks)
            await asyncio.wait_for(server.close(), 20)
            rest = [chunk async for chunk in chunks]
        return server.port, first + b"".join(rest)

    port, received = asyncio.run(main())
    assert received.startswith(b"retry: 1000\n\n")
    with socket.create_server(("127.0.0.1", port)) as again:
        assert again.getsockname()[1] == port


def test_signals_stay_with_the_process() -> None:
    async def main() -> tuple[object, object]:
        before = signal.getsignal(signal.SIGTERM)
        server = await serve(app(), port=0)
        async with httpx.AsyncClient(timeout=60) as client:
            await client.get(f"{server.url}api/v1/healthz")
        during = signal.getsignal(signal.SIGTERM)
        await server.close()
        return before, during

    before, during = asyncio.run(main())
    assert during == before


def test_url_is_one_a_browser_here_can_open() -> None:
    async def main(host: str) -> str:
        server = await serve(app(), host, 0)
        await server.close()
        return server.url.replace(str(server.port), "PORT")

    assert asyncio.run(main("0.0.0.0")) == "http://127.0.0.1:PORT/"
    assert asyncio.run(main("localhost")) in {"http://127.0.0.1:PORT/", "http://[::1]:PORT/"}


def test_the_page_and_its_modules_are_found_and_marked() -> None:
    folder = assets_dir()
    files = [f for f in folder.iterdir() if f.suffix in {".html", ".js", ".css", ".svg"}]
    assert {"index.html", "page.js", "page.css"} <= {f.name for f in files}
    for file in files:
        assert "SPDX-License-Identifier: Apache-2.0" in "".join(file.read_text().splitlines(True)[:2]), (
            file.name
        )
        assert len(file.read_text().splitlines()) <= 400


def test_an_installation_without_the_page_says_where_it_looked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(web, "__file__", str(tmp_path / "a" / "b" / "web.py"))
    monkeypatch.setattr(web.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=f"no index.html in {tmp_path}"):
        assets_dir()


def test_health_is_answered_whatever_others_hold_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections, unfinished requests and event streams, of each more than there may be."""
    monkeypatch.setattr(web, "MAX_WEB_CONNECTIONS", 24)
    monkeypatch.setattr(web, "MAX_IDLE_S", 0.2)
    host = b"Host: localhost\r\n"
    begun = b"POST /api/v1/plan/dry-run HTTP/1.1\r\n" + host + b"Content-Length: 9\r\n\r\n{"
    events = b"GET /api/v1/stream HTTP/1.1\r\n" + host + b"\r\n"

    async def main() -> list[tuple[int, int]]:
        board = ViewBoard()
        board.publish(view(0))
        made = create_app(board, None, FakeStatus(), most_open=8)
        server = await serve(made, port=0)
        found = []
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            for said in (b"", begun, events):
                opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(30)]
                for _, writer in opened:
                    writer.write(said)
                health = (await client.get("/healthz")).status_code
                if said == events:
                    # One of the eight cannot be a stream.
                    refused = False
                    while not refused:
                        async with client.stream("GET", "/api/v1/stream") as one:
                            refused = one.status_code == 503
                    assert (await client.get("/api/v1/jobs")).status_code == 200
                # The controller's own other answers come back when the others are gone.
                for _, writer in opened:
                    if said == events:
                        writer.close()
                while (await client.get("/api/v1/jobs")).status_code != 200:
                    await asyncio.sleep(0.05)
                found.append((health, 200))
                for _, writer in opened:
                    writer.close()
        await server.close()
        return found

    assert asyncio.run(main()) == [(200, 200)] * 3


@pytest.mark.parametrize("origin", ["http://[", "https://evil.example", "null"])
def test_a_write_of_a_foreign_page_is_refused(origin: str) -> None:
    async def main() -> int:
        server = await serve(app(), port=0)
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            answer = await client.post("/api/v1/plans/1/rollback", headers={"Origin": origin})
        await server.close()
        return answer.status_code

    assert asyncio.run(main()) == 403


def test_half_of_a_surrogate_pair_is_refused_in_words() -> None:
    async def main() -> tuple[int, str]:
        server = await serve(app(), port=0)
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            answer = await client.post(
                "/api/v1/plan/dry-run",
                content=b'{"policy": "\\ud800"}',
                headers={"Content-Type": "application/json"},
            )
        await server.close()
        return answer.status_code, answer.json()["detail"]

    assert asyncio.run(main()) == (
        422,
        "body.policy: Input should be a valid string, unable to parse raw data as a unicode string",
    )
