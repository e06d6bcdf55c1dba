# SPDX-License-Identifier: Apache-2.0
"""The traffic manager of one port: strict-priority queues of finite depth under one rate in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .boundary import DataPlaneClock

BIT_NANOSECONDS = 8_000_000_000

# (state, enqueue time in us, depth found) -> the frame to send, or None where egress drops the packet.
Egress = Callable[[Any, int, int, int, int, int, int], bytes | None]


class Queue:
    """One queue: packets waiting, and counts since the program was loaded.

    `drops` counts packets lost here: the queue full, flushed when the port went down, or being sent then.
    `packets` and `bytes` count what has begun to leave, in frames as sent. `held` is the bytes waiting, in
    frames as received, and is kept only where the queue is bounded in bytes.
    """

    __slots__ = ("bytes", "drops", "held", "packets", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Any, int, int]] = deque()
        self.drops = 0
        self.packets = 0
        self.bytes = 0
        self.held = 0

    @property
    def depth(self) -> int:
        """Packets waiting; one being sent no longer counts."""
        return len(self.waiting)

    def flush(self) -> int:
        """Lose what waits; gives how many packets that were."""
        lost = len(self.waiting)
        self.waiting.clear()
        self.held = 0
        return lost


class SwitchPort:
    """A port of a switch and its queues; the highest queue that holds a packet is served first.

    The transmitter is busy for 8 * bytes / rate seconds a frame, and hands it on when its last bit has
    left. Fractions of a nanosecond are carried on while it is busy, so that the rate is exact.
    A packet is dropped where its queue holds `queue_packets` already, or would hold more than `queue_bytes`
    with it; what is being sent holds no place. A state begins with the frame as received.
    """

    __slots__ = (
        "_busy",
        "_byte_capacity",
        "_capacity",
        "_clock",
        "_egress",
        "_epoch",
        "_fraction",
        "_occupied",
        "_sending",
        "_transmit",
        "number",
        "queues",
        "rate_bps",
        "up",
    )

    def __init__(
        self,
        number: int,
        clock: DataPlaneClock,
        transmit: Callable[[bytes], None],
        *,
        rate_bps: int | None,
        queues: int,
        queue_packets: int,
        queue_bytes: int | None = None,
    ) -> None:
        if rate_bps is not None and rate_bps <= 0:
            raise ValueError(f"port {number}: the rate must be positive, got {rate_bps} bit/s")
        if queue_packets <= 0:
            raise ValueError(f"port {number}: a queue holds at least 1 packet, got {queue_packets}")
        if queue_bytes is not None and queue_bytes <= 0:
            raise ValueError(f"port {number}: a queue holds at least 1 byte, got {queue_bytes}")
        self.number = number
        self.rate_bps = rate_bps
        self.up = True
        self.queues = tuple(Queue() for _ in range(queues))
        self._clock = clock
        self._transmit = transmit
        self._capacity = queue_packets
        self._byte_capacity = queue_bytes
        self._egress: Egress | None = None
        self._busy = False
        self._sending = 0
        self._epoch = 0
        self._fraction = 0
        self._occupied = 0

    def reset(self, egress: Egress) -> None:
        """Begin with a new program: queues empty, counts zero; a frame being sent still leaves."""
        self._egress = egress
        self._occupied = 0
        for queue in self.queues:
            queue.flush()
            queue.drops = queue.packets = queue.bytes = 0

    def set_up(self, up: bool) -> None:
        """Bring the port up, or down: what waits and what is being sent is lost."""
        self.up = up
        if up:
            return
        if self._busy:
            self.queues[self._sending].drops += 1
        for queue in self.queues:
            queue.drops += queue.flush()
        self._epoch += 1
        self._busy = False
        self._occupied = 0

    def enqueue(self, qid: int, state: Any) -> None:
        """Put a packet into a queue, or drop it; an idle port starts to send it at once."""
        queue = self.queues[qid]
        waiting = queue.waiting
        depth = len(waiting)
        if not self.up or depth >= self._capacity:
            queue.drops += 1
            return
        if self._byte_capacity is not None:
            held = queue.held + len(state[0])
            if held > self._byte_capacity:
                queue.drops += 1
                return
            queue.held = held
        waiting.append((state, self._clock.now // 1000, depth))
        self._occupied |= 1 << qid
        if not self._busy:
            self._fraction = 0
            self._send()

    def _send(self) -> None:
        """Take packets until one leaves: the transmitter is idle when none is left."""
        egress, clock = self._egress, self._clock
        assert egress is not None
        while self._occupied:
            qid = self._occupied.bit_length() - 1
            queue = self.queues[qid]
            state, time, found = queue.waiting.popleft()
            if self._byte_capacity is not None:
                queue.held -= len(state[0])
            depth = len(queue.waiting)
            if not depth:
                self._occupied &= ~(1 << qid)
            frame = egress(state, self.number, qid, time, found, clock.now // 1000, depth)
            if frame is None:
                continue
            queue.packets += 1
            queue.bytes += len(frame)
            if self.rate_bps is None:
                self._transmit(frame)
                continue
            duration, self._fraction = divmod(len(frame) * BIT_NANOSECONDS + self._fraction, self.rate_bps)
            self._busy = True
            self._sending = qid
            clock.call_at(clock.now + duration, self._sent, self._epoch, frame)
            return
        self._busy = False

    def _sent(self, epoch: int, frame: bytes) -> None:
        if epoch != self._epoch:
            return
        self._transmit(frame)
        if epoch == self._epoch:
            self._send()
