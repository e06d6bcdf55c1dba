# SPDX-License-Identifier: Apache-2.0
"""Capture the packets that leave a switch of the Mininet fabric: which flow leaves by which port."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import time
from dataclasses import dataclass

from controller.wire.rocev2 import ROCE_PORT
from topo.mininet import MininetFabric, port_of

_ETH_P_ALL = 3
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_BUFFER = 8 << 20
_HEAD = 64
"""Bytes kept of each frame: all headers."""
_TIMESPEC = struct.Struct("@qq")
_FILTER = (
    (0x30, 0, 0, 0xFFFFF004),  # load the packet type
    (0x15, 0, 12, 4),  # outgoing,
    (0x28, 0, 0, 12),
    (0x15, 0, 4, 0x0800),  # IPv4,
    (0x30, 0, 0, 23),
    (0x15, 0, 8, 17),  # UDP,
    (0x28, 0, 0, 36),
    (0x15, 5, 6, ROCE_PORT),  # to the port of RoCEv2: keep the headers
    (0x15, 0, 5, 0x86DD),  # IPv6,
    (0x30, 0, 0, 20),
    (0x15, 0, 3, 17),  # UDP,
    (0x28, 0, 0, 56),
    (0x15, 0, 1, ROCE_PORT),  # to the port of RoCEv2: keep the headers
    (0x06, 0, 0, _HEAD),
    (0x06, 0, 0, 0),  # drop all others
)
"""Classic BPF: code, jumps if true and false, operand."""
_FLOW = {b"\x08\x00": slice(26, 38), b"\x86\xdd": slice(22, 58)}
"""Where a frame has its addresses and UDP ports, by its Ethernet type."""


@dataclass(frozen=True, slots=True)
class PortChange:
    """At `at_ns` a flow left a switch by another port than before, or for the first time.

    `flow` holds the addresses and UDP ports as bytes of the packet.
    """

    at_ns: int
    switch: str
    flow: bytes
    port: int


class Sniffer:
    """Captures at one switch, in its namespace. Each frame has the kernel's time of its departure."""

    def __init__(self, network: MininetFabric, switch: str) -> None:
        self._switch = switch
        self._last: dict[bytes, int] = {}
        self._socket = network.inside(switch, _open)

    def changes(self) -> list[PortChange]:
        """The flows that have left by another port than before, since the last call."""
        # The kernel's time stamps are wall-clock time; everything else here uses the monotonic clock.
        offset = time.monotonic_ns() - time.time_ns()
        found: list[PortChange] = []
        while True:
            try:
                head, ancillary, _, address = self._socket.recvmsg(_HEAD, 64)
            except BlockingIOError:
                return found
            flow, port = head[_FLOW[head[12:14]]], port_of(address[0])
            if port is not None and self._last.get(flow) != port:
                self._last[flow] = port
                seconds, ns = _TIMESPEC.unpack(ancillary[0][2])
                found.append(PortChange(seconds * 10**9 + ns + offset, self._switch, flow, port))

    def close(self) -> None:
        """Stop the capture."""
        self._socket.close()


def _open() -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    code = b"".join(struct.pack("@HBBI", *instruction) for instruction in _FILTER)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(_FILTER), ctypes.addressof(buffer))
    made.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    made.setblocking(False)
    # Packets that arrived before the filter was attached have not been filtered.
    with contextlib.suppress(BlockingIOError):
        while made.recv(_HEAD):
            pass
    return made
