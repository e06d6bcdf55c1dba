# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 over IPv6: the frames by a decoder of the tests' own, and what a NIC makes of them."""

from __future__ import annotations

import struct
import zlib
from ipaddress import IPv6Address
from typing import NamedTuple

import pytest
from host_bench import HOP_NS, MS, PROFILE, RATE, EventHeap
from hypothesis import given, settings
from hypothesis import strategies as st

from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.head import BadFrameError, StrayFrameError, read_head

A, B = "fd00:0:0:1::1", "fd00:0:0:2::1"
MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")


class Decoded(NamedTuple):
    traffic_class: int
    src: str
    dst: str
    source_port: int
    opcode: int
    psn: int
    payload: bytes


def decode(frame: bytes) -> Decoded:
    """Parse a frame field by field; asserts lengths and ICRC (annex A17.3.2: the masked fields are ones)."""
    assert frame[12:14] == b"\x86\xdd"
    word, length, protocol, limit, src, dst = struct.unpack_from("!IHBB16s16s", frame, 14)
    assert (word >> 28, word & 0xFFFFF, protocol, limit > 1) == (6, 0, 17, True)
    assert length == len(frame) - 54
    sport, dport, udp_length, _ = struct.unpack_from("!HHHH", frame, 54)
    assert (dport, udp_length) == (4791, length)
    opcode, bits, pkey, _, _, psn = struct.unpack_from("!BBHIBxH", frame[:72] + bytes(4), 62)[:6]
    assert pkey == 0xFFFF
    masked = bytearray(b"\xff" * 8 + frame[14:-4])
    masked[8] |= 0x0F  # the traffic class' upper half
    for index in (9, 10, 11, 15, 54, 55, 60):  # the rest of it, the label, hop limit, UDP checksum, FECN/BECN
        masked[index] = 0xFF
    assert frame[-4:] == struct.pack("<I", zlib.crc32(masked))
    psn = int.from_bytes(frame[71:74], "big")
    payload = frame[74 : len(frame) - 4 - (bits >> 4 & 3)]
    return Decoded(
        word >> 20 & 0xFF, str(IPv6Address(src)), str(IPv6Address(dst)), sport, opcode, psn, payload
    )


class Pair:
    """Two NICs at one cable. `frames` are all that passed; those of which `mark` says so get CE."""

    def __init__(self, mark=lambda number: False) -> None:
        self.heap = EventHeap()
        self.frames: list[bytes] = []
        self.nics: list[EmulatedNic] = []
        for index, ip in enumerate((A, B)):

            def transmit(frame: bytes, index: int = index) -> None:
                self.frames.append(frame)
                if mark(len(self.frames)):
                    frame = frame[:15] + bytes([frame[15] | 0x30]) + frame[16:]
                self.heap.call_at(self.heap.now + HOP_NS, self.nics[1 - index].receive, frame)

            self.nics.append(
                EmulatedNic(
                    f"h{index}",
                    ip,
                    MACS[index],
                    MACS[1 - index],
                    RATE,
                    clock=self.heap,
                    transmit=transmit,
                    dcqcn=PROFILE,
                )
            )

    def flow(self, name: str = "job/a>b"):
        queue = self.nics[1].listen(name, A, lambda queue, size: None)
        return self.nics[0].open_qp(name, B, 0xC123, 26), queue


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5000))
def test_a_message_arrives_whole(size: int) -> None:
    pair = Pair()
    qp, queue = pair.flow()
    done: list[int] = []
    qp.post(size, lambda: done.append(pair.heap.now))
    pair.heap.run(100 * MS)
    assert (len(done), queue.bytes) == (1, size)
    found = [decode(frame) for frame in pair.frames]
    data = [f for f in found if f.src == A]
    assert {(f.dst, f.source_port, f.traffic_class) for f in data} == {(B, 0xC123, 26 << 2 | 2)}
    assert sum(len(f.payload) for f in data) == size
    assert {f.opcode for f in found if f.src == B} == {0x11}
    assert sum(len(frame) for frame in pair.frames if frame[22:38] == IPv6Address(A).packed) == qp.wire_bytes


def test_a_mark_brings_a_cnp_and_a_lower_rate() -> None:
    pair = Pair(mark=lambda number: number == 1)
    qp, queue = pair.flow()
    qp.post(200 * 1024, lambda: None)
    pair.heap.run(5 * MS)
    assert (queue.ecn_marks, queue.cnps_sent) == (1, 1)
    cnps = [decode(f) for f in pair.frames if decode(f).opcode == 0x81]
    assert [(f.src, len(f.payload), f.traffic_class >> 2) for f in cnps] == [(B, 16, 48)]


def test_a_lost_packet_is_sent_again() -> None:
    pair = Pair()
    qp, queue = pair.flow()
    nic = pair.nics[1]
    receive, count = nic.receive, [0]

    def lossy(frame: bytes) -> None:
        count[0] += 1
        if count[0] != 3:
            receive(frame)

    nic.receive = lossy  # type: ignore[method-assign]
    qp.post(20 * 1024, lambda: None)
    pair.heap.run(400 * MS)
    assert queue.bytes == 20 * 1024
    assert qp.retransmits > 0


def test_a_nic_speaks_the_family_of_its_address() -> None:
    pair = Pair()
    nic = pair.nics[0]
    with pytest.raises(ValueError, match=r"10.0.0.1 is an IPv4 address, this NIC's is not"):
        nic.open_qp("job/x", "10.0.0.1", 0xC000, 0)
    with pytest.raises(ValueError, match=r"10.0.0.1 is an IPv4 address"):
        nic.listen("job/x", "10.0.0.1", lambda queue, size: None)
    with pytest.raises(ValueError, match="not an address"):
        nic.open_qp("job/x", "fd00::1::2", 0xC000, 0)


def sent() -> bytes:
    pair = Pair()
    qp, _ = pair.flow()
    qp.post(100, lambda: None)
    pair.heap.run(1 * MS)
    return pair.frames[0]


def test_what_is_read_of_a_head() -> None:
    frame = sent()
    head = read_head(frame, frame[:6], IPv6Address(B).packed)
    assert (head.opcode, head.size, head.marked, head.src) == (0x04, 100, False, IPv6Address(A).packed)
    assert head.end == len(frame) - 4


def changed(frame: bytes, at: int, value: int) -> bytes:
    return frame[:at] + bytes([value]) + frame[at + 1 :]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda f: f[:81], BadFrameError),
        (lambda f: b"", BadFrameError),
        (lambda f: changed(f, 14, 0x45), BadFrameError),
        (lambda f: changed(f, 12, 0x08), BadFrameError),
        (lambda f: f[:12] + b"\x08\x00" + f[14:], StrayFrameError),
        (lambda f: changed(f, 0, 0x04), StrayFrameError),
        (lambda f: changed(f, 20, 6), StrayFrameError),
        (lambda f: changed(f, 53, 9), StrayFrameError),
        (lambda f: changed(f, 57, 0), StrayFrameError),
    ],
    ids=["cut", "empty", "version", "type", "IPv4", "MAC", "TCP", "destination", "port"],
)
def test_frames_for_nobody_here(spoil, error) -> None:
    frame = sent()
    with pytest.raises(error):
        read_head(spoil(frame), frame[:6], IPv6Address(B).packed)


@given(st.binary(max_size=120))
def test_garbage_is_counted(data: bytes) -> None:
    nic = Pair().nics[0]
    nic.receive(data)
    assert nic.bad_frames + nic.stray_frames == 1
