# SPDX-License-Identifier: Apache-2.0
"""A host that floods the fabric: frames of every DSCP at the rate of its cable, without any congestion
control."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import cycle
from socket import IPPROTO_TCP, IPPROTO_UDP

from controller.model.traffic import TRAFFIC_CLASSES
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from hostagent.nic.roce import (
    ACKNOWLEDGE,
    CNP,
    ECT0,
    SEND_MIDDLE,
    build_head,
    finish,
    ip_bytes,
    ip_head,
    mac_bytes,
)
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.scenario.build import Flood
from topo.graph import Topology

# The DSCPs of an IP header (RFC 2474).
_DSCPS = 64
# Source ports. Chosen: enough that ECMP spreads the frames over all spines of the shipped scenarios.
_PORTS = 16
_HTTP = 80
_UDP_HEADER_BYTES = 8


class HostFlood:
    """Sends frames by the cable of a host from `start_ns` on, one right behind the other, without end.

    The DSCP changes with every frame. The frames are full RoCE data, TCP, UDP to port 80, and CNPs with the
    payload of data; under the DSCPs of acknowledgements and CNPs also such packets in their right size. A
    flood of answers has the last two kinds only.
    `enter` takes a frame at the leaf's port. `sent` counts the frames.
    """

    def __init__(
        self,
        flood: Flood,
        topology: Topology,
        packet_bytes: int,
        heap: EventHeap,
        enter: Callable[[bytes], None],
        *,
        start_ns: int,
    ) -> None:
        self.sent = 0
        self._heap = heap
        self._enter = enter
        self._ns_per_byte = 8e9 / topology.host[flood.src].rate_bps
        made = (
            _answers(flood, topology) if flood.frames == "answers" else _frames(flood, topology, packet_bytes)
        )
        self._frames = cycle(tuple(made))
        heap.call_at(start_ns + flood.start_ns, self._send)

    def _send(self) -> None:
        frame = next(self._frames)
        self.sent += 1
        self._enter(frame)
        self._heap.call_at(self._heap.now + round(len(frame) * self._ns_per_byte), self._send)


def _frames(flood: Flood, topology: Topology, packet_bytes: int) -> Iterator[bytes]:
    """Every frame of a flood, in its order: for each source port every DSCP."""
    ends = _ends(flood, topology)
    payload = bytes(packet_bytes)
    for k in range(_PORTS):
        port = ROCE_SOURCE_PORTS.start + k
        for dscp in range(_DSCPS):
            kind = (k + dscp) % 4
            if kind == 0:
                yield _roce(ends, port, dscp, SEND_MIDDLE, payload)
            elif kind == 1:
                header = struct.pack(">HHIIHHHH", port, _HTTP, 0, 0, 5 << 12, 1 << 15, 0, 0)
                yield _ip(ends, dscp, IPPROTO_TCP, header + payload)
            elif kind == 2:
                header = struct.pack(">HHHH", port, _HTTP, _UDP_HEADER_BYTES + packet_bytes, 0)
                yield _ip(ends, dscp, IPPROTO_UDP, header + payload)
            elif dscp == TRAFFIC_CLASSES.ack:
                yield _acknowledgement(ends, port)
            elif dscp == TRAFFIC_CLASSES.cnp:
                yield _cnp(ends, port)
            else:
                yield _roce(ends, port, dscp, CNP, payload)


def _answers(flood: Flood, topology: Topology) -> Iterator[bytes]:
    """An acknowledgement and a CNP for each source port."""
    ends = _ends(flood, topology)
    for port in ROCE_SOURCE_PORTS[:_PORTS]:
        yield _acknowledgement(ends, port)
        yield _cnp(ends, port)


def _ends(flood: Flood, topology: Topology) -> tuple[bytes, bytes, bytes]:
    """MAC addresses, source and destination address."""
    src, dst = topology.host[flood.src], topology.host[flood.dst]
    macs = mac_bytes(topology.switch[src.leaf].mac) + mac_bytes(src.mac)
    return macs, ip_bytes(src.ip), ip_bytes(dst.ip)


def _acknowledgement(ends: tuple[bytes, bytes, bytes], port: int) -> bytes:
    return _roce(ends, port, TRAFFIC_CLASSES.ack, ACKNOWLEDGE, bytes(4))


def _cnp(ends: tuple[bytes, bytes, bytes], port: int) -> bytes:
    return _roce(ends, port, TRAFFIC_CLASSES.cnp, CNP, bytes(16))


def _roce(ends: tuple[bytes, bytes, bytes], port: int, dscp: int, opcode: int, payload: bytes) -> bytes:
    # Queue pair 1 belongs to connection management (InfiniBand volume 1, 3.5.10), so no flow listens there.
    head, state = build_head(*ends, port, dscp, ecn=ECT0, opcode=opcode, qp=1, payload_bytes=len(payload))
    return finish(head, state, 0, payload)


def _ip(ends: tuple[bytes, bytes, bytes], dscp: int, protocol: int, body: bytes) -> bytes:
    macs, src, dst = ends
    return macs + ip_head(src, dst, protocol, dscp << 2, len(body)) + body
