# SPDX-License-Identifier: Apache-2.0
"""What the compiled program lets hosts use: DSCPs of planned pairs and flows, answers by opcode, length, pair
and rate, and the way to the controller by rate.
"""

import struct
from ipaddress import IPv4Address

import pytest
from p4_bench import (
    BTH,
    CPU,
    ICMP,
    PROBE,
    TCP,
    UDP,
    A,
    B,
    as_forwarded,
    dscp_of,
    ethernet,
    flow_key,
    ipv4,
    packet_in,
    packet_out,
    roce,
    udp,
    with_dscp,
)

from bmv2.entries import Exact, MeterConfig

HOST, TRUNK = 1, 2
CONTROL, CNP, ACK = 56, 48, 50
LEVELS = (30, 26, 22, 18, 14, 10)
MICE = 0
SENDER, RECEIVER = "10.0.1.5", "10.0.1.6"
SPORT, DPORT = 40_000, 29_500
PROBES, CNPS, ANSWER, RATE, CONTROLS, UNPLANNED, TO_CPU = range(7)


def answer(opcode, size, dscp, trailing=b"", src=A, dst=B):
    """A RoCEv2 packet with an opcode and so many bytes between BTH and ICRC."""
    return ipv4(UDP, udp(bytes([opcode]) + BTH[1:] + bytes(size + 4)), src, dst, dscp=dscp) + trailing


def tcp(dscp, sport=SPORT, dport=DPORT, **header):
    return ipv4(TCP, struct.pack("!HH", sport, dport) + bytes(16), dscp=dscp, **header)


@pytest.fixture
def trusting(bench):
    """Port 1 faces A, port 2 leads on. Planned are RoCE between A and B both ways, from A to RECEIVER and from
    SENDER to A, and one TCP connection from A to B.
    """
    bench.insert("edge_ingress", [Exact(HOST)], "remark_strays", MICE)
    actions = {CONTROL: "trust_nothing", PROBE: "trust_nothing", CNP: "trust_answers", ACK: "trust_answers"}
    for dscp, action in (actions | dict.fromkeys(LEVELS, "trust_planned")).items():
        bench.insert("host_dscp", [Exact(HOST), Exact(dscp)], action, MICE)
        bench.insert("queue", [Exact(dscp)], "set_queue", 7 if dscp in actions else 6 - LEVELS.index(dscp))
    for other, right in ((B, "pair_both_ways"), (RECEIVER, "pair"), (SENDER, "answering_pair")):
        ends = [Exact(int(IPv4Address(end))) for end in (A, other)]
        bench.insert("planned_pair", [Exact(HOST), *ends], f"trust_{right}")
    key = [Exact(HOST), *flow_key(protocol=TCP, sport=SPORT, dport=DPORT)]
    bench.insert("planned_flow", key, "trust_flow")
    return bench


def strays(bench):
    return {cell: packets for cell, (packets, _) in bench.counted("stray_packets").items()}


# The cases of issue 18, and what each counts as.
ATTACKS = {
    "TCP under network control": (ipv4(TCP, struct.pack("!HH", 9, 9) + bytes(16), dscp=CONTROL), CONTROLS),
    "HTTP under the probe's DSCP": (ipv4(UDP, udp(bytes(64), dport=80), dscp=PROBE), CONTROLS),
    "first fragment of a probe": (ipv4(UDP, udp(bytes(64)), dscp=PROBE, fragment=0x2000), CONTROLS),
    "RoCE write under the ACK's DSCP": (answer(0x0A, 1000, ACK), ANSWER),
    "1,000 bytes with the CNP's opcode": (answer(0x81, 1000, CNP), CNPS),
    "1,000 bytes as acknowledgement": (answer(0x11, 1000, ACK), ANSWER),
    "an acknowledgement with a long tail": (answer(0x11, 4, ACK, bytes(900)), ANSWER),
    "a CNP with a long tail": (answer(0x81, 16, CNP, bytes(900)), CNPS),
    "a CNP one byte short": (answer(0x81, 15, CNP), CNPS),
    "TCP under a level": (ipv4(TCP, struct.pack("!HH", 9, 4791) + bytes(16), dscp=26), UNPLANNED),
    "UDP under a level": (ipv4(UDP, udp(bytes(64), dport=80), dscp=30), UNPLANNED),
    "ICMP under a level": (ipv4(ICMP, b"\x08\0ping", dscp=10), UNPLANNED),
    "fragment of RoCE under a level": (ipv4(UDP, udp(BTH), dscp=26, fragment=0x2000), UNPLANNED),
    "last fragment of RoCE under a level": (ipv4(UDP, udp(BTH), dscp=26, fragment=0x00B9), UNPLANNED),
    "a fragment that may not be one": (ipv4(UDP, udp(BTH), dscp=26, fragment=0x6000), UNPLANNED),
    "RoCE to another host": (roce(dscp=26, dst="10.0.1.4"), UNPLANNED),
    "RoCE from another address": (roce(dscp=26, src="10.0.0.9"), UNPLANNED),
    "the planned flow's way back": (roce(dscp=26, src=B, dst=A), UNPLANNED),
    "RoCE to whom the host only answers": (roce(dscp=30, dst=SENDER), UNPLANNED),
    "an acknowledgement to a host of no flow": (answer(0x11, 4, ACK, dst="10.0.1.4"), UNPLANNED),
    "a CNP to a host of no flow": (answer(0x81, 16, CNP, dst="10.0.1.4"), UNPLANNED),
    "an acknowledgement to whom the host only sends": (answer(0x11, 4, ACK, dst=RECEIVER), UNPLANNED),
    "an acknowledgement from another address": (answer(0x11, 4, ACK, src="10.0.0.9"), UNPLANNED),
    "a fragment of an acknowledgement": (ipv4(UDP, udp(BTH), dscp=ACK, fragment=0x2000), ANSWER),
    "an acknowledgement without ICRC": (answer(0x11, 0, ACK), ANSWER),
    "an acknowledgement under a level": (answer(0x11, 4, 30, dst="10.0.1.4"), UNPLANNED),
    "TCP from another port": (tcp(26, sport=SPORT + 1), UNPLANNED),
    "TCP to another port": (tcp(26, dport=DPORT + 1), UNPLANNED),
    "UDP with the ports of planned TCP": (ipv4(UDP, udp(bytes(9), SPORT, DPORT), dscp=26), UNPLANNED),
    "planned TCP to another host": (tcp(26, dst="10.0.1.4"), UNPLANNED),
    "a fragment of planned TCP": (tcp(26, fragment=0x2000), UNPLANNED),
    "planned TCP under the ACK's DSCP": (tcp(ACK), ANSWER),
    "planned TCP under network control": (tcp(CONTROL), CONTROLS),
}


@pytest.mark.parametrize(("frame", "reason"), ATTACKS.values(), ids=ATTACKS)
def test_what_the_plan_did_not_give_travels_as_mice(trusting, frame, reason):
    trusting.route("0.0.0.0/0", "set_next_hop", 7)
    assert trusting.push(HOST, frame) == [(2, as_forwarded(with_dscp(frame, MICE)))]
    assert strays(trusting) == {(HOST, reason): 1}
    assert list(trusting.counted("egress_packets")) == [(2, 0)]


@pytest.mark.parametrize("frame", [frame for frame, _ in ATTACKS.values()], ids=ATTACKS)
def test_ports_of_the_fabric_are_trusted(trusting, frame):
    """What passed the port of a host is not asked again."""
    trusting.route("0.0.0.0/0", "set_next_hop", 7)
    [(_, left)] = trusting.push(TRUNK, frame)
    assert dscp_of(left) == dscp_of(frame)
    assert strays(trusting) == {}


@pytest.mark.parametrize("dscp", LEVELS)
def test_a_planned_flow_keeps_each_level(trusting, dscp):
    frame = roce(dscp=dscp)
    assert trusting.push(HOST, frame) == [(2, as_forwarded(frame))]
    assert strays(trusting) == {}
    assert list(trusting.counted("egress_packets")) == [(2, 6 - LEVELS.index(dscp))]


@pytest.mark.parametrize("dscp", LEVELS)
def test_a_planned_connection_keeps_each_level(trusting, dscp):
    frame = tcp(dscp)
    assert trusting.push(HOST, frame) == [(2, as_forwarded(frame))]
    assert strays(trusting) == {}


def test_a_pair_of_one_way_may_do_its_part(trusting):
    frames = [
        roce(dscp=30, dst=RECEIVER),
        answer(0x11, 4, ACK, dst=SENDER),
        answer(0x81, 16, CNP, dst=SENDER),
    ]
    assert {dscp_of(frame) for _, frame in trusting.push(HOST, *frames)} == {30, ACK, CNP}
    assert strays(trusting) == {}


@pytest.mark.parametrize(
    "frame",
    [answer(0x11, 4, ACK), answer(0x12, 12, ACK), answer(0x81, 16, CNP)],
    ids=["acknowledgement", "atomic acknowledgement", "CNP"],
)
def test_answers_pass_in_the_first_queue(trusting, frame):
    assert trusting.push(HOST, frame) == [(2, as_forwarded(frame))]
    assert strays(trusting) == {}
    assert list(trusting.counted("egress_packets")) == [(2, 7)]


def test_every_other_dscp_is_nobodys_business(trusting):
    named = {CONTROL, PROBE, CNP, ACK, *LEVELS}
    frames = [roce(dscp=dscp, dst="10.0.1.4") for dscp in range(64) if dscp not in named]
    trusting.route("0.0.0.0/0", "set_next_hop", 7)
    assert trusting.push(HOST, *frames) == [(2, as_forwarded(frame)) for frame in frames]
    assert strays(trusting) == {}
    assert list(trusting.counted("egress_packets")) == [(2, 0)]


def test_answers_above_the_rate_travel_as_mice(trusting):
    """One a second after a burst of three: of five at once, two are too many."""
    trusting.switch.set_meter("answer_rate", HOST, MeterConfig(1, 3, 1, 3))
    frame = answer(0x11, 4, ACK)
    trusting.push(HOST, *[frame] * 5)
    assert sorted(dscp_of(left) for _, left in trusting.sent) == [MICE, MICE, ACK, ACK, ACK]
    assert strays(trusting) == {(HOST, RATE): 2}


OTHER_HOST = 3


@pytest.fixture
def neighbours(trusting):
    """Port 3 faces another host, whose plan is RoCE from 10.0.0.9 to B and back."""
    trusting.insert("edge_ingress", [Exact(OTHER_HOST)], "remark_strays", MICE)
    for dscp, action in ((CNP, "trust_answers"), (ACK, "trust_answers"), (26, "trust_planned")):
        trusting.insert("host_dscp", [Exact(OTHER_HOST), Exact(dscp)], action, MICE)
    ends = [Exact(int(IPv4Address(end))) for end in ("10.0.0.9", B)]
    trusting.insert("planned_pair", [Exact(OTHER_HOST), *ends], "trust_pair_both_ways")
    for port in (HOST, OTHER_HOST):
        trusting.switch.set_meter("answer_rate", port, MeterConfig(1, 3, 1, 3))
    return trusting


def test_the_rights_of_an_address_are_those_of_its_port(neighbours):
    """A host that takes its neighbour's address has the rights of neither, and none of the neighbour's rate."""
    stolen = [roce(dscp=26), tcp(26), answer(0x11, 4, ACK), answer(0x81, 16, CNP)]
    assert {dscp_of(left) for _, left in neighbours.push(OTHER_HOST, *stolen)} == {MICE}
    assert strays(neighbours) == {(OTHER_HOST, UNPLANNED): 4}
    neighbours.sent.clear()
    own = [answer(0x11, 4, ACK)] * 3
    assert [dscp_of(left) for _, left in neighbours.push(HOST, *own)] == [ACK] * 3


def test_a_flood_of_answers_takes_no_rate_from_a_neighbour(neighbours):
    neighbours.push(OTHER_HOST, *[answer(0x11, 4, ACK, src="10.0.0.9")] * 20)
    assert strays(neighbours) == {(OTHER_HOST, RATE): 17}
    neighbours.sent.clear()
    assert [dscp_of(left) for _, left in neighbours.push(HOST, *[answer(0x81, 16, CNP)] * 3)] == [CNP] * 3


TAGGED = {
    "802.1Q": bytes.fromhex("8100e01a"),
    "802.1ad": bytes.fromhex("88a8e01a"),
    "802.1Q twice": bytes.fromhex("8100e01a8100e01a"),
}


@pytest.mark.parametrize("tag", TAGGED.values(), ids=TAGGED)
def test_a_tagged_frame_brings_no_priority_with_it(trusting, tag):
    """The fabric has no VLANs: such a frame is no IP packet, whatever its tag or its DSCP ask for."""
    frame = roce(dscp=26)
    assert trusting.push(HOST, frame[:12] + tag + frame[12:]) == []
    assert trusting.cpu == []


def test_a_guarded_flow_can_be_remarked_too(trusting):
    trusting.insert("remark", [Exact(HOST), Exact(26)], "set_dscp", 10)
    [(_, left)] = trusting.push(HOST, roce(dscp=26))
    assert dscp_of(left) == 10
    assert strays(trusting) == {}


FOR_THE_CPU = {
    "TTL ends": roce(ttl=1),
    "TTL is over": tcp(0, ttl=0),
    "like a link probe": ethernet(0x88B5, bytes(50)),
    "to the switch's own address": roce(dst="10.0.9.9"),
}


@pytest.mark.parametrize("frame", FOR_THE_CPU.values(), ids=FOR_THE_CPU)
def test_hosts_reach_the_controller_at_a_rate_only(trusting, frame):
    """Of five at once after a burst of two, three are dropped, and those of the fabric and its own pass."""
    trusting.next_hop(9, CPU)
    trusting.route("10.0.9.9/32", "set_next_hop", 9)
    trusting.switch.set_meter("cpu_rate", HOST, MeterConfig(1, 2, 1, 2))
    trusting.push(HOST, *[frame] * 5)
    trusting.push(TRUNK, *[frame] * 4)
    assert sorted(packet_in(left)[0] for left in trusting.cpu) == [HOST] * 2 + [TRUNK] * 4
    assert trusting.sent == []
    assert strays(trusting)[HOST, TO_CPU] == 3
    # Counters of queues count what is admitted only.
    assert trusting.counted("ingress_packets")[CPU, 7][0] == 6


def test_the_rate_to_the_controller_keeps_no_packet_from_its_way(trusting):
    trusting.switch.set_meter("cpu_rate", HOST, MeterConfig(1, 1, 1, 1))
    trusting.push(HOST, *[roce(ttl=1)] * 3, *[roce(dscp=30)] * 3)
    trusting.push(CPU, *[packet_out(roce(ttl=1), submit=True)] * 3)
    assert [dscp_of(left) for _, left in trusting.sent] == [30] * 3
    assert sorted(packet_in(left)[0] for left in trusting.cpu) == [HOST, CPU, CPU, CPU]
