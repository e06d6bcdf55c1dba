# SPDX-License-Identifier: Apache-2.0
"""The sending end of an emulated reliable connection: pacing, window, retransmission, congestion control."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from zlib import crc32

from controller.wire.senders import DCQCN
from hostagent.nic.congestion import Acknowledgement
from hostagent.nic.congestion_controls import congestion_control
from hostagent.nic.message import Message
from hostagent.nic.mltcp import Mltcp, MltcpProgress
from hostagent.nic.port import NicPort
from hostagent.nic.retransmission import RetransmissionTimer
from hostagent.nic.roce import (
    ACK_REQUEST,
    ANY_ORDER,
    ECHO_REQUEST,
    ECT0,
    PSN_MASK,
    SEND_FIRST,
    SEND_MIDDLE,
    SYNDROME_MISSING,
    SYNDROME_NAK_SEQUENCE,
    build_head,
    check_pin,
)
from hostagent.nic.selective_repeat import SelectiveRepeat


class Requester:
    """The sending end: it paces packets, keeps them until they are acknowledged, and retransmits by go-back-N
    (RC), or single packets (SelectiveRepeat) where the NIC takes packets in any order.

    Packet numbers do not wrap here; the wire carries them modulo 2^24. Packets that wait in the queue of a
    switch are neither lost nor sent again in bulk: after a time-out (`RetransmissionTimer`) the sender begins
    with one packet, and each acknowledgement doubles the window (slow restart: the mlx5 counter
    roce_slow_restart). If more packets are acknowledged than were sent again, the path was only slow, and the
    sender goes on where it was.
    """

    __slots__ = (
        "_cap_bps",
        "_clock",
        "_closed",
        "_current",
        "_dst_ip",
        "_heads",
        "_high",
        "_increase_timer",
        "_messages",
        "_next",
        "_number",
        "_pin",
        "_pinned_from",
        "_port",
        "_posted",
        "_probe",
        "_profile",
        "_progress",
        "_rate_cap",
        "_restarting",
        "_selective",
        "_sender",
        "_timed",
        "_timed_at",
        "_timer",
        "_una",
        "_window",
        "active",
        "bytes_acked",
        "cnps_received",
        "congestion",
        "dscp",
        "flow",
        "latency_ns",
        "next_ns",
        "packets",
        "retransmits",
        "source_port",
        "timeouts",
        "wire_bytes",
    )

    def __init__(
        self, port: NicPort, flow: str, number: int, psn: int, dst_ip: bytes, *, source_port: int, dscp: int
    ) -> None:
        self._port = port
        self._clock = port.clock
        self._profile = port.profile
        self.flow = flow
        self._number = number
        self._dst_ip = dst_ip
        self.source_port = source_port
        self.dscp = dscp
        self._pin: tuple[int, int] | None = None
        self._heads: dict[int, tuple[bytes, int]] = {}
        self._messages: deque[Message] = deque()
        self._current: Message | None = None
        self._una = self._next = self._high = self._posted = psn
        self._selective = SelectiveRepeat() if port.any_order else None
        self._rate_cap = 0
        self._cap_bps = float(port.rate_bps)
        self._increase_timer = 1.0
        self._sender = DCQCN
        self.congestion = congestion_control(DCQCN, port.rate_bps, port.profile)
        self._window = self.congestion.window
        self._progress: MltcpProgress | None = None
        self.next_ns = 0
        self.active = self._closed = self._restarting = False
        self._timer = RetransmissionTimer(
            port.clock, port.profile.retransmit_ns, port.profile.ack_timeout_ns, self._waited
        )
        self._timed = self._timed_at = self._probe = self._pinned_from = -1
        self.latency_ns = 0
        self.packets = self.wire_bytes = self.bytes_acked = 0
        self.retransmits = self.timeouts = self.cnps_received = 0

    def post(self, size: int, on_complete: Callable[[], None], rate_bps: int = 0) -> None:
        """Send a message of `size` bytes, at most at `rate_bps` on the wire (0: no cap)."""
        if size <= 0 or rate_bps < 0:
            raise ValueError(
                f"flow {self.flow}: a message needs bytes > 0 and rate >= 0, not {size}, {rate_bps}"
            )
        self._port.settle()
        if self._una == self._posted:
            self._restart()
        message = Message(self._posted, size, self._port.payload, on_complete, rate_bps)
        self._posted = message.end
        self._messages.append(message)
        self._wake()

    def repin(self, source_port: int, dscp: int) -> None:
        """Use another source port and DSCP from the next packet on that is sent with nothing in flight.

        A message that has begun is sent whole first. The next one waits until all packets before it are
        acknowledged, or none was for the profile's `repin_ns`. What the NIC cannot change stays as it is.
        """
        check_pin(self.flow, source_port, dscp)
        source_port, dscp = self._port.grant(self, source_port, dscp)
        self._port.settle()
        self._pin = None if (source_port, dscp) == (self.source_port, self.dscp) else (source_port, dscp)
        self._timer.shorten(self._profile.repin_ns if self._pin is not None else None)
        self._take_pin()
        self._wake()
        self._port.kick()

    def set_rate_cap(self, rate_bps: int) -> None:
        """Never send faster than `rate_bps` on the wire (0: no cap), from the next packet on."""
        self._rate_cap = rate_bps
        self._set_cap()

    def set_sender(self, plain: str, mltcp: Mltcp | None) -> None:
        """Use the congestion control `plain` (controller.wire.senders.PLAIN). Weigh its increase by the
        progress of the iteration with `mltcp`. Another congestion control than before starts afresh.
        """
        self._progress = MltcpProgress(mltcp) if mltcp is not None else None
        if plain == self._sender:
            self.congestion.weigh(1.0, None)
        else:
            self._sender = plain
            self._renew()

    def set_increase_timer(self, ratio: float) -> None:
        """Restart congestion control with DCQCN's increase timer at `ratio` of the profile's (thesis 3.2)."""
        self._increase_timer = ratio
        self._renew()

    def _renew(self) -> None:
        self._port.settle()
        self.congestion = congestion_control(
            self._sender, self._port.rate_bps, self._profile, self._increase_timer
        )
        self._window = min(self._window, self.congestion.window)
        self._heads.clear()

    def _restart(self) -> None:
        """Nothing is in flight, and something will be sent: perhaps after an idle time, or in a new
        iteration.
        """
        progress, now = self._progress, self._clock.now
        begins = progress is not None and progress.on_send(now)
        self.congestion.restart(now - self._timer.activity, iteration=begins)
        if progress is not None:
            self.congestion.weigh(progress.weight, progress.height)
        self._window = min(self._window, self.congestion.window)

    def close(self) -> None:
        """Close the connection. Incomplete messages are dropped without a call of `on_complete`."""
        if self._closed:
            return
        self._port.settle()
        self._closed = True
        self._messages.clear()
        self._posted = self._next
        if self._selective is not None:
            self._selective.clear()
        self._port.forget(self)

    def sendable(self) -> bool:
        """Whether the window, the messages and a pending pin allow the next packet, apart from pacing."""
        position = self._position()
        if position >= self._posted or position - self._una >= self._window:
            return False
        current = self._current
        return self._pin is None or (current is not None and current.first <= position < current.end)

    def _position(self) -> int:
        """The packet to send next: one that is sent again, or the next one."""
        selective = self._selective
        return selective.again[0] if selective is not None and selective.again else self._next

    def _take_pin(self) -> None:
        """Use the pending source port and DSCP if nothing is in flight, or a packet might wait for ever."""
        if self._pin is not None and self._position() == self._una:
            (self.source_port, self.dscp), self._pin = self._pin, None
            self._pinned_from = self._high
            self._timer.reset()
            self._heads.clear()
            self._port.new_level(self)

    def next_bytes(self) -> int:
        """The length of the next frame. Call it only while `sendable`."""
        message, position = self._current, self._position()
        if message is None or not message.first <= position < message.end:
            message = self._seek(position)
        tail = position + 1 == message.end
        return self._port.overhead + (len(message.tail_payload) if tail else self._port.mtu)

    def next_frame(self, start: int) -> bytes:
        """Build the next packet, whose transmission begins at `start`. Call it only while `sendable`."""
        position = self._position()
        message = self._current
        if message is None or not message.first <= position < message.end:
            message = self._seek(position)
        after = position + 1
        word = position & PSN_MASK
        selective = self._selective
        if selective is not None:
            selective.sent(position, start)
            if position < self._high:
                word |= ACK_REQUEST
        self._next = max(self._next, after) if selective is not None else after
        if after == message.end:
            opcode, payload, pad = message.tail_opcode, message.tail_payload, message.tail_pad
            word |= ACK_REQUEST
        else:
            opcode, payload, pad = (
                (SEND_FIRST if position == message.first else SEND_MIDDLE),
                self._port.payload,
                0,
            )
            if after % self.congestion.ack_every == 0 or after - self._una == self._window:
                word |= ACK_REQUEST
        key = (len(payload) << 2 | pad) << 8 | opcode
        cached = self._heads.get(key)
        if cached is None:
            cached = self._heads[key] = self._head(opcode, len(payload), pad)
        head, state = cached
        body = word.to_bytes(4, "big") + payload
        frame = head + body + crc32(body, state).to_bytes(4, "little")
        size = len(frame)
        if position < self._high:
            self.retransmits += 1
        else:
            self._high = after
            # Only a packet that is sent once measures a round trip (Karn's algorithm).
            if self._timed < 0 and word & ACK_REQUEST:
                self._timed, self._timed_at = after, start
        self.packets += 1
        self.wire_bytes += size
        rate = self._cap_bps
        congestion = self.congestion
        if congestion.limited:
            congestion.advance(start, size)
            rate = min(rate, congestion.rate)
        gap = int(size * 8e9 / rate)
        # A packet that waited for the port does not slow its flow: up to half a gap is made up for.
        self.next_ns = (self.next_ns if start - self.next_ns < gap >> 1 else start) + gap
        self._timer.sent(start)
        return frame

    def on_ack(self, psn: int, extended: bytes, marked: bool = False) -> None:
        """An acknowledgement (all packets up to `psn` have arrived), or a NAK or an answer with what is
        missing (all before `psn` have, `psn` has not). `extended`: the AETH. `marked`: it echoes marks.
        """
        una, syndrome = self._una, extended[0]
        negative = syndrome == SYNDROME_NAK_SEQUENCE
        missing = syndrome == SYNDROME_MISSING and self._selective is not None
        acked = (psn + (0 if negative or missing else 1) - una) & PSN_MASK
        if acked > self._high - una:
            return
        if acked:
            flight, now = self._next - una, self._clock.now
            self._una = una = una + acked
            self._timer.acknowledged(una, self._high)
            if self._selective is not None:
                self._selective.acknowledged(una, acked)
            if 0 <= self._timed <= una:
                self.latency_ns = now - self._timed_at
                self._timed = -1
            if self._progress is not None:
                self._progress.on_ack(now, acked * self._port.mtu)
                self.congestion.weigh(self._progress.weight, self._progress.height)
            self.congestion.on_ack(
                Acknowledgement(now, acked, marked, una, self._high, flight, self.latency_ns)
            )
            if self._next < una:
                # Nothing was lost, it was late. But new packets would overtake those on an old path or level.
                late = self._restarting and una >= self._pinned_from
                self._next = self._high if late else una
                self._restarting &= not late
                self._port.kick()
            elif una == self._probe and una >= self._pinned_from:
                # Those behind the packet that was sent again were lost.
                self._timer.reset()
                self.congestion.on_loss(now, una, self._high, self._high - una)
            elif self._position() == self._high:
                self._restarting = False
            self._take_pin()
            window = self.congestion.window
            self._window = min(2 * self._window, window) if self._restarting else window
            self._complete(una)
        if missing:
            self._learn_missing((int.from_bytes(extended[1:4], "big") - una) & PSN_MASK)
        if negative and self._next > self._una == una:
            self.congestion.on_loss(self._clock.now, una, self._high, self._next - una)
            self._window = min(self._window, self.congestion.window)
            self._next = una
            self._timed = -1
            if self._selective is not None:
                self._selective.clear()
            self._take_pin()
            self._wake()
            self._port.kick()
        else:
            self._wake()

    def _learn_missing(self, count: int) -> None:
        """The receiver lacks so many packets from the first unacknowledged one on, and has the next."""
        selective, una, now = self._selective, self._una, self._clock.now
        if selective is None or not 0 < count < self._next - una:
            return
        if selective.missing(una, una + count, now, self.latency_ns or self._profile.retransmit_ns):
            self.congestion.on_loss(now, una, self._high, self._next - una)
            self._window = min(self._window, self.congestion.window)
            self._timed = -1
            self._take_pin()
            self._port.kick()

    def on_cnp(self) -> None:
        """A congestion notification for this queue pair."""
        self.cnps_received += 1
        self.congestion.on_cnp(self._clock.now)

    def _complete(self, una: int) -> None:
        messages = self._messages
        while messages and messages[0].end <= una:
            message = messages.popleft()
            self.bytes_acked += message.size
            message.on_complete()

    def _wake(self) -> None:
        if not self.active and not self._closed and self.sendable():
            self._port.activate(self)

    def _seek(self, position: int) -> Message:
        for message in self._messages:
            if position < message.end:
                self._current = message
                self._set_cap()
                return message
        raise ValueError(f"flow {self.flow}: no message holds packet {position}")

    def _set_cap(self) -> None:
        limits = self._rate_cap, self._current.rate_bps if self._current is not None else 0
        self._cap_bps = float(min((self._port.rate_bps, *(limit for limit in limits if limit > 0))))

    def _head(self, opcode: int, payload_bytes: int, pad: int) -> tuple[bytes, int]:
        return build_head(
            self._port.macs,
            self._port.ip,
            self._dst_ip,
            self.source_port,
            self.dscp,
            ecn=ECT0,
            opcode=opcode,
            qp=self._number,
            payload_bytes=payload_bytes,
            pad=pad,
            flags=(ECHO_REQUEST if self.congestion.echoes else 0)
            | (ANY_ORDER if self._selective is not None else 0),
        )

    def _loss_shows(self) -> bool:
        """Whether an acknowledgement of the first packet in flight alone, sent again, says that the others
        were lost: it was not the only one, and asked for none the first time."""
        after = self._una + 1
        asked = after % self.congestion.ack_every == 0 or any(m.end == after for m in self._messages)
        return self._selective is None and self._high > after and not asked

    def _waited(self) -> None:
        if not self._timer.due(self._high, waiting=not self._closed and self._next > self._una):
            return
        self.timeouts += 1
        self._port.settle()
        self.congestion.on_timeout(self._clock.now, self._una, self._high, self._next - self._una)
        if self._selective is not None:
            self._selective.all_again(self._una, self._next)
        else:
            self._next = self._una
        self._timed, self._window, self._restarting = -1, 1, True
        self._probe = self._una + 1 if self._loss_shows() else -1
        self._take_pin()
        self._wake()
        self._port.kick()
