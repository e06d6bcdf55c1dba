# SPDX-License-Identifier: Apache-2.0
"""What the compiled program does to IPv6: all that it does to IPv4, and nothing to the bytes it need not change."""

import struct
import zlib
from ipaddress import IPv6Address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from p4_bench import (
    A6,
    B6,
    BTH,
    CE,
    CPU,
    ECT0,
    ECT1,
    NOT_ECT,
    PROBE,
    ROCE_PORT,
    TCP,
    UDP,
    as_forwarded,
    dscp_of,
    ecn_of,
    ethernet,
    flow_key,
    ipv6,
    make_bench,
    packet_in,
    packet_out,
    roce,
    roce6,
    udp,
    with_dscp,
)

from bmv2.entries import Exact, MeterConfig, Range

ICMPV6, FRAGMENT, HOP_BY_HOP = 58, 44, 0
CNP, ACK, LEVEL, MICE = 48, 50, 26, 0
HOST = 1
PLANNED_PORTS = 40_000, 29_500
# The extension header of a first fragment of UDP (RFC 8200, 4.5).
FIRST_FRAGMENT = bytes((UDP, 0)) + struct.pack("!HI", 1, 7)


@pytest.fixture
def bench():
    """Port 2 leads to both families' prefixes by next hop 7."""
    bench = make_bench()
    bench.next_hop(7, 2)
    bench.route("10.0.1.0/24", "set_next_hop", 7)
    bench.route("fd00:0:0:1::/64", "set_next_hop", 7)
    return bench


FRAMES = {
    "roce": roce6(),
    "bth only": ipv6(UDP, udp(BTH)),
    "udp without payload": ipv6(UDP, udp(b"", dport=53)),
    "tcp": ipv6(TCP, struct.pack("!HH", 443, 50000) + bytes(16)),
    "icmp": ipv6(ICMPV6, b"\x80\0ping"),
    "no payload": ipv6(59, b""),
    "fragment": ipv6(FRAGMENT, FIRST_FRAGMENT + udp(b"part one")),
    "hop-by-hop options": ipv6(HOP_BY_HOP, bytes((UDP, 0, 1, 4, 0, 0, 0, 0)) + udp(BTH)),
    "probe's DSCP, other port": ipv6(UDP, udp(b"x", dport=53), dscp=PROBE),
    "every bit of the traffic class and label": roce6(dscp=63, ecn=CE, label=0xFFFFF),
    "last hop but one": roce6(ttl=2),
    "odd tail": roce6() + b"\0\0\0",
    "jumbo": roce6(size=9000),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_ipv6_is_routed(bench, frame):
    assert bench.push(1, frame) == [(2, as_forwarded(frame))]
    assert bench.cpu == []


@given(payload=st.binary(max_size=80), protocol=st.integers(0, 255), label=st.integers(0, 0xFFFFF))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_payload_survives(bench, payload, protocol, label):
    if protocol in (TCP, UDP):
        payload = struct.pack("!HHHH", 9, 53, 8 + len(payload), 0) + payload
    frame = ipv6(protocol, payload, label=label)
    bench.sent.clear()
    assert bench.push(1, frame) == [(2, as_forwarded(frame))]


DROPPED = {
    "no route": roce6(dst="fd00:0:0:2::1"),
    "link-local": roce6(dst="fe80::1"),
    "multicast": roce6(dst="ff02::1"),
    "version 4": ethernet(0x86DD, b"\x40" + roce6()[15:]),
    "IPv4 under IPv6's type": ethernet(0x86DD, roce()[14:]),
    "IPv6 under IPv4's type": ethernet(0x0800, roce6()[14:]),
    "UDP cut short": ipv6(UDP, b"\x12\x34\x12\xb7"),
    "RoCE cut short": ipv6(UDP, udp(BTH[:-1])),
    "probe cut short": ipv6(UDP, udp(bytes(15)), dscp=PROBE),
    "IPv6 cut short": roce6()[:53],
    "Ethernet alone": roce6()[:14],
}


@pytest.mark.parametrize("frame", DROPPED.values(), ids=DROPPED)
def test_dropped(bench, frame):
    assert bench.push(1, frame) == []
    assert bench.cpu == []
    assert bench.counted("ingress_packets") == {}


def test_mapped_addresses_are_no_addresses_of_ipv4(bench):
    """The routes of IPv4 do not hold for ::ffff:10.0.1.3 (RFC 4291, 2.5.5.2)."""
    assert bench.push(1, roce6(dst="::ffff:10.0.1.3")) == []


@pytest.mark.parametrize("checksum", [0, 0xFFFF])
def test_the_checksum_of_udp_is_nobodys_business(bench, checksum):
    """RoCEv2 sends 0 over IPv6 too (InfiniBand volume 1, annex A17.9.1)."""
    frame = ipv6(UDP, udp(BTH + bytes(64), checksum=checksum))
    assert bench.push(1, frame) == [(2, as_forwarded(frame))]


@pytest.mark.parametrize("limit", [0, 1])
def test_an_expired_hop_limit_goes_to_the_cpu_unchanged(bench, limit):
    frame = roce6(ttl=limit, label=0xABCDE)
    assert bench.push(3, frame) == []
    assert [packet_in(f) for f in bench.cpu] == [(3, 3, 0, frame)]


def test_longest_prefix_wins(bench):
    bench.next_hop(0, 3)
    bench.route("::/0", "set_next_hop", 0)
    bench.route("fd00:0:0:1:8000::/65", "set_next_hop", 0)
    bench.route("fd00:0:0:1:8000::1/128", "drop")
    ports = {}
    for address in (B6, "fd00:0:0:1:8000::2", "fd00:0:0:1:8000::1", "2001:db8::1"):
        bench.sent.clear()
        ports[address] = [port for port, _ in bench.push(1, roce6(dst=address))]
    assert list(ports.values()) == [[2], [3], [], [3]]


def test_the_families_have_tables_of_their_own(bench):
    """The default route of one is none of the other's, and each packet keeps its family."""
    bench.next_hop(0, 3)
    bench.route("0.0.0.0/0", "set_next_hop", 0)
    assert bench.push(1, roce6(dst="2001:db8::1")) == []
    frames = [roce(), roce6(), roce(dst="8.8.8.8")]
    bench.push(1, *frames)
    assert sorted(bench.sent) == sorted(zip((2, 2, 3), map(as_forwarded, frames), strict=True))


@pytest.fixture(scope="module")
def ecmp_bench():
    """A group per tier; a bucket's next hop writes the tier and the bucket into the source MAC."""
    bench = make_bench()
    for tier in range(3):
        bench.route(f"fd00:{tier}::/32", f"set_ecmp_group_tier{tier}", 100 + tier)
        for bucket in range(256):
            bench.insert("ecmp", [Exact(100 + tier), Exact(bucket)], "set_next_hop", 256 * tier + bucket)
            bench.next_hop(256 * tier + bucket, 2, src_mac=tier << 8 | bucket)
    return bench


@given(
    tier=st.integers(0, 2),
    src=st.integers(0, 2**128 - 1),
    low=st.integers(0, 2**96 - 1),
    sport=st.integers(0, 0xFFFF),
    dport=st.integers(0, 0xFFFF),
    label=st.integers(0, 0xFFFFF),
    kind=st.sampled_from(["udp", "roce", "tcp", "icmp", "fragment"]),
)
@settings(max_examples=150, deadline=None)
def test_the_bucket_is_the_tiers_byte_of_crc32(ecmp_bench, tier, src, low, sport, dport, label, kind):
    source, destination = IPv6Address(src), IPv6Address(0xFD00 << 112 | tier << 96 | low)
    protocol = {"tcp": TCP, "icmp": ICMPV6, "fragment": FRAGMENT}.get(kind, UDP)
    dport = ROCE_PORT if kind == "roce" else dport
    payload = struct.pack("!HHHH", sport, dport, 20, 0) + BTH
    frame = ipv6(protocol, payload, src=str(source), dst=str(destination), label=label)

    ports = struct.pack("!HH", sport, dport) if kind in ("udp", "roce", "tcp") else bytes(4)
    digest = zlib.crc32(source.packed + destination.packed + bytes([protocol]) + ports)
    ecmp_bench.sent.clear()
    [(_, sent)] = ecmp_bench.push(1, frame)
    assert int.from_bytes(sent[6:12]) == tier << 8 | (digest >> (8 * tier) & 0xFF)


@pytest.fixture
def spread():
    """fd00:0:0:2::/64 spreads over ports 11 to 13, each bucket with a backup at the next port."""
    ports = (11, 12, 13)
    bench = make_bench(ports=(1, *ports))
    for port in ports:
        bench.next_hop(port, port)
    bench.route("fd00:0:0:2::/64", "set_ecmp_group_tier1", 5)
    for bucket in range(256):
        port, backup = ports[bucket % 3], ports[(bucket + 1) % 3]
        bench.insert("ecmp", [Exact(5), Exact(bucket)], "set_next_hop_with_backup", port, port, backup)
    return bench


def ports_of(bench, frames):
    ports = []
    for frame in frames:
        bench.sent.clear()
        ports.append(next((port for port, _ in bench.push(1, frame)), None))
    return ports


def test_pinned_flows_and_dead_ports(spread):
    frames = [roce6(dst="fd00:0:0:2::1", sport=0xC000 + index) for index in range(60)]
    before = ports_of(spread, frames)
    assert set(before) == {11, 12, 13}
    spread.insert("port_state", [Exact(12)], "set_port_down")
    assert ports_of(spread, frames) == [13 if port == 12 else port for port in before]
    spread.delete("port_state", [Exact(12)])
    chosen = before.index(12)
    spread.insert(
        "pinned_flow_ipv6", flow_key(A6, "fd00:0:0:2::1", sport=0xC000 + chosen), "set_next_hop", 11
    )
    after = ports_of(spread, frames)
    assert after[chosen] == 11
    assert after[:chosen] + after[chosen + 1 :] == before[:chosen] + before[chosen + 1 :]


@pytest.mark.parametrize("part", range(5))
def test_a_pin_needs_the_whole_5_tuple(spread, part):
    frame = roce6(dst="fd00:0:0:2::1")
    [before] = ports_of(spread, [frame])
    key = flow_key(A6, "fd00:0:0:2::1")
    key[part] = Exact(key[part].value ^ 1)
    spread.insert("pinned_flow_ipv6", key, "set_next_hop", 11 if before != 11 else 12)
    assert ports_of(spread, [frame]) == [before]


def test_dscp_picks_the_queue(bench):
    for dscp in range(64):
        bench.insert("queue", [Exact(dscp)], "set_queue", dscp % 8)
    for dscp in range(64):
        if dscp not in (PROBE, CNP):
            bench.sent.clear()
            [(_, left)] = bench.push(1, roce6(dscp=dscp))
            assert dscp_of(left) == dscp
    sent = {queue: packets for (_, queue), (packets, _) in bench.counted("egress_packets").items()}
    assert sent == {queue: 8 - (queue in (PROBE % 8, CNP % 8)) for queue in range(8)}


def test_only_ect_is_marked(bench):
    bench.insert("ecn", [Exact(0), Range(0, 2**19 - 1)], "set_mark_probability", 0xFFFF, priority=1)
    frames = [roce6(ecn=ecn, dscp=21, label=0xFFFFF) for ecn in (NOT_ECT, ECT0, ECT1, CE)]
    sent = [frame for _, frame in bench.push(1, *frames)]
    assert [ecn_of(frame) for frame in sent] == [NOT_ECT, CE, CE, CE]
    assert sent == [as_forwarded(roce6(ecn=ecn_of(left), dscp=21, label=0xFFFFF)) for left in sent]
    assert [packets for packets, _ in bench.counted("ecn_marks").values()] == [2]


@pytest.mark.parametrize("ecn", [NOT_ECT, ECT1, CE])
def test_remarking_by_port_and_by_flow(bench, ecn):
    bench.insert("remark", [Exact(1), Exact(30)], "set_dscp", 10)
    bench.insert("remark", [Exact(1), Exact(26)], "set_dscp_by_flow", 22)
    bench.insert("remark_flow_ipv6", [Exact(1), Exact(26), *flow_key(A6, B6, sport=0xC001)], "set_dscp", 14)
    frames = [roce6(dscp=30, ecn=ecn), roce6(dscp=26, ecn=ecn, sport=0xC001), roce6(dscp=26, ecn=ecn)]
    sent = [frame for _, frame in bench.push(1, *frames)]
    expected = [with_dscp(frame, dscp) for frame, dscp in zip(frames, (10, 14, 22), strict=True)]
    assert sent == [as_forwarded(frame) for frame in expected]


# --- INT ------------------------------------------------------------------------------------------------


def probe(hops=8, ttl=32):
    md = struct.pack("!BBBBHHHH", 0x20, 0, 8, hops, 0xFC00, 0, 0, 0)
    return ipv6(UDP, udp(bytes((0x10, 3, 0, 0)) + md + b"id42", sport=0xC0DE), dscp=PROBE, ttl=ttl)


def test_a_probe_gathers_hops_and_ends_at_the_sink(bench):
    """Two hops that push 32 bytes each, then the port of a host: packet-in."""
    bench.switch.set_default("switch_identity", "set_switch_id", (77,))
    [(_, once)] = bench.push(1, probe())
    bench.sent.clear()
    [(_, twice)] = bench.push(3, once)
    bench.insert("edge", [Exact(2)], "mark_edge")
    bench.sent.clear()
    assert bench.push(1, twice) == []
    ingress, reason, egress, frame = packet_in(bench.cpu[0])
    assert (ingress, reason, egress) == (1, 1, 2)
    payload_length, udp_length, udp_checksum = (int.from_bytes(frame[at : at + 2]) for at in (18, 58, 60))
    assert payload_length == udp_length == len(frame) - 54 == len(probe()) - 54 + 3 * 32
    assert udp_checksum == 0
    assert frame[21] == 32 - 3
    assert (frame[63], frame[69]) == (3 + 3 * 8, 8 - 3)
    hops = [struct.unpack_from("!IHH", frame, 78 + 32 * hop) for hop in range(3)]
    assert hops == [(77, 1, 2), (77, 3, 2), (77, 1, 2)]
    assert frame[78 + 96 :] == b"id42"


def test_a_probe_without_hops_left_says_so(bench):
    [(_, left)] = bench.push(1, probe(hops=0))
    assert left[66] >> 2 & 1 == 1
    assert len(left) == len(probe())


def test_packet_out_through_ingress(bench):
    assert bench.push(CPU, packet_out(roce6(), port=3, submit=True)) == [(2, as_forwarded(roce6()))]


# --- the edge, and what hosts may use -------------------------------------------------------------------


def answer(opcode, size, dscp, trailing=b"", **header):
    """A RoCEv2 packet with an opcode and so many bytes between BTH and ICRC."""
    return ipv6(UDP, udp(bytes([opcode]) + BTH[1:] + bytes(size + 4)), dscp=dscp, **header) + trailing


def tcp_of_plan(dscp, ports=PLANNED_PORTS):
    """TCP from A6 to B6 between the planned ports, or others."""
    return ipv6(TCP, struct.pack("!HH", *ports) + bytes(16), dscp=dscp)


@pytest.fixture
def trusting(bench):
    """Port 1 faces hosts; planned are RoCE between A6 and B6 both ways, and a TCP connection from A6 to B6."""
    bench.insert("edge_ingress", [Exact(HOST)], "remark_strays", MICE)
    for dscp, action in {PROBE: "trust_nothing", CNP: "trust_answers", ACK: "trust_answers"}.items():
        bench.insert("host_dscp", [Exact(HOST), Exact(dscp)], action, MICE)
    bench.insert("host_dscp", [Exact(HOST), Exact(LEVEL)], "trust_planned", MICE)
    ends = [Exact(int(IPv6Address(end))) for end in (A6, B6)]
    bench.insert("planned_pair_ipv6", [Exact(HOST), *ends], "trust_pair_both_ways")
    key = [Exact(HOST), *ends, *(Exact(value) for value in (TCP, *PLANNED_PORTS))]
    bench.insert("planned_flow_ipv6", key, "trust_flow")
    bench.route("::/0", "set_next_hop", 7)
    return bench


def strays(bench):
    return [cell[1] for cell in bench.counted("stray_packets")]


STRAYS = {
    "a probe": (probe(), 0),
    "first fragment of a probe": (ipv6(FRAGMENT, FIRST_FRAGMENT + udp(bytes(64)), dscp=PROBE), 4),
    "TCP under the CNP's DSCP": (ipv6(TCP, bytes(20), dscp=CNP), 1),
    "a CNP with a long tail": (answer(0x81, 16, CNP, bytes(900)), 1),
    "a CNP that claims to be shorter": (answer(0x81, 400, CNP, length=40), 1),
    "1,000 bytes as acknowledgement": (answer(0x11, 1000, ACK), 2),
    "an acknowledgement of IPv4's length": (answer(0x11, 24, ACK), 2),
    "a write under the ACK's DSCP": (answer(0x0A, 1000, ACK), 2),
    "an acknowledgement behind options": (
        ipv6(HOP_BY_HOP, bytes((UDP, 0, 1, 4, 0, 0, 0, 0)) + udp(b"\x11" + BTH[1:] + bytes(8)), dscp=ACK),
        2,
    ),
    "TCP under a level": (ipv6(TCP, bytes(20), dscp=LEVEL), 5),
    "RoCE to another host": (roce6(dscp=LEVEL, dst="fd00:0:0:1::4"), 5),
    "RoCE from another address": (roce6(dscp=LEVEL, src="fd00::9"), 5),
    "an acknowledgement to another host": (answer(0x11, 4, ACK, dst="fd00:0:0:1::4"), 5),
    "a first fragment of planned RoCE": (
        ipv6(FRAGMENT, FIRST_FRAGMENT + udp(BTH + bytes(64)), dscp=LEVEL),
        5,
    ),
    "planned RoCE behind options": (
        ipv6(HOP_BY_HOP, bytes((UDP, 0, 1, 4, 0, 0, 0, 0)) + udp(BTH + bytes(64)), dscp=LEVEL),
        5,
    ),
    "planned TCP behind a routing header": (
        ipv6(
            43, bytes((TCP, 0, 4, 0, 0, 0, 0, 0)) + struct.pack("!HH", *PLANNED_PORTS) + bytes(16), dscp=LEVEL
        ),
        5,
    ),
    "planned addresses as mapped IPv4 ones": (
        roce6(dscp=LEVEL, src="::ffff:10.0.0.2", dst="::ffff:10.0.1.3"),
        5,
    ),
    "TCP from another port": (tcp_of_plan(LEVEL, (PLANNED_PORTS[0] + 1, PLANNED_PORTS[1])), 5),
}


@pytest.mark.parametrize(("frame", "reason"), STRAYS.values(), ids=STRAYS)
def test_what_the_plan_did_not_give_travels_as_mice(trusting, frame, reason):
    assert trusting.push(HOST, frame) == [(2, as_forwarded(with_dscp(frame, MICE)))]
    assert strays(trusting) == [reason]


def test_strays_are_stopped_where_the_port_says_so(bench):
    bench.insert("edge_ingress", [Exact(HOST)], "stop_strays")
    assert bench.push(HOST, probe(), answer(0x11, 4, CNP)) == []
    assert strays(bench) == [0, 1]


PLANNED = {
    "RoCE": roce6(dscp=LEVEL, ecn=ECT0),
    "acknowledgement": answer(0x11, 4, ACK),
    "atomic acknowledgement": answer(0x12, 12, ACK),
    "CNP": answer(0x81, 16, CNP),
    "planned TCP": tcp_of_plan(LEVEL),
}


@pytest.mark.parametrize("frame", PLANNED.values(), ids=PLANNED)
def test_what_the_plan_gave_passes(trusting, frame):
    assert trusting.push(HOST, frame) == [(2, as_forwarded(frame))]
    assert strays(trusting) == []


def test_the_families_share_the_meter_of_answers(trusting):
    trusting.switch.set_meter("answer_rate", HOST, MeterConfig(1, 3, 1, 3))
    trusting.push(HOST, *[answer(0x11, 4, ACK)] * 5)
    assert sorted(dscp_of(left) for _, left in trusting.sent) == [MICE, MICE, ACK, ACK, ACK]
