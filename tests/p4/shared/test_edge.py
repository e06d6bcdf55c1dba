# SPDX-License-Identifier: Apache-2.0
"""What the compiled program does at the edge: strays stopped or remarked, and DSCPs rewritten."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from p4_bench import (
    BTH,
    CE,
    CPU,
    ECT0,
    ICMP,
    PROBE,
    TCP,
    UDP,
    as_forwarded,
    dscp_of,
    ecn_of,
    flow_key,
    internet_checksum,
    ipv4,
    packet_in,
    packet_out,
    roce,
    udp,
    with_dscp,
)

from bmv2.entries import Exact, Range

CNP = 48
INT_STRAY, CNP_STRAY = 0, 1


def bth(opcode):
    return bytes([opcode]) + BTH[1:]


def probe(ttl=32):
    shim_and_md = bytes.fromhex("10030000 20000810 fc000000 00000000")
    return ipv4(UDP, udp(shim_and_md + b"id42", sport=0xC0DE), dscp=PROBE, ttl=ttl)


TRUE_CNP = ipv4(UDP, udp(bth(0x81) + bytes(20)), dscp=CNP)
FALSE_CNPS = {
    "RDMA write": ipv4(UDP, udp(bth(0x0A) + bytes(20)), dscp=CNP),
    "acknowledgement": ipv4(UDP, udp(bth(0x11) + bytes(8)), dscp=CNP),
    "opcode one bit off": ipv4(UDP, udp(bth(0x80)), dscp=CNP),
    "UDP to another port": ipv4(UDP, udp(bth(0x81), dport=4792), dscp=CNP),
    "TCP": ipv4(TCP, struct.pack("!HH", 9, 4791) + bytes(16), dscp=CNP),
    "ICMP": ipv4(ICMP, b"\x08\0ping", dscp=CNP),
    "fragment": ipv4(UDP, udp(bth(0x81)), dscp=CNP, fragment=0x2000),
}


@pytest.fixture
def guarded(bench):
    """Port 1 faces hosts and stops strays, port 3 remarks them to DSCP 2; port 2 leads on."""
    bench.insert("edge_ingress", [Exact(1)], "stop_strays")
    bench.insert("edge_ingress", [Exact(3)], "remark_strays", 2)
    for dscp in (CNP, PROBE):
        bench.insert("queue", [Exact(dscp)], "set_queue", 7)
    return bench


def strays(bench):
    return {cell: packets for cell, (packets, _) in bench.counted("stray_packets").items()}


# --- strays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", FALSE_CNPS.values(), ids=FALSE_CNPS)
def test_what_is_no_cnp_is_stopped(guarded, frame):
    assert guarded.push(1, frame) == []
    assert strays(guarded) == {(1, CNP_STRAY): 1}
    assert guarded.counted("ingress_packets") == {}


@pytest.mark.parametrize("frame", FALSE_CNPS.values(), ids=FALSE_CNPS)
def test_what_is_no_cnp_is_remarked(guarded, frame):
    assert guarded.push(3, frame) == [(2, as_forwarded(with_dscp(frame, 2)))]
    assert strays(guarded) == {(3, CNP_STRAY): 1}
    assert list(guarded.counted("egress_packets")) == [(2, 0)]


@pytest.mark.parametrize("port", [1, 2, 3])
def test_a_cnp_passes_in_its_queue(guarded, port):
    assert guarded.push(port, TRUE_CNP) == [(2, as_forwarded(TRUE_CNP))]
    assert strays(guarded) == {}
    assert list(guarded.counted("egress_packets")) == [(2, 7)]


@given(opcode=st.integers(0, 255))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_opcode_0x81_is_a_cnp(guarded, opcode):
    guarded.sent.clear()
    frame = ipv4(UDP, udp(bth(opcode) + bytes(20)), dscp=CNP)
    assert (guarded.push(1, frame) != []) == (opcode == 0x81)


def test_a_probe_of_a_host_is_stopped(guarded):
    assert guarded.push(1, probe()) == []
    assert guarded.cpu == []
    assert strays(guarded) == {(1, INT_STRAY): 1}


def test_a_remarked_probe_is_plain_udp_to_everyone(guarded):
    """Even a port that ends probes lets it go, and nobody pushes metadata."""
    guarded.insert("edge", [Exact(2)], "mark_edge")
    sent = probe()
    assert guarded.push(3, sent) == [(2, as_forwarded(with_dscp(sent, 2)))]
    assert guarded.cpu == []
    assert strays(guarded) == {(3, INT_STRAY): 1}


def test_probes_of_the_controller_and_of_the_fabric_pass(guarded):
    """The CPU's port and the fabric's are not among the edge's."""
    guarded.port(4)
    guarded.push(CPU, packet_out(probe(), submit=True))
    guarded.push(4, probe())
    assert [frame[43] for _, frame in guarded.sent] == [11, 11]  # the shim's length with one hop
    assert strays(guarded) == {}


def test_a_stray_whose_ttl_ends_is_not_forwarded_either(guarded):
    """The TTL is looked at first; the controller learns of it as of any other."""
    assert guarded.push(1, probe(ttl=1)) == []
    assert [packet_in(frame)[:3] for frame in guarded.cpu] == [(1, 3, 0)]


def test_other_traffic_does_not_mind_the_edge(guarded):
    frames = [roce(dscp=dscp) for dscp in range(64) if dscp not in (CNP, PROBE)]
    assert guarded.push(1, *frames) == [(2, as_forwarded(frame)) for frame in frames]
    assert strays(guarded) == {}


# --- remarking ------------------------------------------------------------------------------------------


def test_remark_by_port_and_dscp(bench):
    bench.insert("remark", [Exact(1), Exact(26)], "set_dscp", 30)
    bench.insert("queue", [Exact(30)], "set_queue", 6)
    bench.insert("queue", [Exact(26)], "set_queue", 5)
    frame, other = roce(dscp=26), roce(dscp=18)
    assert bench.push(1, frame, other) == [
        (2, as_forwarded(with_dscp(frame, 30))),
        (2, as_forwarded(other)),
    ]
    bench.sent.clear()
    assert bench.push(3, frame) == [(2, as_forwarded(frame))]
    queues = {cell: packets for cell, (packets, _) in bench.counted("egress_packets").items()}
    assert queues == {(2, 6): 1, (2, 0): 1, (2, 5): 1}


def test_remark_by_flow_and_for_the_others(bench):
    """The flow with source port 0xC001 to 30, that with 0xC002 stays, everyone else on port 1 to 10."""
    bench.insert("remark", [Exact(1), Exact(26)], "set_dscp_by_flow", 10)
    for sport, dscp in ((0xC001, 30), (0xC002, 26)):
        key = [Exact(1), Exact(26), *flow_key(sport=sport)]
        bench.insert("remark_flow", key, "set_dscp", dscp)
    sent = bench.push(1, *(roce(dscp=26, sport=0xC000 + index) for index in range(4)))
    assert [dscp_of(frame) for _, frame in sent] == [10, 30, 26, 10]
    assert all(internet_checksum(frame[14:34]) == 0 for _, frame in sent)


@pytest.mark.parametrize("part", range(7))
def test_remark_by_flow_needs_the_whole_key(bench, part):
    bench.insert("remark", [Exact(1), Exact(26)], "set_dscp_by_flow", 26)
    key = [Exact(1), Exact(26), *flow_key()]
    key[part] = Exact(key[part].value ^ 1)
    bench.insert("remark_flow", key, "set_dscp", 30)
    [(_, frame)] = bench.push(1, roce(dscp=26))
    assert dscp_of(frame) == 26


def test_remark_flow_alone_does_nothing(bench):
    bench.insert("remark_flow", [Exact(1), Exact(26), *flow_key()], "set_dscp", 30)
    [(_, frame)] = bench.push(1, roce(dscp=26))
    assert dscp_of(frame) == 26


@given(dscp=st.integers(0, 63).filter(lambda dscp: dscp not in (PROBE, CNP)), new=st.integers(0, 63))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_remark_touches_the_dscp_alone(bench, dscp, new):
    key = [Exact(1), Exact(dscp)]
    bench.insert("remark", key, "set_dscp", new)
    frame = roce(dscp=dscp, ecn=ECT0)
    bench.sent.clear()
    assert bench.push(1, frame) == [(2, as_forwarded(with_dscp(frame, new)))]
    bench.delete("remark", key)


def test_a_priority_changes_in_mid_stream_and_back(bench):
    key = [Exact(1), Exact(26)]
    frame = roce(dscp=26)
    bench.push(1, frame)
    bench.insert("remark", key, "set_dscp", 10)
    bench.push(1, frame)
    bench.delete("remark", key)
    bench.push(1, frame)
    assert [dscp_of(frame) for _, frame in bench.sent] == [26, 10, 26]


def test_remark_takes_a_cnp_but_never_a_probe(guarded):
    for dscp in (CNP, PROBE):
        guarded.insert("remark", [Exact(1), Exact(dscp)], "set_dscp", 0)
        guarded.insert("remark", [Exact(2), Exact(dscp)], "set_dscp", 0)
    assert [dscp_of(frame) for _, frame in guarded.push(1, TRUE_CNP)] == [0]
    guarded.sent.clear()
    [(_, frame)] = guarded.push(2, probe())
    assert (dscp_of(frame), frame[43]) == (PROBE, 11)


def test_the_new_dscp_decides_on_the_mark(bench):
    bench.insert("remark", [Exact(1), Exact(26)], "set_dscp", 10)
    bench.insert("queue", [Exact(10)], "set_queue", 1)
    bench.insert("ecn", [Exact(1), Range(0, 2**19 - 1)], "set_mark_probability", 0xFFFF, priority=1)
    sent = bench.push(1, roce(dscp=26, ecn=ECT0), roce(dscp=18, ecn=ECT0))
    assert [ecn_of(frame) for _, frame in sent] == [CE, ECT0]
