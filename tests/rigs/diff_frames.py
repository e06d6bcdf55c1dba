# SPDX-License-Identifier: Apache-2.0
"""Random frames: what a fabric carries, and what it should not have to."""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

from controller.wire.rocev2 import ROCE_PORT

UDP, TCP, ICMP = 17, 6, 1
INT_DSCP, CNP_DSCP, CNP_OPCODE = 52, 48, 0x81
MD_START = 14 + 20 + 8 + 4
# So much longer is the header of IPv6.
IPV6_EXTRA = 20
_PATTERN = bytes(range(256)) * 40


# Where the IPv6 addresses of the flows begin; their last 32 bits are the IPv4 address.
_IPV6_PREFIX = 0xFD00 << 112


class Flow(NamedTuple):
    """A 5-tuple: addresses and ports as integers. Each host has an address of both families."""

    src: int
    dst: int
    protocol: int
    sport: int
    dport: int

    @property
    def src_ipv6(self) -> int:
        """The source's IPv6 address."""
        return _IPV6_PREFIX | self.src

    @property
    def dst_ipv6(self) -> int:
        """The destination's IPv6 address."""
        return _IPV6_PREFIX | self.dst


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def ethernet(ether_type: int, payload: bytes) -> bytes:
    """An Ethernet frame between two fixed stations."""
    return bytes.fromhex("020000000001020000000002") + struct.pack("!H", ether_type) + payload


def ipv4(
    flow: Flow,
    payload: bytes,
    *,
    dscp: int = 0,
    ecn: int = 0,
    ttl: int = 64,
    fragment: int = 0,
    options: bytes = b"",
    identification: int = 0,
    bad: int = 0,
) -> bytes:
    """An IPv4 packet; `fragment` is the word of flags and offset, `bad` is added to the checksum."""
    length = 20 + len(options) + len(payload)
    head = struct.pack(
        "!BBHHHBBHII",
        0x45 + len(options) // 4,
        dscp << 2 | ecn,
        length & 0xFFFF,
        identification,
        fragment,
        ttl,
        flow.protocol,
        0,
        flow.src,
        flow.dst,
    )
    total = (checksum(head + options) + bad) & 0xFFFF
    return head[:10] + struct.pack("!H", total) + head[12:] + options + payload


def ipv6(flow: Flow, payload: bytes, *, dscp: int = 0, ecn: int = 0, ttl: int = 64, label: int = 0) -> bytes:
    """An IPv6 packet; the flow's protocol is its next header."""
    word = 6 << 28 | dscp << 22 | ecn << 20 | label
    head = struct.pack("!IHBB", word, len(payload) & 0xFFFF, flow.protocol, ttl)
    return head + flow.src_ipv6.to_bytes(16, "big") + flow.dst_ipv6.to_bytes(16, "big") + payload


def traffic_class(frame: bytes) -> int | None:
    """DSCP and ECN of a frame with IPv4 or IPv6; None for others."""
    if frame[12:14] == b"\x08\x00" and len(frame) > 15:
        return frame[15]
    if frame[12:14] == b"\x86\xdd" and len(frame) > 15:
        return int.from_bytes(frame[14:16], "big") >> 4 & 0xFF
    return None


def udp(flow: Flow, payload: bytes, check: int = 0) -> bytes:
    """A UDP datagram."""
    return struct.pack("!HHHH", flow.sport, flow.dport, 8 + len(payload), check) + payload


def tcp(flow: Flow, payload: bytes) -> bytes:
    """A TCP segment with a plain header."""
    return struct.pack("!HHIIHHHH", flow.sport, flow.dport, 1, 2, 0x5010, 4096, 0, 0) + payload


def bth(opcode: int, payload: bytes) -> bytes:
    """A RoCEv2 payload: base transport header, then data."""
    return struct.pack("!BBHII", opcode, 0x40, 0xFFFF, 17, 5) + payload


def int_probe(rng: Random, hops: int) -> bytes:
    """INT shim, MD header and the stack of `hops` earlier hops; now and then not quite in order."""
    length = 3 + 8 * hops
    version, hop_words, instructions, remaining, kind = 2, 8, 0xFC00, rng.choice((0, 1, 8, 255)), 1
    fault = rng.random()
    if fault < 0.05:
        version = rng.randrange(16)
    elif fault < 0.1:
        instructions = rng.randrange(65536)
    elif fault < 0.15:
        kind = rng.randrange(16)
    elif fault < 0.2:
        length = rng.randrange(256)
    elif fault < 0.25:
        hop_words = rng.randrange(32)
    shim = struct.pack("!BBBB", kind << 4, length & 0xFF, 0, 0)
    md = struct.pack("!IHHHH", version << 28 | hop_words << 8 | remaining, instructions, 0, 0, 0)
    return shim + md + _PATTERN[: 32 * hops]


class FrameMaker:
    """Draws (port, frame) from a pool of flows; `ports` are those that frames come in by."""

    def __init__(self, rng: Random, flows: list[Flow], ports: list[int]) -> None:
        self._rng = rng
        self._flows = flows
        self._ports = ports
        self._kinds = (
            (self._roce, 24),
            (self._int, 16),
            (self._cnp, 8),
            (self._tcp, 8),
            (self._udp, 8),
            (self._fragment, 6),
            (self._other_protocol, 3),
            (self._bad_checksum, 4),
            (self._expired, 4),
            (self._options, 3),
            (self._not_ipv4, 6),
            (self._link_probe, 2),
            (self._truncated, 6),
            (self._garbage, 2),
            (self._oversized, 1),
        )

    def draw(self) -> tuple[int, bytes]:
        """One frame and the port it comes in by."""
        makers, weights = zip(*self._kinds, strict=True)
        (maker,) = self._rng.choices(makers, weights)
        return self._rng.choice(self._ports), maker()

    def _flow(self, protocol: int, dport: int | None = None) -> Flow:
        rng = self._rng
        flow = rng.choice(self._flows)
        if rng.random() < 0.5:
            flow = flow._replace(sport=rng.randrange(0xC000, 0x10000))
        return flow._replace(protocol=protocol, dport=flow.dport if dport is None else dport)

    def _payload(self) -> bytes:
        return _PATTERN[: self._rng.randrange(40)]

    def _ip(self, flow: Flow, payload: bytes, **fields: int | bytes) -> bytes:
        rng = self._rng
        chosen = {"dscp": rng.randrange(63), "ecn": rng.randrange(4), "ttl": rng.choice((2, 3, 64, 255))}
        if chosen["dscp"] in (INT_DSCP, CNP_DSCP):
            chosen["dscp"] = 10
        if rng.random() < 0.35 and not fields.keys() - chosen.keys():
            return ethernet(0x86DD, ipv6(flow, payload, label=rng.randrange(1 << 20), **{**chosen, **fields}))  # type: ignore[arg-type]
        return ethernet(0x0800, ipv4(flow, payload, **{**chosen, **fields}))  # type: ignore[arg-type]

    def _roce(self) -> bytes:
        flow = self._flow(UDP, ROCE_PORT)
        return self._ip(flow, udp(flow, bth(self._rng.choice((4, 7, 17)), self._payload())))

    def _int(self, **fields: int) -> bytes:
        flow = self._flow(UDP, ROCE_PORT)
        probe = int_probe(self._rng, self._rng.randrange(4)) + self._payload()[:8]
        return self._ip(flow, udp(flow, probe, self._rng.choice((0, 0xBEEF))), dscp=INT_DSCP, **fields)

    def _cnp(self) -> bytes:
        flow = self._flow(UDP, self._rng.choice((ROCE_PORT, ROCE_PORT, ROCE_PORT, 53)))
        opcode = self._rng.choice((CNP_OPCODE, CNP_OPCODE, 4, 17))
        return self._ip(flow, udp(flow, bth(opcode, bytes(16))), dscp=CNP_DSCP)

    def _tcp(self) -> bytes:
        flow = self._flow(TCP)
        return self._ip(flow, tcp(flow, self._payload()))

    def _udp(self) -> bytes:
        flow = self._flow(UDP, self._rng.choice((None, 53, 4790)))
        return self._ip(flow, udp(flow, self._payload(), 0x1234))

    def _fragment(self) -> bytes:
        flow = self._flow(self._rng.choice((UDP, TCP)), ROCE_PORT)
        word = self._rng.choice((0x2000, 0x2001, 0x0001, 0x1FFF, 0x4000, 0x8000, 0x6000))
        dscp = self._rng.choice((INT_DSCP, CNP_DSCP, 10))
        return self._ip(flow, udp(flow, int_probe(self._rng, 1)), fragment=word, dscp=dscp)

    def _other_protocol(self) -> bytes:
        # Extension headers of IPv6 are among them: hop-by-hop options, fragment.
        return self._ip(self._flow(self._rng.choice((ICMP, 0, 44, 47, 89, 255))), self._payload())

    def _bad_checksum(self) -> bytes:
        flow = self._flow(UDP, ROCE_PORT)
        return self._ip(flow, udp(flow, bth(4, b"")), bad=self._rng.choice((1, 0x8000, 0xFFFF)))

    def _expired(self) -> bytes:
        if self._rng.random() < 0.3:
            return self._int(ttl=self._rng.randrange(2))
        flow = self._flow(UDP, ROCE_PORT)
        return self._ip(flow, udp(flow, bth(4, b"")), ttl=self._rng.randrange(2))

    def _options(self) -> bytes:
        flow = self._flow(UDP, ROCE_PORT)
        return self._ip(flow, udp(flow, b""), options=bytes([1]) * 4 * self._rng.randrange(1, 11))

    def _not_ipv4(self) -> bytes:
        rng, flow = self._rng, self._flow(UDP, ROCE_PORT)
        inner = ipv4(flow, udp(flow, bth(4, b"")))
        kind = rng.randrange(5)
        if kind == 0:
            return ethernet(0x86DD, struct.pack("!IHBB", 6 << 28, 8, UDP, 64) + bytes(32) + udp(flow, b""))
        if kind == 1:
            return ethernet(0x8100, struct.pack("!HH", rng.randrange(4096), 0x0800) + inner)
        if kind == 2:
            return ethernet(0x88A8, struct.pack("!HHHH", 5, 0x8100, 6, 0x0800) + inner)
        if kind == 3:
            return ethernet(0x0806, bytes.fromhex("0001080006040001") + bytes(20))
        return ethernet(0x0800, bytes([rng.randrange(256)]) + inner[1:])

    def _link_probe(self) -> bytes:
        return ethernet(0x88B5, self._payload())

    def _truncated(self) -> bytes:
        whole = self._rng.choice((self._roce, self._int, self._tcp, self._cnp, self._not_ipv4))()
        return whole[: self._rng.randrange(1, len(whole))]

    def _garbage(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(1, 64))

    def _oversized(self) -> bytes:
        flow = self._flow(UDP, ROCE_PORT)
        return self._ip(flow, udp(flow, bth(4, _PATTERN[: self._rng.choice((1400, 2000, 9000))])))
