# SPDX-License-Identifier: Apache-2.0
"""The web server's thread: it reads and acts on the control loop, and ends with it."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from fake_source import FakeStatus, view

from controller.northbound.api import create_app
from controller.northbound.drain_routes import DrainedPart
from controller.northbound.operations import Operations
from controller.northbound.problems import OperationError
from controller.northbound.web import WebServer, serve
from controller.process.view_publisher import WatchedBoard
from controller.process.web_thread import WebThread


class Drains:
    """Drains that know in which thread they are called."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def drained(self) -> tuple[DrainedPart, ...]:
        self.threads.append(threading.current_thread())
        return ()

    async def drain(self, part: str, name: str, cut_off: bool) -> DrainedPart:
        self.threads.append(threading.current_thread())
        raise OperationError(409, "not now")

    def undrain(self, part: str, name: str) -> None:
        raise OperationError(404, "it is not drained")


def test_requests_are_answered_from_the_control_loop_and_the_thread_ends() -> None:
    async def main() -> None:
        board, drains, web = WatchedBoard(), Drains(), WebThread()

        async def serving() -> WebServer:
            parts = web.operations(Operations(drains=drains))
            return await serve(
                create_app(web.views(board), None, web.status(FakeStatus()), 5.0, operations=parts), port=0
            )

        server = await web.start(serving)
        async with httpx.AsyncClient(base_url=server.url + "api/v1/", timeout=300) as client:
            assert (await client.get("jobs")).status_code == 503
            made: list[threading.Thread] = []

            def make(step: int) -> object:
                made.append(threading.current_thread())
                return view(step)

            board.offer(lambda: make(1))
            assert (await client.get("jobs")).json()["time_ns"] == view(1).time_ns
            board.offer(lambda: make(2))
            assert (await client.get("jobs")).json()["time_ns"] == view(2).time_ns
            assert (await client.get("drains")).json()["drains"] == []
            refused = await client.put("fabric/switches/leaf1/drain")
            assert (refused.status_code, refused.json()["detail"]) == (409, "not now")
            assert (await client.delete("fabric/switches/leaf1/drain")).status_code == 404
            assert (await client.get("readyz")).status_code == 200
            asked = asyncio.create_task(client.get("fabric"))
            while not board.watchers:
                await asyncio.sleep(0.01)
            for step in range(3, 6):
                board.publish(view(step))
                await asyncio.sleep(0.02)
            assert (await asked).json()["time_ns"] >= view(3).time_ns
            assert {*drains.threads, *made} == {threading.current_thread()}
        await web.close()
        while board.watchers:
            await asyncio.sleep(0.01)
        assert not [t for t in threading.enumerate() if t.name == "web"]

    asyncio.run(main())


def test_what_keeps_the_server_from_starting_is_raised() -> None:
    async def main() -> None:
        web = WebThread()

        async def serving() -> WebServer:
            raise OSError("no port")

        with pytest.raises(OSError, match="no port"):
            await web.start(serving)

    asyncio.run(main())
