# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: latest wins, paced, kept alive, and ended when the server or the client goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator

import httpx
from fake_source import running, view

from controller.model.view import View
from controller.northbound.source import ViewBoard
from controller.northbound.stream import ViewEncoder, view_events


def encode(value: View) -> bytes:
    return str(value.time_ns).encode()


def event(value: View) -> bytes:
    return b"event: view\ndata: " + encode(value) + b"\n\n"


def test_starts_with_the_retry_hint_and_the_current_view() -> None:
    async def main() -> list[bytes]:
        board = ViewBoard()
        board.publish(view(1))
        stream = view_events(board, encode, asyncio.Event())
        got = [await anext(stream), await anext(stream)]
        await stream.aclose()
        return got

    assert asyncio.run(main()) == [b"retry: 1000\n\n", event(view(1))]


def test_views_between_two_events_are_skipped() -> None:
    async def main() -> list[bytes]:
        board = ViewBoard()
        board.publish(view(0))
        stream = view_events(board, encode, asyncio.Event(), min_interval_s=1.0)
        await anext(stream)
        got = [await anext(stream)]
        waiting = asyncio.ensure_future(anext(stream))
        for step in range(1, 31):
            board.publish(view(step))
            await asyncio.sleep(0)
        got.append(await waiting)
        await stream.aclose()
        return got

    assert asyncio.run(main()) == [event(view(0)), event(view(30))]


def test_heartbeats_until_there_is_something_to_say() -> None:
    async def main() -> list[bytes]:
        board = ViewBoard()
        stream = view_events(board, encode, asyncio.Event(), heartbeat_s=0.01)
        got = [await anext(stream) for _ in range(4)]
        board.publish(view(2))
        while not got[-1].startswith(b"event"):
            got.append(await anext(stream))
        await stream.aclose()
        return got

    got = asyncio.run(main())
    assert got[1:4] == [b": heartbeat\n\n"] * 3
    assert got[-1] == event(view(2))


def test_closing_ends_a_waiting_stream() -> None:
    async def main() -> list[bytes]:
        closing = asyncio.Event()
        stream = view_events(ViewBoard(), encode, closing)
        rest = asyncio.ensure_future(_drain(stream))
        await asyncio.sleep(0.01)
        closing.set()
        return await asyncio.wait_for(rest, 10)

    assert asyncio.run(main()) == [b"retry: 1000\n\n"]


async def _drain(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in stream]


class Finite:
    """A source that ends after two views and tells whether its generator was closed."""

    def __init__(self) -> None:
        self.closed = False

    def snapshot(self) -> View | None:
        return None

    async def subscribe(self) -> AsyncGenerator[View]:
        try:
            yield view(1)
            yield view(2)
        finally:
            self.closed = True


def test_a_source_that_ends_ends_the_stream() -> None:
    source = Finite()
    chunks = asyncio.run(_drain(view_events(source, encode, asyncio.Event(), min_interval_s=0)))
    assert chunks[1:] == [event(view(1)), event(view(2))]
    assert source.closed


def test_a_client_that_leaves_closes_its_subscription() -> None:
    async def main() -> bool:
        source = Finite()
        stream = view_events(source, encode, asyncio.Event(), min_interval_s=0)
        await anext(stream)
        await anext(stream)
        await stream.aclose()
        return source.closed

    assert asyncio.run(main())


def test_a_view_is_encoded_once_for_all_clients() -> None:
    calls: list[View] = []

    def count(value: View) -> bytes:
        calls.append(value)
        return b"x"

    slot = ViewEncoder(count)
    first, second = view(1), view(2)
    assert [slot(first), slot(first), slot(second), slot(second)] == [b"x"] * 4
    assert calls == [first, second]


def test_over_a_socket_each_publication_arrives_as_json() -> None:
    with running(view(0)) as server, httpx.stream("GET", server.url + "api/v1/events", timeout=300) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        times = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                body = json.loads(line.removeprefix("data: "))
                assert body["scenario"] == "snapshot2"
                assert len(body["jobs"]) == len(body["plan"]["jobs"]) == 3
                times.append(body["time_ns"])
                if len(times) == 3:
                    break
                server.publish(view(len(times)))
        assert times == [view(step).time_ns for step in range(3)]
