# SPDX-License-Identifier: Apache-2.0
"""One side of a bidirectional gRPC stream: a queue to the client, and an artificial delay both ways."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import grpc

from bmv2.server.errors import RESOURCE_EXHAUSTED, UNAVAILABLE, StatusError, abort
from bmv2.server.outbox import Outbox

Request = TypeVar("Request")
Response = TypeVar("Response")


_LOG = logging.getLogger("polyrhythm.switch")


class _End:
    """The mark after the last message of a queue."""


class ClientStream(Generic[Request, Response]):
    """A client's stream. `send` and `close` may be called by any thread and never block.

    Each message in either direction is held back by `delay_s` seconds of the host's time; messages
    travel through the delay together, as through a long wire, and keep their order. What waits for a client
    that does not read is bounded: the oldest messages that may be lost go first, and are counted in `lost`;
    a client that leaves too many others unread loses its stream.
    """

    def __init__(self, context: grpc.ServicerContext, delay_s: float) -> None:
        self._context = context
        self._delay_s = delay_s
        self._outbox: Outbox[tuple[float, Response | StatusError | _End]] = Outbox()
        self._sending = False

    @property
    def lost(self) -> int:
        """Messages that were lost because the client did not read."""
        return self._outbox.lost

    def send(self, message: Response, *, lossy: bool = False, size: int = 0) -> int:
        """Queue a message of `size` bytes to the client; gives how many older ones are lost for it."""
        losses = self._outbox.put((time.monotonic() + self._delay_s, message), lossy=lossy, size=size)
        if losses and losses == self._outbox.lost:
            _LOG.warning("%s does not read its stream: messages to it are lost", self._context.peer())
        if not lossy and self._outbox.crowded():
            self.evict(StatusError(RESOURCE_EXHAUSTED, "stream: too much of it is unread"))
        return losses

    def evict(self, error: StatusError) -> None:
        """End the stream with the error, or cancel it where its client takes nothing."""
        self.close(error)
        if self._sending:
            self._context.cancel()

    def close(self, error: StatusError | None = None) -> None:
        """End the stream after what is queued, with the error if there is one."""
        self._outbox.put((time.monotonic(), _End() if error is None else error))

    def run(
        self, requests: Iterator[Request], handle: Callable[[Request], None], *, half_close_ends: bool
    ) -> Iterator[Response]:
        """Hand each request to `handle` on a thread of its own, and yield what is to go to the client.

        `handle` may raise StatusError to end the stream. With `half_close_ends` the stream also ends
        when the client has no more to say.
        """
        if not self._context.add_callback(self.close):
            return
        reader = threading.Thread(
            target=self._read, args=(requests, handle, half_close_ends), name="stream-reader", daemon=True
        )
        reader.start()
        while True:
            due, item = self._outbox.get()
            _sleep_until(due)
            if isinstance(item, _End):
                return
            if isinstance(item, StatusError):
                abort(self._context, item)
            self._sending = True
            yield item
            self._sending = False

    def _read(
        self, requests: Iterator[Request], handle: Callable[[Request], None], half_close_ends: bool
    ) -> None:
        try:
            for request in self._delayed(requests) if self._delay_s else requests:
                handle(request)
        except StatusError as error:
            self.close(error)
        except grpc.RpcError:
            # How gRPC's request iterator says that the client has gone.
            self.close()
        except ConnectionError as error:
            # The switch ends while its clients still talk to it.
            self.close(StatusError(UNAVAILABLE, str(error)))
        else:
            if half_close_ends:
                self.close()

    def _delayed(self, requests: Iterator[Request]) -> Iterator[Request]:
        inbox: queue.SimpleQueue[tuple[float, Request | _End]] = queue.SimpleQueue()

        def stamp() -> None:
            try:
                for request in requests:
                    inbox.put((time.monotonic() + self._delay_s, request))
            except grpc.RpcError:
                self.close()
            inbox.put((time.monotonic() + self._delay_s, _End()))

        threading.Thread(target=stamp, name="stream-delay", daemon=True).start()
        while True:
            due, item = inbox.get()
            _sleep_until(due)
            if isinstance(item, _End):
                return
            yield item


def _sleep_until(due: float) -> None:
    remaining = due - time.monotonic()
    if remaining > 0:
        time.sleep(remaining)
