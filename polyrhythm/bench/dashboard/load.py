# SPDX-License-Identifier: Apache-2.0
"""Loads a web server from a process of its own: event streams that are read, and requests at an even rate.

`python -m polyrhythm.bench.dashboard.load URL STREAMS REQUESTS_PER_S SECONDS` prints the line {"ready": true}
once all streams have their keyframe, then the figures as one line of JSON. The process has a low priority
(nice 10), because it stands for browsers and scripts on other machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from polyrhythm.bench.hostfabric import NICENESS

PATHS = ("jobs", "plan", "fabric/switches", "fabric/links?most=50", "alarms", "drains", "policy", "event-log")
"""What is asked for in turn. `plan` answers 404 before the first plan, which is an answer too."""
_CONNECTIONS = 16
# Chosen: a large keyframe on a loaded machine takes seconds.
_KEYFRAME_S = 120.0


@dataclass
class EventReader:
    """An event stream as one client reads it. `received` has arrival in s and bytes of each difference."""

    ready: asyncio.Event = field(default_factory=asyncio.Event)
    received: list[tuple[float, int]] = field(default_factory=list)
    held: bool = False

    async def read(self, host: str, port: int) -> None:
        """Read until cancelled."""
        # A keyframe is one line.
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 26)
        try:
            writer.write(f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            self.held = True
            while (size := int((await reader.readline()).strip() or b"0", 16)) > 0:
                chunk = await reader.readexactly(size + 2)
                if b"event: difference" in chunk[:100]:
                    self.received.append((time.monotonic(), size))
                elif b"event: keyframe" in chunk[:100]:
                    self.ready.set()
        finally:
            self.held = False
            writer.close()


class _Connection:
    """One connection that is kept for many requests."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, float]:
        """The status of an answer, and how long it took in s."""
        if self._ends is None:
            self._ends = await asyncio.open_connection(*self._address)
        reader, writer = self._ends
        began = time.monotonic()
        writer.write(f"GET /api/v1/{path} HTTP/1.1\r\nHost: {self._address[0]}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        return int(head.split(None, 2)[1]), time.monotonic() - began

    def close(self) -> None:
        """Close the connection."""
        if self._ends is not None:
            self._ends[1].close()


async def _ask(host: str, port: int, per_s: int, seconds: float) -> tuple[list[float], int]:
    """Requests at an even rate; the times in s since each was due, and how many had no answer or a 5xx."""
    free: asyncio.Queue[_Connection] = asyncio.Queue()
    for _ in range(_CONNECTIONS):
        free.put_nowait(_Connection(host, port))
    times: list[float] = []
    failed = 0

    async def one(path: str, due: float) -> None:
        nonlocal failed
        connection = await free.get()
        try:
            status, _ = await connection.get(path)
            failed += status >= 500
            times.append(time.monotonic() - due)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            failed += 1
            connection.close()
            connection = _Connection(host, port)
        finally:
            free.put_nowait(connection)

    began = time.monotonic()
    tasks = []
    for number in range(round(per_s * seconds)):
        due = began + number / per_s
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(one(PATHS[number % len(PATHS)], due)))
    await asyncio.gather(*tasks)
    while not free.empty():
        free.get_nowait().close()
    return sorted(times), failed


async def load(url: str, streams: int, per_s: int, seconds: float) -> dict[str, object]:
    """Hold the streams, ask, and return the figures."""
    address = urlsplit(url)
    host, port = address.hostname or "127.0.0.1", address.port or 80
    clients = [EventReader() for _ in range(streams)]
    reading = [asyncio.create_task(client.read(host, port)) for client in clients]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KEYFRAME_S):
            for client in clients:
                await client.ready.wait()
    print(json.dumps({"ready": True}), flush=True)
    began = time.monotonic()
    times, failed = await _ask(host, port, per_s, seconds)
    if not per_s:
        await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    held = sum(client.held and client.ready.is_set() for client in clients)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    most = max((sum(n for at, n in c.received if at >= began) for c in clients), default=0)
    return {
        "held": held,
        "requests": len(times),
        "failed": failed,
        "p99_ms": times[int(0.99 * (len(times) - 1))] * 1e3 if times else None,
        "bytes_per_s": most / passed,
    }


if __name__ == "__main__":
    os.nice(NICENESS)
    _, where, wanted, rate, length = sys.argv
    print(json.dumps(asyncio.run(load(where, int(wanted), int(rate), float(length)))), flush=True)
