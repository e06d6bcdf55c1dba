# SPDX-License-Identifier: Apache-2.0
"""BMv2's traffic manager of one port: every queue has a rate of its own in packets, and the port has none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .boundary import DataPlaneClock
from .scheduler import Egress, SwitchPort

BMV2_QUEUE_PACKETS = 64
_SECOND_NS = 1_000_000_000


class PacketRatePort(SwitchPort):
    """A port whose queues drain as simple_switch's do (`set_queue_rate` of its command line).

    A packet is given its time when it is put into its queue: now, or 1/rate after the one before it in that
    queue, whichever is later, so that N queues at rate R give up to N * R packets a second on the port.
    Of the packets whose time has come the highest queue's goes first. Frames of any length take no time to
    send. A packet waits from the moment it is put in, so that it counts in its queue's depth until its time.
    """

    __slots__ = ("_delays", "_due", "_last")

    def __init__(
        self,
        number: int,
        clock: DataPlaneClock,
        transmit: Callable[[bytes], None],
        *,
        queues: int,
        queue_packets: int = BMV2_QUEUE_PACKETS,
    ) -> None:
        super().__init__(number, clock, transmit, rate_bps=None, queues=queues, queue_packets=queue_packets)
        self._delays = [0] * queues
        self._last = [clock.now] * queues
        self._due: tuple[deque[int], ...] = tuple(deque() for _ in range(queues))

    def set_queue_rate(self, pps: int | None, qid: int | None = None) -> None:
        """Set the rate of one queue, or of all, in packets/s (None: no limit), for packets to come."""
        if pps is not None and pps <= 0:
            raise ValueError(f"port {self.number}: a queue's rate must be positive, got {pps} packets/s")
        if qid is not None and not 0 <= qid < len(self.queues):
            raise ValueError(f"port {self.number}: queues are 0 to {len(self.queues) - 1}, got {qid}")
        for each in range(len(self.queues)) if qid is None else (qid,):
            self._delays[each] = 0 if pps is None else _SECOND_NS // pps

    def reset(self, egress: Egress) -> None:
        """Begin with a new program: queues empty, counts zero; the rates stay."""
        super().reset(egress)
        self._forget()

    def set_up(self, up: bool) -> None:
        """Bring the port up, or down: what waits is lost."""
        super().set_up(up)
        if not up:
            self._forget()

    def _forget(self) -> None:
        self._last = [self._clock.now] * len(self.queues)
        for due in self._due:
            due.clear()

    def enqueue(self, qid: int, state: Any) -> None:
        """Put a packet into a queue, or drop it; it leaves at once where its time has come."""
        queue = self.queues[qid]
        depth, now = len(queue.waiting), self._clock.now
        if not self.up or depth >= self._capacity:
            queue.drops += 1
            return
        time = self._last[qid] = max(now, self._last[qid] + self._delays[qid])
        queue.waiting.append((state, now // 1000, depth))
        self._due[qid].append(time)
        if time > now:
            self._clock.call_at(time, self._send)
        else:
            self._send()

    def _send(self) -> None:
        """Send all whose time has come. A call for packets that were lost since finds none."""
        egress, clock = self._egress, self._clock
        assert egress is not None
        while (qid := self._ready(clock.now)) is not None:
            queue = self.queues[qid]
            self._due[qid].popleft()
            state, time, found = queue.waiting.popleft()
            frame = egress(state, self.number, qid, time, found, clock.now // 1000, len(queue.waiting))
            if frame is not None:
                queue.packets += 1
                queue.bytes += len(frame)
                self._transmit(frame)

    def _ready(self, now: int) -> int | None:
        for qid in range(len(self.queues) - 1, -1, -1):
            due = self._due[qid]
            if due and due[0] <= now:
                return qid
        return None
