# SPDX-License-Identifier: Apache-2.0
"""The views of a source as server-sent events: a keyframe, then at most one difference a second.

A difference is computed and compressed once for all clients, in a thread. Clients read it one after the
other, spread over the interval: two hundred writes in a row would take a processor for some 50 ms. A client
that comes back goes on after its last event, where that is still known; a client that reads too slowly begins
again with a keyframe.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
import time
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sse_starlette import EventSourceResponse, ServerSentEvent

from controller.model.view import View
from controller.northbound.differences import KEPT, DifferenceLog, StreamEvent
from controller.northbound.source import ViewSource
from controller.northbound.stream_state import StreamFabric

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""The least time between two differences, in host time. Chosen."""
TURN_S = 0.004
"""The time between the writes to two clients. Chosen: twice what a write takes, so that the threads beside
this one, which answer agents, are never held up by all clients in a row."""
_TURNS_PART = 0.8
"""The part of an interval in which all clients have their turns, however many they are. Chosen."""
_TURN_STEP = (5**0.5 - 1) / 2
"""Multiples of the golden ratio divide the interval evenly, whichever clients come and go."""
HEARTBEAT_S = 10.0
RETRY_MS = 1000
# Chosen: the level below zlib's default, for speed.
_LEVEL = 5
_RAW_DEFLATE = -zlib.MAX_WBITS
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
# An empty last block of a deflate stream.
_DEFLATE_END = b"\x03\x00"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a stream, plain and as blocks of a deflate stream that refer to no earlier bytes.

    So the blocks of several chunks, one after the other, are a deflate stream too, whichever they are.
    """

    plain: bytes
    deflated: bytes

    @classmethod
    def of(cls, plain: bytes) -> Chunk:
        """Compress bytes."""
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
        return cls(plain, packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


_HELLO = Chunk.of(ServerSentEvent(retry=RETRY_MS, sep="\n").encode())
_HEARTBEAT = Chunk.of(ServerSentEvent(comment="heartbeat", sep="\n").encode())


class _Stream:
    """The log of differences under one epoch, and its events as chunks."""

    def __init__(self, view: View) -> None:
        self.epoch = secrets.token_hex(4)
        self.fabric = StreamFabric(view.topology, emulated=view.emulated)
        self.view = view
        self._log = DifferenceLog(self.fabric, self.fabric.state(view))
        self._chunks: dict[int, Chunk] = {}
        self._keyframe: tuple[int, Chunk] | None = None

    def advance(self, view: View) -> bool:
        """Go on to a view of the same fabric. Whether there is a new difference."""
        self.view = view
        event = self._log.advance(self.fabric.state(view))
        if event is None:
            return False
        self._chunks[event.seq] = self._chunk(event)
        self._chunks.pop(event.seq - KEPT, None)
        return True

    def keyframe(self) -> tuple[int, Chunk]:
        """The newest keyframe and its number."""
        if self._keyframe is None or self._keyframe[0] != self._log.seq:
            event = self._log.keyframe()
            self._keyframe = event.seq, self._chunk(event)
        return self._keyframe

    def since(self, seq: int) -> tuple[int, Sequence[Chunk]] | None:
        """The newest number, and the differences after `seq`; None: a keyframe is needed."""
        events = self._log.since(seq)
        if events is None:
            return None
        return self._log.seq, [self._chunks[event.seq] for event in events]

    def _chunk(self, event: StreamEvent) -> Chunk:
        lines = ServerSentEvent(
            event.data.decode(), event=event.name, id=f"{self.epoch}-{event.seq}", sep="\n"
        )
        return Chunk.of(lines.encode())


class EventFeed:
    """The event streams of all clients of one source. Use it from one event loop only.

    Setting `closing` ends all streams. Both times are host time: they pace the transport only.
    """

    def __init__(
        self,
        source: ViewSource,
        closing: asyncio.Event,
        interval_s: float = INTERVAL_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.clients = 0
        self._admitted = 0
        self._source = source
        self._closing = closing
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._stream: _Stream | None = None
        self._idle_since_s = 0.0
        self._lock = asyncio.Lock()
        self._newer = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def response(self, last_event_id: str | None, accept_encoding: str) -> EventSourceResponse:
        """The answer to one client: `last_event_id` is the last event that it has seen."""
        packed = _accepts_gzip(accept_encoding)
        headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if packed else {})
        chunks = self.chunks(last_event_id)
        # The feed sends heartbeats itself, since they are compressed as the rest is.
        return EventSourceResponse(_gzipped(chunks) if packed else _plain(chunks), headers=headers, ping=0)

    async def chunks(self, last_event_id: str | None = None) -> AsyncGenerator[Chunk]:
        """The chunks of one client's stream, until `closing` is set."""
        self.clients += 1
        self._admitted += 1
        number = self._admitted
        if self._running is None:
            # Nobody is to begin with, or go on from, what was true when the last client left long ago.
            if time.monotonic() - self._idle_since_s > KEPT * self._interval_s:
                self._stream = None
            self._running = asyncio.create_task(self._run(), name="event feed")
        try:
            yield _HELLO
            epoch, seq = _position(last_event_id)
            while not self._closing.is_set():
                newer = self._newer
                found: tuple[int, Sequence[Chunk]] | None = None
                stream = self._stream
                if stream is not None:
                    async with self._lock:
                        found = stream.since(seq) if epoch == stream.epoch else None
                        if found is None:
                            number, keyframe = await asyncio.to_thread(stream.keyframe)
                            found = number, [keyframe]
                    epoch, seq = stream.epoch, found[0]
                    for chunk in found[1]:
                        yield chunk
                if not (found and found[1]):
                    yield _HEARTBEAT
                # Newer events that came during a slow write are sent without waiting.
                if newer is self._newer:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._heartbeat_s):
                            await newer.wait()
                    if not self._closing.is_set():
                        await asyncio.sleep(turn_s(number, self.clients, self._interval_s))
        finally:
            self.clients -= 1

    async def _run(self) -> None:
        """Look at the newest view once in each interval, as long as there are clients."""
        ended = asyncio.create_task(self._closing.wait())
        try:
            with self._source.watching():
                while self.clients and not self._closing.is_set():
                    view = self._source.snapshot()
                    if view is not None:
                        async with self._lock:
                            if await self._take(view):
                                self._wake()
                    await asyncio.wait({ended}, timeout=self._interval_s)
        except Exception:
            log.exception("the event streams stop: their differences cannot be computed")
            self._closing.set()
        finally:
            ended.cancel()
            self._running = None
            self._idle_since_s = time.monotonic()
            self._wake()

    async def _take(self, view: View) -> bool:
        """Go on to a view; whether clients have something to read."""
        stream = self._stream
        if stream is None or stream.fabric.topology is not view.topology:
            self._stream = await asyncio.to_thread(_Stream, view)
            return True
        return view is not stream.view and await asyncio.to_thread(stream.advance, view)

    def _wake(self) -> None:
        stale, self._newer = self._newer, asyncio.Event()
        stale.set()


def turn_s(number: int, clients: int, interval_s: float) -> float:
    """How long client `number` of so many waits for its turn after a difference. A single one does not."""
    return number * _TURN_STEP % 1 * min(_TURNS_PART * interval_s, (clients - 1) * TURN_S)


def _position(last_event_id: str | None) -> tuple[str, int]:
    """Epoch and number of an event's id; no stream has the position of an id that is none."""
    epoch, _, number = (last_event_id or "").rpartition("-")
    return (epoch, int(number)) if number.isascii() and number.isdecimal() and len(number) < 16 else ("", 0)


def _accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def _plain(chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk.plain
    finally:
        await chunks.aclose()


async def _gzipped(chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[bytes]:
    """The chunks as one gzip stream (RFC 1952) whose blocks all clients share."""
    crc, size = 0, 0
    head = _GZIP_HEAD
    try:
        async for chunk in chunks:
            crc, size = zlib.crc32(chunk.plain, crc), size + len(chunk.plain)
            yield head + chunk.deflated
            head = b""
        yield head + _DEFLATE_END + struct.pack("<II", crc, size & 0xFFFFFFFF)
    finally:
        await chunks.aclose()
