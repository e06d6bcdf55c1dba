# SPDX-License-Identifier: Apache-2.0
"""The event stream on the wire: keyframe, differences, resume, compression, and its end."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from fake_source import running, view

from controller.northbound.event_feed import TURN_S, Chunk, EventFeed, turn_s
from controller.northbound.source import ViewBoard

_EVENT = re.compile(rb"id: (\w+)-(\d+)\nevent: (\w+)\ndata: (.*)\n\n")


async def event(chunks: AsyncGenerator[Chunk]) -> tuple[str, int, str, dict[str, Any]]:
    """The next event; comments and the retry hint are skipped."""
    async for chunk in chunks:
        found = _EVENT.fullmatch(chunk.plain)
        if found:
            epoch, seq, name, data = found.groups()
            return epoch.decode(), int(seq), name.decode(), json.loads(data)
    raise AssertionError("the stream has ended")


def feed(board: ViewBoard, closing: asyncio.Event, heartbeat_s: float = 10.0) -> EventFeed:
    return EventFeed(board, closing, interval_s=0.01, heartbeat_s=heartbeat_s)


def test_a_keyframe_then_differences_and_who_comes_back_goes_on() -> None:
    async def main() -> None:
        board, closing = ViewBoard(), asyncio.Event()
        board.publish(view(0))
        streams = feed(board, closing)
        one = streams.chunks()
        epoch, seq, name, data = await event(one)
        assert (name, data["seq"], data["scenario"]) == ("keyframe", seq, "snapshot2")
        board.publish(view(1))
        assert (await event(one))[:3] == (epoch, seq + 1, "difference")
        board.publish(view(2))
        assert (await event(one))[:3] == (epoch, seq + 2, "difference")
        await one.aclose()
        again = streams.chunks(f"{epoch}-{seq}")
        assert [(await event(again))[1:3] for _ in range(2)] == [
            (seq + 1, "difference"),
            (seq + 2, "difference"),
        ]
        for unknown in (f"{epoch}-99", "other-1", "", "x", f"{epoch}--1", f"{epoch}-{'9' * 40}", "٣-٣"):
            other = streams.chunks(unknown)
            assert (await event(other))[2] == "keyframe", unknown
            await other.aclose()
        closing.set()
        await again.aclose()

    asyncio.run(main())


def test_who_comes_after_a_long_pause_sees_nothing_of_before() -> None:
    async def main() -> None:
        board, closing = ViewBoard(), asyncio.Event()
        board.publish(view(0))
        streams = feed(board, closing)
        one = streams.chunks()
        epoch, seq, _, _ = await event(one)
        await one.aclose()
        board.publish(view(1))
        # Longer than differences are kept: 60 intervals of 10 ms.
        await asyncio.sleep(0.8)
        for seen in (None, f"{epoch}-{seq}"):
            late = streams.chunks(seen)
            later, _, name, data = await event(late)
            assert (name, data["time_ns"]) == ("keyframe", view(1).time_ns)
            assert later != epoch
            await late.aclose()
        closing.set()

    asyncio.run(main())


def test_heartbeats_before_the_first_view_and_the_end_when_the_server_closes() -> None:
    async def main() -> None:
        board, closing = ViewBoard(), asyncio.Event()
        streams = feed(board, closing, heartbeat_s=0.01)
        one = streams.chunks()
        got = [(await anext(one)).plain for _ in range(3)]
        assert got == [b"retry: 1000\n\n", b": heartbeat\n\n", b": heartbeat\n\n"]
        board.publish(view(0))
        assert (await event(one))[2] == "keyframe"
        closing.set()
        assert [chunk.plain async for chunk in one if b"event" in chunk.plain] == []
        assert streams.clients == 0

    asyncio.run(main())


def test_all_clients_read_the_same_bytes_and_a_slow_one_begins_again() -> None:
    async def main() -> None:
        board, closing = ViewBoard(), asyncio.Event()
        board.publish(view(0))
        streams = feed(board, closing)
        fast, slow = streams.chunks(), streams.chunks()
        await event(fast)
        await event(slow)
        for step in range(1, 80):
            board.publish(view(step))
            await event(fast)
        name, data = (await event(slow))[2:]
        assert name == "keyframe"
        assert data["seq"] == 79
        closing.set()
        await fast.aclose()
        await slow.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("first", [1, 1_000_003])
@pytest.mark.parametrize("clients", [2, 20, 200, 1_000])
def test_clients_have_their_turns_one_after_the_other(first: int, clients: int) -> None:
    turns = sorted(turn_s(number, clients, 1.0) for number in range(first, first + clients))
    assert turns[0] >= 0
    assert turns[-1] < min(0.8, clients * TURN_S)
    even = min(0.8, (clients - 1) * TURN_S) / clients
    assert min(after - before for before, after in pairwise(turns)) > even / 4


def test_a_single_client_waits_for_no_turn() -> None:
    assert [turn_s(number, 1, 1.0) for number in range(10)] == [0.0] * 10


def test_over_http_it_is_compressed_for_who_asks_and_ends_as_a_whole_gzip_stream() -> None:
    got: list[bytes] = []
    with running(view(0)) as server:
        client = httpx.Client(base_url=server.url, timeout=300)
        with client.stream("GET", "api/v1/stream", headers={"Accept-Encoding": "identity"}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert "content-encoding" not in answer.headers
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith("event:")) == "event: keyframe"
        head = client.head("api/v1/stream")
        assert head.status_code == 200
        with client.stream("GET", "api/v1/stream", headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            raw = answer.iter_raw()
            unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
            text = b""
            while b"keyframe" not in text:
                text += unpack.decompress(next(raw))
            server.publish(view(1))
            while b"difference" not in text:
                text += unpack.decompress(next(raw))
            server.close_streams()
            for part in raw:
                got.append(unpack.decompress(part))
            assert unpack.eof, "the end of the stream has its checksum"
        client.close()
