# SPDX-License-Identifier: Apache-2.0
"""The NIC's packets, read by a decoder of the tests' own."""

from __future__ import annotations

import itertools
import struct
import zlib
from typing import NamedTuple

import pytest
from host_bench import MS, PROFILE, RATE, Bench, set_tos
from hypothesis import given, settings
from hypothesis import strategies as st

from hostagent.nic.emulated import EmulatedNic


class Decoded(NamedTuple):
    src_mac: bytes
    dst_mac: bytes
    dscp: int
    ecn: int
    src: str
    dst: str
    source_port: int
    opcode: int
    becn: bool
    qp: int
    ack_request: bool
    psn: int
    payload: bytes


def decode(frame: bytes) -> Decoded:
    """Parse a RoCEv2 frame field by field; asserts lengths, IPv4 checksum and ICRC."""
    dst_mac, src_mac, ethertype = struct.unpack_from("!6s6sH", frame)
    assert ethertype == 0x0800
    ip = frame[14:34]
    version, tos, length, _, flags, ttl, protocol, _, src, dst = struct.unpack("!BBHHHBBH4s4s", ip)
    assert (version, protocol, length) == (0x45, 17, len(frame) - 14)
    assert ttl > 1
    assert flags == 0x4000
    total = 0
    for i in range(0, 20, 2):
        total += ip[i] << 8 | ip[i + 1]
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    assert total == 0xFFFF
    sport, dport, udp_length, _ = struct.unpack_from("!HHHH", frame, 34)
    assert (dport, udp_length) == (4791, length - 20)
    opcode, bits, pkey, reserved, qp_high, qp_low, word = struct.unpack_from("!BBHBBHI", frame, 42)
    assert pkey == 0xFFFF
    assert bits & 0x0F == 0
    masked = bytearray(b"\xff" * 8 + frame[14:-4])
    for index in (9, 16, 18, 19, 34, 35, 40):  # TOS, TTL, IPv4 checksum, UDP checksum, FECN/BECN byte
        masked[index] = 0xFF
    assert frame[-4:] == struct.pack("<I", zlib.crc32(masked))
    pad = bits >> 4 & 3
    return Decoded(
        src_mac, dst_mac, tos >> 2, tos & 3, ".".join(map(str, src)), ".".join(map(str, dst)), sport,
        opcode, bool(reserved & 0x40), qp_high << 16 | qp_low, bool(word >> 31), word & 0xFFFFFF,
        frame[54 : len(frame) - 4 - pad],
    )  # fmt: skip


def captured(bench: Bench) -> list[bytes]:
    frames: list[bytes] = []

    def tap(frame: bytes) -> bytes:
        frames.append(frame)
        return frame

    bench.tap = tap
    return frames


def test_a_message_is_first_middle_last_and_is_acknowledged() -> None:
    bench = Bench(2)
    frames = captured(bench)
    qp, queue = bench.flow(0, 1)
    done: list[int] = []
    qp.post(40 * 1024 + 10, lambda: done.append(bench.heap.now))
    bench.heap.run(100 * MS)
    packets = [decode(frame) for frame in frames]
    data = [p for p in packets if p.src == "10.0.0.1"]
    acks = [p for p in packets if p.src == "10.0.0.2"]
    assert [p.opcode for p in data] == [0] + [1] * 39 + [2]
    assert [(b.psn - a.psn) % 2**24 for a, b in itertools.pairwise(data)] == [1] * 40
    assert {(p.dscp, p.ecn, p.source_port, p.qp) for p in data} == {(10, 2, 0xC123, data[0].qp)}
    assert [len(p.payload) for p in data] == [1024] * 40 + [10]
    assert len(frames[0]) == 1082
    assert data[-1].ack_request
    assert [p.opcode for p in acks] == [0x11] * len(acks)
    assert 3 <= len(acks) <= 5
    assert acks[-1].psn == data[-1].psn
    assert acks[-1].payload == bytes([0x1F, 0, 0, 1])
    assert {(p.dscp, p.ecn) for p in acks} == {(50, 0)}
    assert len(done) == 1
    assert queue.bytes == qp.bytes_acked == 40 * 1024 + 10
    assert data[0].dst_mac.hex(":") == "02:ff:00:00:00:01"
    assert data[0].src_mac.hex(":") == Bench.mac(0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9000), min_size=1, max_size=4))
def test_messages_of_any_size_arrive_whole_and_in_order(sizes: list[int]) -> None:
    bench = Bench(2)
    frames = captured(bench)
    qp, queue = bench.flow(0, 1)
    done: list[int] = []
    for index, size in enumerate(sizes):
        qp.post(size, lambda index=index: done.append(index))
    bench.heap.run(200 * MS)
    assert done == list(range(len(sizes)))
    assert queue.bytes == sum(sizes)
    payloads = [len(p.payload) for p in map(decode, frames) if p.opcode in (0, 1, 2, 4)]
    assert sum(payloads) == sum(sizes)
    assert bench.nics[1].bad_frames == bench.nics[0].bad_frames == 0


def test_a_marked_packet_brings_a_cnp_at_most_once_an_interval() -> None:
    bench = Bench(2)
    frames: list[tuple[int, bytes]] = []

    def tap(frame: bytes) -> bytes:
        frames.append((bench.heap.now, frame))
        return set_tos(frame, frame[15] | 3) if frame[15] & 3 else frame

    bench.tap = tap
    bench.nics[1].set_traffic_classes(48, 46, ())
    qp, queue = bench.flow(0, 1)
    qp.post(100 * 1024, lambda: None)
    bench.heap.run(400 * MS)
    decoded = [(at, decode(frame)) for at, frame in frames]
    cnps = [(at, p) for at, p in decoded if p.opcode == 0x81]
    assert queue.ecn_marks == queue.packets == 100
    assert len(cnps) == queue.cnps_sent == qp.cnps_received > 3
    assert all(p.becn and p.dscp == 48 and len(p.payload) == 16 for _, p in cnps)
    assert cnps[0][1].qp == next(p.qp for _, p in decoded if p.opcode == 1)
    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(cnps)]
    assert min(gaps) >= PROFILE.cnp_interval_ns - MS
    assert {p.dscp for _, p in decoded if p.opcode == 0x11} == {46}


def test_damage_is_counted_and_never_delivered() -> None:
    bench = Bench(2)
    flips = {3: 60, 7: 25, 11: 1080}  # payload, IPv4 checksum, ICRC
    seen = [0]

    def tap(frame: bytes) -> bytes:
        if len(frame) < 500:
            return frame
        seen[0] += 1
        at = flips.get(seen[0])
        return frame if at is None else frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :]

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    qp.post(50 * 1024, lambda: None)
    bench.heap.run(400 * MS)
    assert bench.nics[1].bad_frames == 3
    assert queue.bytes == 50 * 1024
    assert qp.retransmits > 0


def test_garbage_and_strangers_are_dropped() -> None:
    bench = Bench(3)
    frames = captured(bench)
    qp, _ = bench.flow(0, 1)
    qp.post(10, lambda: None)
    bench.heap.run(10 * MS)
    nic = bench.nics[2]
    for junk in (b"", b"x" * 61, b"\0" * 100, frames[0]):
        nic.receive(junk)
    assert nic.bad_frames == 3
    assert nic.stray_frames == 1
    addressed = nic.macs[6:] + frames[0][6:]
    nic.receive(addressed)
    assert nic.stray_frames == 2


def test_illegal_pins_and_names_are_refused() -> None:
    bench = Bench(2)
    qp, _ = bench.flow(0, 1)
    nic = bench.nics[0]
    with pytest.raises(ValueError, match="source port 4791 is outside"):
        nic.open_qp("job/x", "10.0.0.2", 4791, 0)
    with pytest.raises(ValueError, match="DSCP 64"):
        qp.repin(0xC000, 64)
    with pytest.raises(ValueError, match="is open already"):
        nic.open_qp("job/h0>h1", "10.0.0.2", 0xC000, 0)
    with pytest.raises(ValueError, match="not an address"):
        nic.open_qp("job/y", "10.0.0", 0xC000, 0)
    with pytest.raises(ValueError, match="bytes > 0"):
        qp.post(0, lambda: None)
    with pytest.raises(ValueError, match="not a MAC address"):
        EmulatedNic(
            "n", "10.0.0.9", "02:00", "02:00:00:00:00:01", RATE,
            clock=bench.heap, transmit=lambda f: None, dcqcn=PROFILE,
        )  # fmt: skip


def test_a_new_pin_waits_for_a_message_boundary_and_keeps_order() -> None:
    bench = Bench(2)
    frames = captured(bench)
    qp, queue = bench.flow(0, 1)
    done: list[int] = []
    for index in range(3):
        qp.post(30 * 1024, lambda index=index: done.append(index))
    bench.heap.run(3 * MS)
    qp.repin(0xFFFF, 20)
    bench.heap.run(200 * MS)
    data = [p for p in map(decode, frames) if p.src == "10.0.0.1"]
    pins = [(p.source_port, p.dscp) for p in data]
    assert pins == [(0xC123, 10)] * 30 + [(0xFFFF, 20)] * 60
    assert done == [0, 1, 2]
    assert qp.retransmits == 0
    assert queue.bytes == 90 * 1024


def test_closed_queue_pairs_still_count() -> None:
    bench = Bench(2)
    qp, queue = bench.flow(0, 1)
    qp.post(5 * 1024, lambda: None)
    bench.heap.run(50 * MS)
    before = bench.nics[0].counters("job"), bench.nics[1].counters()
    qp.close()
    qp.close()
    queue.close()
    queue.close()
    assert (bench.nics[0].counters("job"), bench.nics[1].counters()) == before
    assert (before[0].packets, before[0].bytes_acked, before[1].bytes_received) == (5, 5120, 5120)
    assert bench.nics[0].counters("other").packets == 0
