# SPDX-License-Identifier: Apache-2.0
"""A NIC over UDP sockets, for hosts without RDMA such as network namespaces: datagrams in RoCEv2's format.

The transport (go-back-N, DCQCN, pacing) is the emulated NIC's. A datagram leaves from a socket that is bound
to the flow's source port, so the fabric hashes it like a packet of a pinned queue pair; DSCP and ECN are set
by IP_TOS, or for IPv6 by IPV6_TCLASS. The kernel writes the Ethernet, IP and UDP headers. BTH, payload and
ICRC come from the emulated frame.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
import sys
from zlib import crc32

from controller.wire.rocev2 import ROCE_PORT
from hostagent.clock import EventClock
from hostagent.loop import AgentLoop
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.roce import HEAD_BYTES, OVERHEAD_BYTES, icrc_state, ip_bytes, ip_head

log = logging.getLogger(__name__)

_HEADERS = 14 + 20 + 8
_MOST_SOCKETS = 512
_MOST_HEADS = 4096
_BATCH = 64
_BUFFER_BYTES = 4 << 20
_TOS = (socket.IP_TOS, socket.IPV6_TCLASS)
_ANCILLARY = socket.CMSG_SPACE(4)
_UDP = struct.Struct(">HHHH")
_MAC = "02:00:00:00:00:01"
_GATEWAY = "02:00:00:00:00:02"
"""Both ends assume these two MAC addresses: the real ones are no part of the ICRC."""


class NicError(ValueError):
    """A NIC that cannot be used. The message says which and why."""


class UdpNic(EmulatedNic):
    """A NIC of the host with address `ip`. It sends at most at `rate_bps`, headers included.

    `unsent`: datagrams that the kernel refused; the transport sends them again. Raises NicError if the
    address is not this host's, or its RoCE port is in use.
    """

    pinning = "udp"

    def __init__(
        self,
        name: str,
        ip: str,
        rate_bps: int,
        *,
        loop: AgentLoop,
        dcqcn: DcqcnProfile,
        mtu: int = 1024,
        seed: int = 0,
        interface: str = "",
    ) -> None:
        clock: EventClock = loop
        super().__init__(
            name, ip, _MAC, _GATEWAY, rate_bps,
            clock=clock, transmit=self._send, dcqcn=dcqcn, mtu=mtu, seed=seed,
        )  # fmt: skip
        self.address = ip
        # How much further on than with IPv4 all stands behind the IP header.
        self._extra = self.overhead - OVERHEAD_BYTES
        self._family = socket.AF_INET6 if self._extra else socket.AF_INET
        self.unsent = 0
        self._loop = loop
        self._interface = interface
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        self._heads: dict[tuple[str, int, int, int], bytes] = {}
        self._logged_errors: set[int] = set()
        self._taken_ports: set[int] = set()
        self._receiving = self._listening_socket()
        loop.watch(self._receiving.fileno(), self._readable)

    def close(self) -> None:
        """Close all sockets."""
        self._loop.unwatch(self._receiving.fileno())
        self._receiving.close()
        for sending in self._sockets.values():
            sending.close()
        self._sockets.clear()

    # -- sending

    def _send(self, frame: bytes) -> None:
        """The last bit of a frame leaves: give BTH, payload and ICRC to the right socket."""
        extra = self._extra
        port = int.from_bytes(frame[34 + extra : 36 + extra], "big")
        if extra:
            tos, peer = int.from_bytes(frame[14:16], "big") >> 4 & 0xFF, frame[38:54]
        else:
            tos, peer = frame[15], frame[30:34]
        try:
            sending = self._sockets.get((port, tos)) or self._socket(port, tos)
            bound = sending.getsockname()[1] if port in self._taken_ports else port
            body = frame[_HEADERS + extra :] if bound == port else _sealed(frame, bound, extra)
            sending.sendto(body, (socket.inet_ntop(self._family, peer), ROCE_PORT))
        except OSError as error:
            self.unsent += 1
            if error.errno not in self._logged_errors:
                self._logged_errors.add(error.errno or 0)
                log.warning("NIC %s: a datagram from port %d was not sent: %s", self.name, port, error)

    def _socket(self, port: int, tos: int) -> socket.socket:
        found = self._sockets.get((port, tos))
        if found is not None:
            return found
        if len(self._sockets) >= _MOST_SOCKETS:
            self._sockets.pop(next(iter(self._sockets))).close()
        made = self._plain_socket()
        try:
            if self._extra:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
            else:
                made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            self._bind(made, port)
        except OSError:
            made.close()
            raise
        self._sockets[port, tos] = made
        return made

    def _bind(self, made: socket.socket, port: int) -> None:
        """Bind to `port`. If another program uses it, bind to a port of the kernel's choice: the flow is
        sent, but not pinned.
        """
        try:
            made.bind((self.address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            made.bind((self.address, 0))
            if port not in self._taken_ports:
                self._taken_ports.add(port)
                log.warning(
                    "NIC %s: another program uses UDP port %d: its flow is not pinned", self.name, port
                )

    def _plain_socket(self) -> socket.socket:
        made = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        if self._interface:
            try:
                name = self._interface.encode()
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
            except OSError as error:
                made.close()
                raise NicError(f"NIC {self.name}: interface {self._interface}: {error.strerror}") from None
        return made

    # -- receiving

    def _listening_socket(self) -> socket.socket:
        made = self._plain_socket()
        # A second agent on this address must not share the port: only one of two sockets gets a packet.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        if self._extra:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        try:
            made.bind((self.address, ROCE_PORT))
        except OSError as error:
            made.close()
            reason = {
                errno.EADDRNOTAVAIL: "no interface of this host has the address",
                errno.EADDRINUSE: "another agent, or a RoCE stack in software, has the port",
            }.get(error.errno or 0, error.strerror)
            raise NicError(f"NIC {self.name}: {self.address}:{ROCE_PORT}: {reason}") from None
        return made

    def _readable(self) -> None:
        for _ in range(_BATCH):
            try:
                datagram, ancillary, _, sender = self._receiving.recvmsg(9216, _ANCILLARY)
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("NIC %s: %s", self.name, error)
                return
            # IPV6_TCLASS comes as an int of the machine, IP_TOS as a byte.
            tos = next(
                (int.from_bytes(data, sys.byteorder) for _, kind, data in ancillary if kind in _TOS), 0
            )
            self.receive(self._head(sender[0], sender[1], tos, len(datagram)) + datagram)

    def _head(self, sender: str, port: int, tos: int, size: int) -> bytes:
        """The headers of a received datagram as the transport expects them, rebuilt from what the kernel
        reports.
        """
        key = (sender, port, tos, size)
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            length = size + _UDP.size
            ip = ip_head(ip_bytes(sender), self.ip, socket.IPPROTO_UDP, tos, length)
            macs = self.macs[6:] + self.macs[:6]
            head = self._heads[key] = macs + ip + _UDP.pack(port, ROCE_PORT, length, 0)
        return head


def _sealed(frame: bytes, port: int, extra: int) -> bytes:
    """What follows the UDP header of `frame`, with the ICRC for another source port."""
    port_at, headers, head_bytes = 34 + extra, _HEADERS + extra, HEAD_BYTES + extra
    head = frame[:port_at] + port.to_bytes(2, "big") + frame[port_at + 2 : head_bytes]
    body = frame[head_bytes:-4]
    return frame[headers:head_bytes] + body + crc32(body, icrc_state(head)).to_bytes(4, "little")
