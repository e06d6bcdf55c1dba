# SPDX-License-Identifier: Apache-2.0
"""What the compiled program does to packets, seen from outside the embedded switch that runs it."""

import struct
import zlib
from ipaddress import IPv4Address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from p4_bench import (
    BTH,
    CE,
    CPU,
    ECT0,
    ECT1,
    ICMP,
    NOT_ECT,
    PROBE,
    ROCE_PORT,
    TCP,
    UDP,
    as_forwarded,
    ecn_of,
    ethernet,
    internet_checksum,
    ipv4,
    make_bench,
    packet_in,
    packet_out,
    roce,
    spoilt,
    udp,
)

from bmv2.entries import Exact, Range

# --- forwarding ----------------------------------------------------------------------------------------

FRAMES = {
    "roce": roce(),
    "bth only": ipv4(UDP, udp(BTH)),
    "udp": ipv4(UDP, udp(b"hello", dport=53)),
    "udp without payload": ipv4(UDP, udp(b"", dport=53)),
    "tcp": ipv4(TCP, struct.pack("!HH", 443, 50000) + bytes(16)),
    "icmp": ipv4(ICMP, b"\x08\0ping"),
    "no payload": ipv4(ICMP, b""),
    "first fragment": ipv4(UDP, udp(b"part one"), fragment=0x2000),
    "later fragment": ipv4(UDP, b"pt2", fragment=0x0010),
    "probe's DSCP, other port": ipv4(UDP, udp(b"x", dport=53), dscp=PROBE),
    "last hop but one": roce(ttl=2),
    "odd tail": roce() + b"\0\0\0",
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_ipv4_is_routed(bench, frame):
    assert bench.push(1, frame) == [(2, as_forwarded(frame))]
    assert bench.cpu == []


@given(payload=st.binary(max_size=80), protocol=st.integers(0, 255), identity=st.integers(0, 0xFFFF))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_payload_survives(bench, payload, protocol, identity):
    if protocol in (TCP, UDP):
        payload = struct.pack("!HHHH", 9, 53, 8 + len(payload), 0) + payload
    frame = bytearray(ipv4(protocol, payload))
    frame[18:20] = identity.to_bytes(2)
    frame[24:26] = b"\0\0"
    frame[24:26] = internet_checksum(bytes(frame[14:34])).to_bytes(2)
    bench.sent.clear()
    assert bench.push(1, bytes(frame)) == [(2, as_forwarded(bytes(frame)))]


DROPPED = {
    "bad checksum": spoilt(roce(), 25),
    "address changed on the way": spoilt(roce(), 33),
    "options": ipv4(UDP, udp(BTH), options=b"\x94\x04\0\0"),
    "options of zeros": ipv4(UDP, udp(BTH), options=bytes(4)),
    "no route": roce(dst="192.168.0.1"),
    "UDP cut short": ipv4(UDP, b"\x12\x34\x12\xb7"),
    "RoCE cut short": ipv4(UDP, udp(BTH[:-1])),
    "probe cut short": ipv4(UDP, udp(bytes(15)), dscp=PROBE),
    "IPv4 cut short": roce()[:30],
    "Ethernet cut short": roce()[:13],
    "ARP": ethernet(0x0806, bytes(28)),
    "IPv6 of version 0": ethernet(0x86DD, bytes(40)),
}


@pytest.mark.parametrize("frame", DROPPED.values(), ids=DROPPED)
def test_dropped(bench, frame):
    assert bench.push(1, frame) == []
    assert bench.cpu == []
    assert bench.counted("ingress_packets") == bench.counted("egress_packets") == {}


def test_a_dropped_frame_leaves_nothing_behind(bench):
    """Metadata start from zero for each frame."""
    good = roce()
    assert (
        bench.push(1, roce(dst="192.168.0.1"), good, DROPPED["bad checksum"], good)
        == [(2, as_forwarded(good))] * 2
    )


@pytest.mark.parametrize("ttl", [0, 1])
def test_expired_ttl_goes_to_the_cpu_unchanged(bench, ttl):
    frame = roce(ttl=ttl)
    assert bench.push(3, frame) == []
    assert [packet_in(f) for f in bench.cpu] == [(3, 3, 0, frame)]


def test_next_hop_at_the_cpu(bench):
    """An address of the switch itself: the frame comes as it would be forwarded, with a packet_in header."""
    bench.next_hop(8, CPU)
    bench.route("10.0.1.9/32", "set_next_hop", 8)
    frame = roce(dst="10.0.1.9")
    assert bench.push(1, frame) == []
    assert [packet_in(f) for f in bench.cpu] == [(1, 3, 0, as_forwarded(frame))]


def test_longest_prefix_wins(bench):
    bench.next_hop(0, 3)
    bench.route("0.0.0.0/0", "set_next_hop", 0)
    bench.route("10.0.1.128/25", "set_next_hop", 0)
    bench.route("10.0.1.200/32", "drop")
    ports = {}
    for address in ("10.0.1.3", "10.0.1.129", "10.0.1.200", "8.8.8.8"):
        bench.sent.clear()
        ports[address] = [port for port, _ in bench.push(1, roce(dst=address))]
    assert ports == {"10.0.1.3": [2], "10.0.1.129": [3], "10.0.1.200": [], "8.8.8.8": [3]}


def test_misses_behind_a_route_drop(bench):
    """A bucket without an entry, a next hop without one: dropped, even where next hop 0 exists."""
    bench.next_hop(0, 3)
    bench.route("10.0.2.0/24", "set_ecmp_group_tier0", 5)
    bench.route("10.0.3.0/24", "set_next_hop", 1000)
    assert bench.push(1, roce(dst="10.0.2.1"), roce(dst="10.0.3.1"), roce(dst="10.0.4.1")) == []


# --- ECMP ----------------------------------------------------------------------------------------------


@given(
    tier=st.integers(0, 2),
    src=st.integers(0, 2**32 - 1),
    low=st.integers(0, 0xFFFF),
    sport=st.integers(0, 0xFFFF),
    dport=st.integers(0, 0xFFFF),
    kind=st.sampled_from(["udp", "roce", "tcp", "icmp", "first fragment", "later fragment"]),
)
@settings(max_examples=200, deadline=None)
def test_bucket_is_the_tiers_byte_of_crc32(ecmp_bench, tier, src, low, sport, dport, kind):
    source, destination = IPv4Address(src), IPv4Address(10 << 24 | tier << 16 | low)
    protocol = {"tcp": TCP, "icmp": ICMP}.get(kind, UDP)
    dport = ROCE_PORT if kind == "roce" else dport
    fragment = {"first fragment": 0x2000, "later fragment": 0x00B9}.get(kind, 0x4000)
    payload = struct.pack("!HHHH", sport, dport, 20, 0) + BTH
    frame = ipv4(protocol, payload, src=str(source), dst=str(destination), fragment=fragment)

    ports = struct.pack("!HH", sport, dport) if kind in ("udp", "roce", "tcp") else bytes(4)
    digest = zlib.crc32(source.packed + destination.packed + bytes([protocol]) + ports)
    ecmp_bench.sent.clear()
    [(_, sent)] = ecmp_bench.push(1, frame)
    assert int.from_bytes(sent[6:12]) == tier << 8 | (digest >> (8 * tier) & 0xFF)


def test_a_group_may_point_many_buckets_at_one_next_hop(bench):
    bench.next_hop(9, 3)
    bench.route("10.0.2.0/24", "set_ecmp_group_tier1", 1)
    for bucket in range(256):
        bench.insert("ecmp", [Exact(1), Exact(bucket)], "set_next_hop", 7 if bucket % 2 else 9)
    sent = bench.push(1, *(roce(dst="10.0.2.1", sport=port) for port in range(0xC000, 0xC100)))
    assert {port for port, _ in sent} == {2, 3}
    assert len(sent) == 256


# --- queues --------------------------------------------------------------------------------------------


def test_dscp_picks_the_queue(bench):
    for dscp in range(64):
        if dscp % 9:
            bench.insert("queue", [Exact(dscp)], "set_queue", dscp % 8)
    frames = [roce(dscp=dscp) for dscp in range(64) if dscp != PROBE]
    sent = bench.push(1, *frames)
    assert [frame[15] >> 2 for _, frame in sent] == [dscp for dscp in range(64) if dscp != PROBE]
    expected = {}
    for dscp in range(64):
        if dscp != PROBE:
            qid = dscp % 8 if dscp % 9 else 0
            packets, size = expected.get((2, qid), (0, 0))
            expected[2, qid] = (packets + 1, size + len(frames[0]))
    assert bench.counted("egress_packets") == bench.counted("ingress_packets") == expected


def test_the_higher_queue_goes_first():
    bench = make_bench(ports=(1,))
    bench.port(2, rate_bps=8_000_000)
    bench.next_hop(7, 2)
    bench.route("10.0.1.0/24", "set_next_hop", 7)
    for qid in range(8):
        bench.insert("queue", [Exact(qid)], "set_queue", qid)
    sent = bench.push(1, *(roce(dscp=dscp) for dscp in (0, 3, 1, 7, 3, 5)))
    assert [frame[15] >> 2 for _, frame in sent] == [0, 7, 5, 3, 3, 1]


# --- ECN -----------------------------------------------------------------------------------------------


def ecn_profile(bench, probability, low=0, high=2**19 - 1, qid=0):
    bench.insert("ecn", [Exact(qid), Range(low, high)], "set_mark_probability", probability, priority=1)


@pytest.mark.parametrize("probability", [0, 1, 0x8000, 0xFFFE, 0xFFFF])
def test_marks_follow_the_probability(bench, probability):
    ecn_profile(bench, probability)
    frames = [roce(ecn=ECT0, sport=0xC000 + index) for index in range(400)]
    sent = [frame for _, frame in bench.push(1, *frames)]
    marked = sum(ecn_of(frame) == CE for frame in sent)
    expected = 400 * probability / 0xFFFF
    deviation = (expected * (1 - probability / 0xFFFF)) ** 0.5
    assert abs(marked - expected) <= (max(1, 5 * deviation) if deviation else 0)
    marks = {cell: packets for cell, (packets, _) in bench.counted("ecn_marks").items()}
    assert marks == ({(2, 0): marked} if marked else {})
    assert all(internet_checksum(frame[14:34]) == 0 for frame in sent)
    assert {ecn_of(frame) for frame in sent} <= {ECT0, CE}


def test_only_ect_is_marked(bench):
    ecn_profile(bench, 0xFFFF)
    before = [NOT_ECT, ECT0, ECT1, CE]
    sent = bench.push(1, *(roce(ecn=ecn) for ecn in before))
    assert [ecn_of(frame) for _, frame in sent] == [NOT_ECT, CE, CE, CE]
    assert [packets for packets, _ in bench.counted("ecn_marks").values()] == [2]


def test_no_profile_no_mark(bench):
    ecn_profile(bench, 0xFFFF, qid=5)
    sent = bench.push(1, *(roce(ecn=ECT0) for _ in range(20)))
    assert {ecn_of(frame) for _, frame in sent} == {ECT0}


def test_the_mark_is_set_at_dequeue_on_what_waits_then():
    """Twelve frames at once: frame i (from 0) leaves 11 - i behind it, but the first finds an idle port."""
    bench = make_bench(ports=(1,))
    bench.port(2, rate_bps=8_000_000)
    bench.next_hop(7, 2)
    bench.route("10.0.1.0/24", "set_next_hop", 7)
    ecn_profile(bench, 0xFFFF, low=4)
    sent = bench.push(1, *(roce(ecn=ECT1) for _ in range(12)))
    assert [ecn_of(frame) == CE for _, frame in sent] == [1 <= i <= 7 for i in range(12)]
    assert [packets for packets, _ in bench.counted("ecn_marks").values()] == [7]


# --- packet I/O and link probes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame", [roce(), roce(ttl=1), spoilt(roce(), 25), ethernet(0x88B5, b"probe"), b"no frame at all", b"\0"]
)
def test_packet_out_to_a_port_is_sent_as_it_is(bench, frame):
    ecn_profile(bench, 0xFFFF, qid=7)
    assert bench.push(CPU, packet_out(frame, port=3)) == [(3, frame)]
    assert bench.cpu == []
    assert list(bench.counted("egress_packets")) == [(3, 7)]


@pytest.mark.parametrize("port", [0, CPU])
def test_packet_out_to_no_port_is_dropped(bench, port):
    assert bench.push(CPU, packet_out(roce(), port=port)) == []
    assert bench.cpu == []


def test_packet_out_through_ingress_is_forwarded(bench):
    frame = roce()
    assert bench.push(CPU, packet_out(frame, port=3, submit=True)) == [(2, as_forwarded(frame))]


def test_packet_out_through_ingress_of_no_ipv4_is_dropped(bench):
    """A link probe too: it would only come back."""
    frames = [ethernet(0x88B5, bytes(46)), ethernet(0x0806, bytes(28))]
    assert bench.push(CPU, *(packet_out(frame, submit=True) for frame in frames)) == []
    assert bench.cpu == []


def test_link_probe_comes_to_the_cpu_unchanged(bench):
    frame = ethernet(0x88B5, bytes(range(46)))
    assert bench.push(3, frame) == []
    assert [packet_in(f) for f in bench.cpu] == [(3, 2, 0, frame)]
    assert bench.counted("egress_packets") == {(CPU, 7): (1, len(frame))}


# --- counters ------------------------------------------------------------------------------------------


def test_counters_are_by_port_and_queue_in_received_bytes(bench):
    bench.next_hop(8, 510)
    bench.port(510)
    bench.route("10.0.9.0/24", "set_next_hop", 8)
    bench.insert("queue", [Exact(10)], "set_queue", 6)
    first, second = roce(size=100), roce(dscp=10, dst="10.0.9.1", size=200)
    bench.push(1, first, second, second)
    expected = {(2, 0): (1, len(first)), (510, 6): (2, 2 * len(second))}
    assert bench.counted("ingress_packets") == bench.counted("egress_packets") == expected


def test_a_frame_lost_in_its_queue_is_counted_in_ingress_only():
    bench = make_bench(ports=(1,))
    bench.switch.add_port(
        2, rate_bps=8_000_000, transmit=lambda frame: bench.sent.append((2, frame)), queue_packets=4
    )
    bench.next_hop(7, 2)
    bench.route("10.0.1.0/24", "set_next_hop", 7)
    sent = bench.push(1, *(roce() for _ in range(10)))
    [(admitted, _)] = bench.counted("ingress_packets").values()
    [(left, _)] = bench.counted("egress_packets").values()
    assert admitted == 10
    assert left == len(sent) < 10
