# SPDX-License-Identifier: Apache-2.0
"""The receiving end of an emulated reliable connection: DCQCN's notification point, and the echo of marks."""

from __future__ import annotations

from collections.abc import Callable

from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from hostagent.nic.driver import ReceiveQueue
from hostagent.nic.port import NicPort
from hostagent.nic.roce import (
    ACK_REQUEST,
    ACKNOWLEDGE,
    ANY_ORDER,
    BECN,
    CNP,
    ECHO_REQUEST,
    NOT_ECT,
    PSN_MASK,
    SEND_LAST,
    SEND_ONLY,
    SYNDROME_ACK,
    SYNDROME_MISSING,
    SYNDROME_NAK_SEQUENCE,
    build_head,
    finish,
)

_HALF = 0x80_0000


class Responder:
    """The receiving end: in-order delivery, acknowledgements, a NAK for a gap, and CNPs (notification point).

    If a packet asks for it, the receiving end sends no CNPs and echoes marks instead, as RFC 8257 (section
    3.2) says for a receiver of DCTCP: an acknowledgement with BECN acknowledges marked packets only, one
    without it none. So a packet whose mark differs from that of the packet before makes it acknowledge the
    earlier ones at once.

    If both NICs take packets in any order, the receiving end keeps what comes early, and never asks for a
    packet. It answers with what is missing before the next packet that it has, where an acknowledgement was
    requested or a gap has been filled.
    """

    __slots__ = (
        "_ack",
        "_clock",
        "_closed",
        "_cnp",
        "_cnp_at",
        "_congested",
        "_early",
        "_echo",
        "_expected",
        "_gap_psn",
        "_messages",
        "_number",
        "_on_receive",
        "_port",
        "_psn",
        "_source_port",
        "_unacked",
        "bytes",
        "cnps_sent",
        "ecn_marks",
        "flow",
        "packets",
        "peer_ip",
    )

    def __init__(
        self,
        port: NicPort,
        flow: str,
        number: int,
        psn: int,
        peer_ip: bytes,
        *,
        on_receive: Callable[[ReceiveQueue, int], None],
    ) -> None:
        self._port = port
        self._clock = port.clock
        self.flow = flow
        self.peer_ip = peer_ip
        self._number = number
        self._psn = psn
        self._expected = psn & PSN_MASK
        self._on_receive = on_receive
        self._source_port = ROCE_SOURCE_PORTS.start | number & 0x3FFF
        self._closed = False
        self._gap_psn = -1
        self._messages = 0
        self._cnp_at = 0
        self._congested = False
        self._unacked = False
        self._early: dict[int, bool] = {}
        self.packets = self.bytes = self.ecn_marks = self.cnps_sent = 0
        self.mark_control()

    def mark_control(self) -> None:
        """Use the NIC's present DSCPs for acknowledgements and CNPs."""
        port = self._port
        ends = (port.macs, port.ip, self.peer_ip, self._source_port)
        number = self._number
        self._ack = build_head(
            *ends, port.ack_dscp, ecn=NOT_ECT, opcode=ACKNOWLEDGE, qp=number, payload_bytes=4
        )
        self._echo = build_head(
            *ends, port.ack_dscp, ecn=NOT_ECT, opcode=ACKNOWLEDGE, qp=number, payload_bytes=4, flags=BECN
        )
        head, state = build_head(*ends, port.cnp_dscp, ecn=NOT_ECT, opcode=CNP, qp=number, payload_bytes=16)
        self._cnp = finish(head, state, 0, bytes(16))

    def on_data(self, word: int, size: int, opcode: int, marked: bool, flags: int = 0) -> None:
        """An undamaged data packet with `size` bytes of payload (without padding) has arrived. `flags`:
        ECHO_REQUEST asks for the echo of marks instead of CNPs, ANY_ORDER says how packets are repeated.
        """
        echo = bool(flags & ECHO_REQUEST)
        if marked:
            self.ecn_marks += 1
        if marked and not echo:
            now = self._clock.now
            if now >= self._cnp_at:
                self._cnp_at = now + self._port.profile.cnp_interval_ns
                self.cnps_sent += 1
                self._port.send_control(self._cnp)
        psn = word & PSN_MASK
        if flags & ANY_ORDER and self._port.any_order:
            self._take(psn, size, opcode in (SEND_LAST, SEND_ONLY), marked and echo, word)
        elif psn == self._expected:
            if echo and marked != self._congested:
                if self._unacked:
                    self._answer((psn - 1) & PSN_MASK, SYNDROME_ACK)
                self._congested = marked
            self._unacked = True
            self._expected = (psn + 1) & PSN_MASK
            self._gap_psn = -1
            self.packets += 1
            self.bytes += size
            if opcode in (SEND_LAST, SEND_ONLY):
                self._messages = (self._messages + 1) & PSN_MASK
            if word & ACK_REQUEST:
                self._answer(psn, SYNDROME_ACK)
            self._on_receive(self, size)
        elif (psn - self._expected) & PSN_MASK < _HALF:
            # One NAK per gap. A lower packet number than the last shows that the sender has gone back,
            # and that its first packet was lost again.
            if self._gap_psn < 0 or (self._gap_psn - psn) & PSN_MASK < _HALF:
                self._answer(self._expected, SYNDROME_NAK_SEQUENCE)
            self._gap_psn = psn
        elif word & ACK_REQUEST:
            self._answer((self._expected - 1) & PSN_MASK, SYNDROME_ACK)

    def _take(self, psn: int, size: int, ends: bool, echoed: bool, word: int) -> None:
        """Keep a packet that may come in any order. `ends`: it is the last one of its message; `echoed`: its
        mark is to be echoed.
        """
        ahead = (psn - self._expected) & PSN_MASK
        filled = False
        if ahead < _HALF and psn not in self._early:
            if echoed != self._congested:
                if self._unacked:
                    self._answer_any_order()
                self._congested = echoed
            self._unacked = True
            self.packets += 1
            self.bytes += size
            filled = ahead == 0 and bool(self._early)
            self._early[psn] = ends
            while self._expected in self._early:
                self._messages = (self._messages + self._early.pop(self._expected)) & PSN_MASK
                self._expected = (self._expected + 1) & PSN_MASK
            self._on_receive(self, size)
        if filled or word & ACK_REQUEST:
            self._answer_any_order()

    def _answer_any_order(self) -> None:
        """Acknowledge what has come without a gap; with a gap, tell where it ends."""
        expected = self._expected
        if self._early:
            end = min(self._early, key=lambda psn: (psn - expected) & PSN_MASK)
            self._answer(expected, SYNDROME_MISSING, end)
        else:
            self._answer((expected - 1) & PSN_MASK, SYNDROME_ACK)

    def close(self) -> None:
        """Close the connection. Packets that still arrive for it are dropped."""
        if not self._closed:
            self._closed = True
            self._port.forget(self)

    def _answer(self, psn: int, syndrome: int, end: int | None = None) -> None:
        self._unacked = False
        head, state = self._echo if self._congested else self._ack
        extended = (syndrome << 24 | (self._messages if end is None else end)).to_bytes(4, "big")
        self._port.send_control(finish(head, state, psn, extended))
