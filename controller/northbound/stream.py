# SPDX-License-Identifier: Apache-2.0
"""Views as server-sent events: at a limited rate, always the newest view, with heartbeats while idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from controller.model.view import View
from controller.northbound.source import ViewSource

RETRY_MS = 1000
MIN_INTERVAL_S = 0.1
HEARTBEAT_S = 10.0
_HEARTBEAT = b": heartbeat\n\n"


class ViewEncoder:
    """Encodes each view once for all clients that read it."""

    def __init__(self, encode: Callable[[View], bytes]) -> None:
        self._encode = encode
        self._view: View | None = None
        self._data = b""

    def __call__(self, view: View) -> bytes:
        """The encoded view; it is cached until another view comes."""
        if view is not self._view:
            self._data = self._encode(view)
            self._view = view
        return self._data


async def view_events(
    source: ViewSource,
    encode: Callable[[View], bytes],
    closing: asyncio.Event,
    *,
    min_interval_s: float = MIN_INTERVAL_S,
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncGenerator[bytes]:
    """The bytes of one client's `text/event-stream`, until the source ends or `closing` is set.

    `encode` returns a view as JSON on one line. Both times are host time: they pace the transport only.
    """
    yield b"retry: %d\n\n" % RETRY_MS
    views = source.subscribe()
    stop = asyncio.ensure_future(closing.wait())
    # anext() stays pending over heartbeats: cancelling it would end the source's generator.
    pending: asyncio.Future[View] | None = None
    sent: View | None = None
    try:
        newest = source.snapshot()
        while not closing.is_set():
            if newest is not None and newest is not sent:
                sent = newest
                yield b"event: view\ndata: " + encode(newest) + b"\n\n"
                await asyncio.wait({stop}, timeout=min_interval_s)
            pending = pending or asyncio.ensure_future(anext(views))
            either: set[asyncio.Future[Any]] = {pending, stop}
            await asyncio.wait(either, timeout=heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            if pending.done():
                newest, pending = pending.result(), None
            elif not closing.is_set():
                yield _HEARTBEAT
    except StopAsyncIteration:
        return
    finally:
        stop.cancel()
        if pending is not None:
            pending.cancel()
        else:
            await views.aclose()
