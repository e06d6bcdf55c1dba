# SPDX-License-Identifier: Apache-2.0
"""What the compiled program does to INT probes, from the first hop to the sink's packet-in."""

import struct
from dataclasses import dataclass

import pytest
from p4_bench import (
    BTH,
    CPU,
    JSON,
    PROBE,
    TCP,
    UDP,
    Bench,
    EventHeap,
    as_forwarded,
    internet_checksum,
    ipv4,
    make_bench,
    packet_in,
    packet_out,
    roce,
    udp,
)

from bmv2.entries import Exact, TableEntry
from bmv2.program import load_program
from bmv2.switch import EmbeddedSwitch


def probe(
    hops=8, version=2, hop_words=8, instructions=0xFC00, shim_type=1, stack=b"", body=b"id42", **header
):
    """A probe as the controller makes it: UDP to 4791, shim, MD header, (stack,) body."""
    shim = bytes([shim_type << 4, 3 + len(stack) // 4, 0, 0])
    md = struct.pack("!BBBBHHHH", version << 4, 0, hop_words, hops, instructions, 0, 0, 0)
    payload = udp(shim + md + stack + body, sport=0xC0DE)
    return ipv4(UDP, payload, dscp=PROBE, **{"ttl": 32, **header})


@dataclass(frozen=True)
class Hop:
    node: int
    ingress_port: int
    egress_port: int
    latency: int
    queue: int
    occupancy: int
    ingress_time: int
    egress_time: int


def parse_probe(frame):
    """(shim length, E bit, remaining hops, hops newest first, body); all lengths must agree."""
    total, udp_length = int.from_bytes(frame[16:18]), int.from_bytes(frame[38:40])
    assert total == len(frame) - 14
    assert udp_length == total - 20
    assert internet_checksum(frame[14:34]) == 0
    length, flags, remaining = frame[43], frame[46], frame[49]
    stack = frame[58 : 46 + 4 * length]
    hops = []
    for at in range(0, len(stack), 32):
        node, ingress, egress, latency, queue, start, end = struct.unpack("!IHHIIQQ", stack[at : at + 32])
        hops.append(Hop(node, ingress, egress, latency, queue >> 24, queue & 0xFFFFFF, start, end))
    return length, flags >> 2 & 1, remaining, hops, frame[46 + 4 * length :]


def test_probe_from_packet_out_to_the_sinks_packet_in():
    """leaf1 -> spine1 -> leaf2: in by leaf1's CPU port, out by leaf2's, never to the NIC on its port 4."""
    clock = EventHeap()
    cpu, nic, wire = [], [], []
    program = load_program(JSON.read_bytes())
    leaf1, spine, leaf2 = (EmbeddedSwitch(name, clock) for name in ("leaf1", "spine1", "leaf2"))
    for device_id, switch in enumerate((leaf1, spine, leaf2), start=101):
        switch.load(program)
        switch.packet_in = lambda frame, name=switch.name: cpu.append((name, frame))
        switch.set_default("switch_identity", "set_switch_id", (device_id,))
        switch.insert("queue", TableEntry((Exact(PROBE),), 0, "set_queue", (6,)))

    def link(switch, out_port, peer, in_port):
        def arrive(frame):
            wire.append(frame)
            clock.call_at(clock.now + 1000, peer.receive, in_port, frame)

        switch.add_port(out_port, rate_bps=25_000_000, transmit=arrive)
        peer.add_port(in_port, rate_bps=25_000_000, transmit=nic.append)

    link(leaf1, 9, spine, 1)
    link(spine, 2, leaf2, 8)
    leaf2.add_port(4, rate_bps=25_000_000, transmit=nic.append)
    for switch, port in ((leaf1, 9), (spine, 2), (leaf2, 4)):
        bench = Bench(switch, clock)
        bench.next_hop(1, port)
        bench.route("10.0.1.0/24", "set_next_hop", 1)
    leaf2.insert("edge", TableEntry((Exact(4),), 0, "mark_edge", ()))

    sent = probe()
    leaf1.receive(CPU, packet_out(sent, submit=True))
    clock.run()

    assert nic == []
    [(name, frame)] = cpu
    assert name == "leaf2"
    ingress_port, reason, egress_port, received = packet_in(frame)
    assert (ingress_port, reason, egress_port) == (8, 1, 4)
    length, exceeded, remaining, hops, body = parse_probe(received)
    assert (length, exceeded, remaining, body) == (3 + 3 * 8, 0, 8 - 3, b"id42")
    assert [(hop.node, hop.ingress_port, hop.egress_port, hop.queue) for hop in hops] == [
        (103, 8, 4, 7),
        (102, 1, 2, 6),
        (101, CPU, 9, 6),
    ]
    assert all(hop.latency == hop.egress_time - hop.ingress_time for hop in hops)
    assert all(hop.occupancy == 0 for hop in hops)
    # In microseconds: each hop begins after the one before has put the probe on the wire.
    assert hops[2].ingress_time == 1000
    assert hops[2].egress_time < hops[1].ingress_time <= hops[1].egress_time < hops[0].ingress_time
    # What does not belong to INT is as it was sent: ports, the DSCP that steers the queue, TTL less three.
    assert received[22] == 32 - 3
    assert received[15] >> 2 == PROBE
    assert received[34:38] == sent[34:38]
    assert received[40:42] == b"\0\0"
    assert [len(frame) for frame in wire] == [len(sent) + 32, len(sent) + 64]
    assert [parse_probe(frame)[0] for frame in wire] == [11, 19]


def test_probe_waits_and_reports_the_queue_it_saw():
    bench = make_bench(ports=(1,))
    bench.port(2, rate_bps=8_000_000)
    bench.next_hop(7, 2)
    bench.route("10.0.1.0/24", "set_next_hop", 7)
    data = roce(size=958)
    frames = [data, data, data, probe(), data, data]
    sent = [frame for _, frame in bench.push(1, *frames)]
    [hop] = parse_probe(sent[3])[3]
    assert hop.occupancy == 2
    assert hop.latency == 3 * len(data)  # 8 Mbit/s: a byte a microsecond
    assert (hop.ingress_time, hop.egress_time) == (1000, 1000 + 3 * len(data))


def test_documented_probe_is_the_one_tested():
    text = (JSON.parents[2] / "docs/data-plane.md").read_text()
    assert f"`{probe(hops=16, body=b'')[42:].hex(' ', 4)}`" in text


def test_probe_takes_the_path_of_its_five_tuple(ecmp_bench):
    """A probe hashes as the flow it stands for: same addresses, protocol and ports."""
    flow = ipv4(UDP, udp(BTH, sport=0xC0DE), dst="10.0.1.3")
    ecmp_bench.sent.clear()
    [(_, first), (_, second)] = ecmp_bench.push(1, flow, probe(dst="10.0.1.3"))
    assert first[6:12] == second[6:12]


def test_probe_sent_by_a_host_does_not_reach_a_nic(edge_bench):
    assert edge_bench.push(1, probe()) == []
    [(ingress_port, reason, egress_port, _)] = [packet_in(frame) for frame in edge_bench.cpu]
    assert (ingress_port, reason, egress_port) == (1, 1, 2)


def test_data_passes_the_edge(edge_bench):
    frames = [roce(), ipv4(UDP, udp(b"x", dport=53), dscp=PROBE), ipv4(TCP, bytes(20), dscp=PROBE)]
    assert edge_bench.push(1, *frames) == [(2, as_forwarded(frame)) for frame in frames]
    assert edge_bench.cpu == []


def test_no_hop_count_left_sets_e_and_adds_nothing(edge_bench):
    stack = bytes(range(32))
    sent = probe(hops=0, stack=stack)
    assert edge_bench.push(1, sent) == []
    [(_, reason, egress_port, frame)] = [packet_in(f) for f in edge_bench.cpu]
    length, exceeded, remaining, _, body = parse_probe(frame)
    assert (reason, egress_port, length, exceeded, remaining, body) == (1, 2, 11, 1, 0, b"id42")
    assert frame[58:90] == stack
    assert len(frame) == len(sent)


def test_a_full_shim_sets_e_and_adds_nothing(edge_bench):
    sent = probe(hops=9, stack=bytes(4 * 248))
    edge_bench.push(1, sent)
    [(_, _, _, frame)] = [packet_in(f) for f in edge_bench.cpu]
    assert (len(frame), frame[43], frame[46] >> 2 & 1, frame[49]) == (len(sent), 251, 1, 9)


def test_the_last_hop_count_is_used(bench):
    [(_, frame)] = bench.push(1, probe(hops=1))
    length, exceeded, remaining, hops, _ = parse_probe(frame)
    assert (length, exceeded, remaining, len(hops)) == (11, 0, 0, 1)


STRANGE = {
    "version": {"version": 1},
    "hop length": {"hop_words": 9},
    "instructions": {"instructions": 0xFF00},
    "shim type": {"shim_type": 3},
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_int_that_is_not_ours_is_left_alone_and_still_stops_at_the_edge(edge_bench, strange):
    sent = probe(**strange)
    assert edge_bench.push(1, sent) == []
    [(_, reason, _, frame)] = [packet_in(f) for f in edge_bench.cpu]
    assert (reason, frame) == (1, as_forwarded(sent))


def test_a_probe_whose_ttl_ends_is_returned_as_it_came(edge_bench):
    sent = probe(ttl=1)
    assert edge_bench.push(1, sent) == []
    assert [packet_in(frame) for frame in edge_bench.cpu] == [(1, 3, 0, sent)]
