# SPDX-License-Identifier: Apache-2.0
"""A switch whose queues can be paused one by one, and that loses no packet of its lossless priorities as long
as its neighbours pause in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .boundary import DataPlaneClock
from .failover import PortTable
from .ingress_buffer import IngressBuffer
from .scheduler import BIT_NANOSECONDS, Egress, SwitchPort
from .switch import EmbeddedSwitch


class LosslessPort(SwitchPort):
    """A port of a LosslessSwitch.

    A paused queue sends nothing; a frame that is being sent when its queue is paused still leaves. MAC
    control frames go before all queues. A packet of a lossless priority takes its place in the switch's
    ingress buffer until it begins to leave, and its queue has no bound of its own; a packet of another
    priority, or one that came by no cable, is dropped where its queue holds `queue_packets` already.
    """

    __slots__ = ("_buffer", "_control", "_control_leaves", "_paused", "_places")

    def __init__(
        self,
        number: int,
        clock: DataPlaneClock,
        transmit: Callable[[bytes], None],
        *,
        rate_bps: int,
        queues: int,
        queue_packets: int,
        buffer: IngressBuffer,
    ) -> None:
        super().__init__(
            number, clock, transmit, rate_bps=rate_bps, queues=queues, queue_packets=queue_packets
        )
        self._buffer = buffer
        self._control: deque[bytes] = deque()
        self._control_leaves = False
        self._paused = 0
        # For each packet that waits: the port that it was received on and its size; None: it has no place.
        self._places: tuple[deque[tuple[int, int] | None], ...] = tuple(deque() for _ in range(queues))

    def reset(self, egress: Egress) -> None:
        """Begin with a new program: queues empty, counts zero. What is paused stays paused."""
        self._release_all()
        super().reset(egress)
        self._wake()

    def set_up(self, up: bool) -> None:
        """Bring the port up, or down: what waits and what is being sent is lost, and nothing is paused."""
        self.up = up
        if not up:
            self._control.clear()
            self._paused = 0
            if self._control_leaves:
                # The frame that is lost came out of no queue.
                self._busy = self._control_leaves = False
            self._release_all()
        super().set_up(up)

    def set_paused(self, queues: int) -> None:
        """Pause the queues whose bits are set, and no others, from the next frame on."""
        self._paused = queues
        self._wake()

    def send_control(self, frame: bytes) -> None:
        """Send a MAC control frame before all queues; a port that is down loses it."""
        if self.up:
            self._control.append(frame)
            self._wake()

    def enqueue(self, qid: int, state: Any) -> None:
        """Put a packet into a queue, or drop it; an idle port starts to send it at once."""
        buffer, queue, size = self._buffer, self.queues[qid], len(state[0])
        source = buffer.arriving
        place = (source, size) if source is not None and qid in buffer.profile.priorities else None
        depth = len(queue.waiting)
        fits = self.up and (depth < self._capacity if place is None else buffer.admit(place[0], qid, size))
        if not fits:
            queue.drops += 1
            return
        queue.waiting.append((state, self._clock.now // 1000, depth))
        self._places[qid].append(place)
        self._occupied |= 1 << qid
        self._wake()

    def _wake(self) -> None:
        if not self._busy and self._egress is not None:
            self._fraction = 0
            self._send()

    def _send(self) -> None:
        """Take what goes first until a frame leaves: control frames, then the highest queue that may send."""
        egress, clock = self._egress, self._clock
        assert egress is not None
        # A packet that leaves may make the buffer send a control frame by this very port.
        self._busy = True
        self._control_leaves = False
        while True:
            if self._control:
                self._control_leaves = True
                self._leave(self._control.popleft())
                return
            ready = self._occupied & ~self._paused
            if not ready:
                break
            qid = ready.bit_length() - 1
            queue = self.queues[qid]
            state, time, found = queue.waiting.popleft()
            depth = len(queue.waiting)
            if not depth:
                self._occupied &= ~(1 << qid)
            self._release(qid, self._places[qid].popleft())
            frame = egress(state, self.number, qid, time, found, clock.now // 1000, depth)
            if frame is not None:
                queue.packets += 1
                queue.bytes += len(frame)
                self._sending = qid
                self._leave(frame)
                return
        self._busy = False

    def _leave(self, frame: bytes) -> None:
        assert self.rate_bps is not None
        duration, self._fraction = divmod(len(frame) * BIT_NANOSECONDS + self._fraction, self.rate_bps)
        self._clock.call_at(self._clock.now + duration, self._sent, self._epoch, frame)

    def _release(self, qid: int, place: tuple[int, int] | None) -> None:
        if place is not None:
            self._buffer.release(place[0], qid, place[1])

    def _release_all(self) -> None:
        """Give back the places of all that waits, which the caller then loses."""
        # The buffer may send a control frame by this very port, which must not take what is being lost.
        busy, self._busy = self._busy, True
        for qid, places in enumerate(self._places):
            while places:
                self._release(qid, places.popleft())
        self._busy = busy


class LosslessSwitch(EmbeddedSwitch):
    """An embedded switch with ports of this kind, which share one ingress buffer."""

    def __init__(
        self,
        name: str,
        clock: DataPlaneClock,
        *,
        buffer: IngressBuffer,
        seed: int = 0,
        port_table: PortTable | None = None,
    ) -> None:
        super().__init__(name, clock, seed=seed, port_table=port_table)
        self.buffer = buffer
        self.lossless_ports: dict[int, LosslessPort] = {}

    def add_port(
        self,
        port: int,
        *,
        rate_bps: int | None,
        transmit: Callable[[bytes], None],
        queue_packets: int = 256,
        queue_bytes: int | None = None,
    ) -> None:
        """Add a port that is up. Raises ValueError without a rate, and for a bound in bytes."""
        if rate_bps is None or queue_bytes is not None:
            raise ValueError(f"{self.name}: port {port}: lossless ports have a rate, and no bound in bytes")
        added = LosslessPort(
            port,
            self.clock,
            transmit,
            rate_bps=rate_bps,
            queues=self._queues,
            queue_packets=queue_packets,
            buffer=self.buffer,
        )
        self._attach(added)
        self.lossless_ports[port] = added

    def receive(self, port: int, frame: bytes) -> None:
        """A frame arrives now; what it becomes takes its place in the buffer under this port."""
        self.buffer.arriving = port if port in self._ports else None
        try:
            super().receive(port, frame)
        finally:
            self.buffer.arriving = None

    def _come_again(self, ingress: Callable[..., None], port: int, frame: bytes, back: Any) -> None:
        self.buffer.arriving = port if port in self._ports else None
        try:
            super()._come_again(ingress, port, frame, back)
        finally:
            self.buffer.arriving = None
