# SPDX-License-Identifier: Apache-2.0
"""A small fabric for the hosts' tests: an event heap and one switch with a marking, finite queue."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.emulated import EmulatedNic

RATE = 25_000_000
FRAME = 1082
PROFILE = DcqcnProfile.scaled(RATE, FRAME)
HOP_NS = 100_000
MS = 1_000_000


class EventHeap:
    """The event heap: runs callbacks in the order (time, insertion)."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        assert time_ns >= self.now, "an event in the past"
        self._count += 1
        heapq.heappush(self._events, (time_ns, self._count, callback, args))

    def run(self, until_ns: int) -> None:
        while self._events and self._events[0][0] <= until_ns:
            self.now, _, callback, args = heapq.heappop(self._events)
            callback(*args)
        self.now = until_ns


class OutPort:
    """A switch port at `rate_bps`: control (DSCP 48 and 50) first, then one FIFO; marks by RED at enqueue."""

    def __init__(
        self,
        heap: EventHeap,
        rate_bps: int,
        deliver: Callable[[bytes], None],
        depth: int = 128,
        seed: int = 1,
    ) -> None:
        self._heap, self._rate, self._deliver, self._depth = heap, rate_bps, deliver, depth
        self._control: deque[bytes] = deque()
        self._data: deque[bytes] = deque()
        self._busy = False
        self._random = random.Random(seed)
        self.kmin, self.kmax, self.pmax = 10, 40, 0.2
        self.bytes = self.marks = self.drops = self.peak = 0

    def enqueue(self, frame: bytes) -> None:
        if frame[15] >> 2 in (48, 50):
            self._control.append(frame)
        elif len(self._data) >= self._depth:
            self.drops += 1
            return
        else:
            self._data.append(self._mark(frame))
            self.peak = max(self.peak, len(self._data))
        if not self._busy:
            self._start()

    def _mark(self, frame: bytes) -> bytes:
        depth = len(self._data)
        if depth <= self.kmin or not frame[15] & 3:
            return frame
        chance = 1.0 if depth > self.kmax else self.pmax * (depth - self.kmin) / (self.kmax - self.kmin)
        if self._random.random() >= chance:
            return frame
        self.marks += 1
        return set_tos(frame, frame[15] | 3)

    def _start(self) -> None:
        queue = self._control or self._data
        if queue:
            self._busy = True
            frame = queue.popleft()
            self._heap.call_at(self._heap.now + len(frame) * 8 * 10**9 // self._rate, self._sent, frame)

    def _sent(self, frame: bytes) -> None:
        self._busy = False
        self.bytes += len(frame)
        self._deliver(frame)
        self._start()


def set_tos(frame: bytes, tos: int) -> bytes:
    """The frame with another type of service and a right IPv4 checksum."""
    header = bytearray(frame[14:34])
    header[1] = tos
    header[10:12] = b"\0\0"
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = (total ^ 0xFFFF).to_bytes(2, "big")
    return frame[:14] + bytes(header) + frame[34:]


class Bench:
    """Hosts on one switch. `trunk_bps` puts all data towards higher-numbered hosts through one port.

    `tap(frame)` sees each frame a host sends, and may return None (lost) or another frame.
    """

    def __init__(
        self, hosts: int, trunk_bps: int = 0, depth: int = 128, profile: DcqcnProfile = PROFILE
    ) -> None:
        self.heap = EventHeap()
        self.tap: Callable[[bytes], bytes | None] = lambda frame: frame
        self.nics: list[EmulatedNic] = []
        self._down: dict[bytes, OutPort] = {}
        for index in range(hosts):
            nic = EmulatedNic(
                f"h{index}", self.ip(index), self.mac(index), "02:ff:00:00:00:01", RATE,
                clock=self.heap, transmit=self._hop, dcqcn=profile, seed=7,
            )  # fmt: skip
            self.nics.append(nic)
            self._down[nic.ip] = OutPort(self.heap, RATE, lambda f, n=nic: self._last_hop(f, n), depth)
        self.trunk = OutPort(self.heap, trunk_bps or RATE, self._to_host, depth)
        self._use_trunk = bool(trunk_bps)

    @staticmethod
    def ip(index: int) -> str:
        return f"10.0.0.{index + 1}"

    @staticmethod
    def mac(index: int) -> str:
        return f"02:00:00:00:00:{index + 1:02x}"

    def down(self, index: int) -> OutPort:
        return self._down[self.nics[index].ip]

    def _hop(self, frame: bytes) -> None:
        kept = self.tap(frame)
        if kept is not None:
            forward = kept[26:30] < kept[30:34]
            target = self.trunk.enqueue if self._use_trunk and forward else self._to_host
            self.heap.call_at(self.heap.now + HOP_NS, target, kept)

    def _to_host(self, frame: bytes) -> None:
        self._down[frame[30:34]].enqueue(frame)

    def _last_hop(self, frame: bytes, nic: EmulatedNic) -> None:
        self.heap.call_at(self.heap.now + HOP_NS, nic.receive, nic.macs[6:] + nic.macs[:6] + frame[12:])

    def flow(self, src: int, dst: int, name: str = "", port: int = 0xC123):
        """An open flow: (sending QP, receiving queue)."""
        name = name or f"job/h{src}>h{dst}"
        queue = self.nics[dst].listen(name, self.ip(src), lambda q, n: None)
        return self.nics[src].open_qp(name, self.ip(dst), port, 10), queue
