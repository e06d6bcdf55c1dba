# SPDX-License-Identifier: Apache-2.0
"""Priority flow control (IEEE 802.1Qbb): its frames, what their receiver does, and when a switch sends one.

A frame names priorities, and for each a time in quanta of 512 bit times of the link: the neighbour sends
nothing of this priority for so long, and 0 lets it go on at once. A switch that still has to pause its
neighbour says so again before the time is over.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from polyrhythm.fabric.heap import EventHeap

PRIORITIES = 8
QUANTUM_BITS = 512
MOST_QUANTA = 0xFFFF
# IEEE 802.3, annex 31A and 31D: MAC control frames go to this address and are never forwarded.
_ADDRESS = bytes.fromhex("0180c2000001")
_ETHERTYPE = b"\x88\x08"
_OPCODE = 0x0101
_FIELDS = struct.Struct(">HH8H")
# The shortest Ethernet frame, without FCS like all frames here.
FRAME_BYTES = 60


def pause_frame(mac: bytes, quanta: Mapping[int, int]) -> bytes:
    """A frame from the port with this MAC address, with the quanta of each priority that it names."""
    enabled = sum(1 << priority for priority in quanta)
    times = (quanta.get(priority, 0) for priority in range(PRIORITIES))
    return (_ADDRESS + mac + _ETHERTYPE + _FIELDS.pack(_OPCODE, enabled, *times)).ljust(FRAME_BYTES, b"\0")


def is_mac_control(frame: bytes) -> bool:
    """Whether a frame is for the MAC of the port that receives it, and for nobody behind it."""
    return frame[12:14] == _ETHERTYPE


def read_pause(frame: bytes) -> Mapping[int, int]:
    """The quanta of each priority that a MAC control frame names; empty for another kind of frame."""
    if len(frame) < FRAME_BYTES or frame[:6] != _ADDRESS:
        return {}
    opcode, enabled, *times = _FIELDS.unpack_from(frame, 14)
    if opcode != _OPCODE:
        return {}
    return {priority: times[priority] for priority in range(PRIORITIES) if enabled >> priority & 1}


def quanta_ns(quanta: int, rate_bps: int) -> int:
    """How long so many quanta last on a link, in ns, rounded up."""
    return -(-quanta * QUANTUM_BITS * 1_000_000_000 // rate_bps)


class PauseTimers:
    """What one end of a cable may not send: it keeps the times that the other end's frames name.

    Frames count for `priorities` only; the others are never paused. `apply(mask)` is called with the paused
    priorities as bits when they change. `pauses` and `resumes` count received frames by priority.
    """

    def __init__(
        self, heap: EventHeap, rate_bps: int, priorities: Collection[int], apply: Callable[[int], None]
    ) -> None:
        self.pauses: Counter[int] = Counter()
        self.resumes: Counter[int] = Counter()
        self._heap = heap
        self._rate_bps = rate_bps
        self._priorities = priorities
        self._apply = apply
        self._mask = 0
        self._until = [0] * PRIORITIES
        self._since = [0] * PRIORITIES
        self._paused_ns = [0] * PRIORITIES

    def take(self, frame: bytes) -> None:
        """A MAC control frame has arrived."""
        before, now = self._mask, self._heap.now
        for priority, quanta in read_pause(frame).items():
            if priority not in self._priorities:
                continue
            if quanta:
                self.pauses[priority] += 1
                until = self._until[priority] = now + quanta_ns(quanta, self._rate_bps)
                self._heap.call_at(until, self._over, priority, until)
                if not self._mask >> priority & 1:
                    self._mask |= 1 << priority
                    self._since[priority] = now
            else:
                self.resumes[priority] += 1
                self._go_on(priority)
        if self._mask != before:
            self._apply(self._mask)

    def link_down(self) -> None:
        """The cable is cut: nothing is paused any more."""
        for priority in range(PRIORITIES):
            self._go_on(priority)
        self._apply(0)

    def paused_ns(self, priority: int) -> int:
        """For how long the priority has been paused so far."""
        running = self._heap.now - self._since[priority] if self._mask >> priority & 1 else 0
        return self._paused_ns[priority] + running

    def _over(self, priority: int, until: int) -> None:
        # A later frame may have named another time.
        if self._mask >> priority & 1 and self._until[priority] == until:
            self._go_on(priority)
            self._apply(self._mask)

    def _go_on(self, priority: int) -> None:
        if self._mask >> priority & 1:
            self._mask &= ~(1 << priority)
            self._paused_ns[priority] += self._heap.now - self._since[priority]


class PauseSender:
    """Tells the neighbours of one switch what its `bmv2.ingress_buffer.IngressBuffer` wants.

    `send(port, frame)` sends a frame by a port. `rates` has each port's rate in bit/s. A pause is repeated at
    half of its time. `pauses` and `resumes` count sent frames by (port, priority).
    """

    def __init__(
        self,
        heap: EventHeap,
        mac: bytes,
        quanta: int,
        rates: Mapping[int, int],
        send: Callable[[int, bytes], None],
    ) -> None:
        self.pauses: Counter[tuple[int, int]] = Counter()
        self.resumes: Counter[tuple[int, int]] = Counter()
        self._heap = heap
        self._mac = mac
        self._quanta = quanta
        self._rates = rates
        self._send = send
        self._changes: Counter[tuple[int, int]] = Counter()

    def changed(self, port: int, priority: int, paused: bool) -> None:
        """The neighbour at a port has to pause a priority, or may go on."""
        self._changes[port, priority] += 1
        if paused:
            self._pause(port, priority, self._changes[port, priority])
        else:
            self.resumes[port, priority] += 1
            self._send(port, pause_frame(self._mac, {priority: 0}))

    def link_up(self, port: int, paused: Iterable[int]) -> None:
        """A cable carries frames again: its other end knows of no pause."""
        for priority in paused:
            self.changed(port, priority, True)

    def link_down(self, port: int) -> None:
        """A cable is cut: nothing is repeated on it."""
        for priority in range(PRIORITIES):
            self._changes[port, priority] += 1

    def _pause(self, port: int, priority: int, change: int) -> None:
        if self._changes[port, priority] != change:
            return
        self.pauses[port, priority] += 1
        self._send(port, pause_frame(self._mac, {priority: self._quanta}))
        again = self._heap.now + quanta_ns(self._quanta, self._rates[port]) // 2
        self._heap.call_at(again, self._pause, port, priority, change)


def least_headroom_bytes(rate_bps: int, cable_ns: int, frame_bytes: int) -> int:
    """What may still arrive of a priority after a switch has decided that its neighbour pauses it.

    The pause frame waits for one full frame, is sent, and travels; meanwhile the neighbour sends on, finishes
    one full frame more, and what is on the cable arrives too. And the frame that was one too many counts.
    """
    on_the_way = -(-2 * cable_ns * rate_bps // 8_000_000_000)
    return on_the_way + 3 * frame_bytes + FRAME_BYTES
