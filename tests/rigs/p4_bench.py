# SPDX-License-Identifier: Apache-2.0
"""A bench for the compiled P4 program: frames, an embedded switch with the program, and what leaves it."""

import heapq
import itertools
import struct
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

from bmv2.entries import Exact, Lpm, TableEntry
from bmv2.program import load_program
from bmv2.switch import EmbeddedSwitch
from controller.wire.rocev2 import ROCE_PORT

JSON = Path(__file__).parents[2] / "p4/build/polyrhythm.v1model.json"
CPU = 255
TCP, UDP, ICMP = 6, 17, 1
PROBE = 52
NOT_ECT, ECT1, ECT0, CE = range(4)
A, B = "10.0.0.2", "10.0.1.3"
A6, B6 = "fd00::2", "fd00:0:0:1::3"
HOST_MAC, SWITCH_MAC, PEER_MAC = 0x02AA00000001, 0x02BB00000001, 0x02CC00000001
BTH = bytes.fromhex("0a40ffff00000011800000ff")


class EventHeap:
    """Fabric time for one test."""

    def __init__(self):
        self.now = 1_000_000
        self._events = []
        self._order = itertools.count()

    def call_at(self, time_ns, callback, *args):
        heapq.heappush(self._events, (time_ns, next(self._order), callback, args))

    def run(self):
        while self._events:
            self.now, _, callback, args = heapq.heappop(self._events)
            callback(*args)


@dataclass
class Bench:
    """A switch with the program loaded and what left it: (port, frame); `cpu` holds packet-ins."""

    switch: EmbeddedSwitch
    clock: EventHeap
    sent: list = field(default_factory=list)
    cpu: list = field(default_factory=list)

    def port(self, port, rate_bps=None):
        self.switch.add_port(port, rate_bps=rate_bps, transmit=lambda frame: self.sent.append((port, frame)))

    def insert(self, table, match, action, *params, priority=0):
        self.switch.insert(table, TableEntry(tuple(match), priority, action, params))

    def delete(self, table, match):
        self.switch.delete(table, TableEntry(tuple(match), 0, "", ()))

    def route(self, prefix, action, *params):
        network = ip_network(prefix)
        table = "routing" if network.version == 4 else "routing_ipv6"
        self.insert(table, [Lpm(int(network.network_address), network.prefixlen)], action, *params)

    def next_hop(self, next_hop, port, src_mac=SWITCH_MAC, dst_mac=PEER_MAC):
        self.insert("next_hop", [Exact(next_hop)], "forward", port, src_mac, dst_mac)

    def push(self, port, *frames):
        """Receive the frames at once, then let time pass until all is quiet."""
        for frame in frames:
            self.switch.receive(port, frame)
        self.clock.run()
        return self.sent

    def counted(self, name):
        """The counter's non-zero cells: (port, qid) -> (packets, bytes)."""
        cells = self.switch.read_counter(name)
        return {divmod(index, 8): cell for index, cell in enumerate(cells) if cell != (0, 0)}


def make_bench(name="leaf1", ports=(1, 2, 3), seed=0):
    clock = EventHeap()
    bench = Bench(EmbeddedSwitch(name, clock, seed=seed), clock)
    bench.switch.load(load_program(JSON.read_bytes()))
    bench.switch.packet_in = bench.cpu.append
    for port in ports:
        bench.port(port)
    return bench


def internet_checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(ether_type, payload, src=HOST_MAC, dst=SWITCH_MAC):
    return dst.to_bytes(6) + src.to_bytes(6) + ether_type.to_bytes(2) + payload


def ipv4(protocol, payload, src=A, dst=B, dscp=0, ecn=NOT_ECT, ttl=64, fragment=0x4000, options=b""):
    words = 5 + len(options) // 4
    total = 4 * words + len(payload)
    head = struct.pack("!BBHHHBB", 0x40 | words, dscp << 2 | ecn, total, 0x1234, fragment, ttl, protocol)
    addresses = IPv4Address(src).packed + IPv4Address(dst).packed
    checksum = internet_checksum(head + b"\0\0" + addresses + options)
    return ethernet(0x0800, head + checksum.to_bytes(2) + addresses + options + payload)


def ipv6(protocol, payload, src=A6, dst=B6, dscp=0, ecn=NOT_ECT, ttl=64, label=0x54321, length=None):
    """An IPv6 packet in a frame; `length` None: the payload's."""
    first = 6 << 28 | dscp << 22 | ecn << 20 | label
    head = struct.pack("!IHBB", first, len(payload) if length is None else length, protocol, ttl)
    return ethernet(0x86DD, head + IPv6Address(src).packed + IPv6Address(dst).packed + payload)


def udp(payload, sport=0xC123, dport=ROCE_PORT, checksum=0xBEEF):
    return struct.pack("!HHHH", sport, dport, 8 + len(payload), checksum) + payload


def roce(dscp=8, ecn=NOT_ECT, size=64, sport=0xC123, **header):
    return ipv4(UDP, udp(BTH + b"\x5a" * size, sport), dscp=dscp, ecn=ecn, **header)


def roce6(dscp=8, ecn=NOT_ECT, size=64, sport=0xC123, **header):
    return ipv6(UDP, udp(BTH + b"\x5a" * size, sport), dscp=dscp, ecn=ecn, **header)


def packet_out(frame, port=0, submit=False):
    return (port << 7 | submit << 6).to_bytes(2) + frame


def packet_in(frame):
    """(ingress port, reason, would-be egress port, the rest)."""
    word = int.from_bytes(frame[:4])
    assert word >> 16 & 0xF == 0
    return word >> 23, word >> 20 & 7, word & 0xFFFF, frame[4:]


def _traffic_class(frame):
    return frame[15] if frame[12:14] == b"\x08\x00" else int.from_bytes(frame[14:16]) >> 4 & 0xFF


def ecn_of(frame):
    return _traffic_class(frame) & 3


def dscp_of(frame):
    return _traffic_class(frame) >> 2


def with_dscp(frame, dscp):
    """The frame with another DSCP and, in IPv4, its checksum mended."""
    if frame[12:14] == b"\x86\xdd":
        word = int.from_bytes(frame[14:16]) & 0xF03F | dscp << 6
        return frame[:14] + word.to_bytes(2) + frame[16:]
    header = bytearray(frame[14:34])
    header[1] = dscp << 2 | header[1] & 3
    header[10:12] = b"\0\0"
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2)
    return frame[:14] + bytes(header) + frame[34:]


def flow_key(src=A, dst=B, protocol=UDP, sport=0xC123, dport=ROCE_PORT):
    """The 5-tuple as a match."""
    return [Exact(v) for v in (int(ip_address(src)), int(ip_address(dst)), protocol, sport, dport)]


def as_forwarded(frame, hops=1):
    """The frame after a routed hop, checksum by the definition and not by an increment."""
    if frame[12:14] == b"\x86\xdd":
        left = frame[12:21] + bytes([frame[21] - hops]) + frame[22:]
        return PEER_MAC.to_bytes(6) + SWITCH_MAC.to_bytes(6) + left
    header = bytearray(frame[14:34])
    header[8] -= hops
    header[10:12] = b"\0\0"
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2)
    return PEER_MAC.to_bytes(6) + SWITCH_MAC.to_bytes(6) + frame[12:14] + bytes(header) + frame[34:]


def spoilt(frame, offset):
    return frame[:offset] + bytes([frame[offset] ^ 1]) + frame[offset + 1 :]
