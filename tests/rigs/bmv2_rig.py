# SPDX-License-Identifier: Apache-2.0
"""A switch on an event heap, for tests."""

import heapq
from collections.abc import Callable
from typing import Any

from bmv2 import EmbeddedSwitch, load_program


class HeapClock:
    """A clock with an event heap that the test runs."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        assert time_ns >= self.now
        self.events += 1
        heapq.heappush(self._heap, (time_ns, self.events, callback, args))

    def run(self, until: int | None = None) -> None:
        while self._heap and (until is None or self._heap[0][0] <= until):
            self.now, _, callback, args = heapq.heappop(self._heap)
            callback(*args)
        self.now = max(self.now, until or 0)


class Rig:
    """A switch with ports 1 to 4 that records what leaves: (time, port, frame)."""

    def __init__(
        self,
        json: str,
        *,
        rate_bps: int | None = None,
        queue_packets: int = 256,
        queue_bytes: int | None = None,
        **options: Any,
    ) -> None:
        self.clock = HeapClock()
        self.sent: list[tuple[int, int, bytes]] = []
        self.cpu: list[bytes] = []
        self.switch = EmbeddedSwitch("s1", self.clock, **options)
        self.switch.packet_in = self.cpu.append
        for port in range(1, 5):
            self.switch.add_port(
                port,
                rate_bps=rate_bps,
                transmit=self._recorder(port),
                queue_packets=queue_packets,
                queue_bytes=queue_bytes,
            )
        self.switch.load(load_program(json))

    def _recorder(self, port: int) -> Callable[[bytes], None]:
        return lambda frame: self.sent.append((self.clock.now, port, frame))

    def frames(self, port: int) -> list[bytes]:
        return [frame for _, out, frame in self.sent if out == port]


def ethernet(port: int, *, priority: int = 0, size: int = 14) -> bytes:
    """A frame that `forwarder` sends out of a port."""
    return port.to_bytes(6) + bytes(6) + priority.to_bytes(2) + bytes(size - 14)
