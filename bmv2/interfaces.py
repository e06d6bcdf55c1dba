# SPDX-License-Identifier: Apache-2.0
"""Linux network interfaces as a switch's ports: raw frames by AF_PACKET, carrier by netlink."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct

from bmv2.rings import ReceiveRing

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_PROMISC = 1
_PACKET_OUTGOING = 4
_PACKET_IGNORE_OUTGOING = 23
_RTMGRP_LINK = 1
_MAX_FRAME = 65536
_SIOCGIFFLAGS = 0x8913
_IFF_UP_RUNNING = 0x1 | 0x40


class InterfaceError(OSError):
    """An interface that cannot be a port: the message says which and why."""


class RawInterface:
    """A network interface, open for raw Ethernet frames in promiscuous mode. Needs CAP_NET_RAW."""

    def __init__(self, name: str) -> None:
        """Open the interface. Raises InterfaceError if there is none of that name, or for want of rights."""
        self.name = name
        self.lost = 0
        try:
            index = socket.if_nametoindex(name)
        except OSError:
            known = ", ".join(interface for _, interface in socket.if_nameindex())
            raise InterfaceError(f"interface {name}: there is none of that name; there are {known}") from None
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError:
            raise InterfaceError(f"interface {name}: raw sockets need root (CAP_NET_RAW)") from None
        membership = struct.pack("IHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        self.socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        self.socket.setblocking(False)
        self._ring = self._open_ring()
        # Bound last: from here on frames come in, and only this interface's.
        self.socket.bind((name, _ETH_P_ALL))

    def _open_ring(self) -> ReceiveRing | None:
        """Let frames come in by shared memory, and those we send not at all, where the kernel can."""
        try:
            self.socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            return ReceiveRing(self.socket)
        except OSError:
            return None

    def receive(self) -> bytes | None:
        """Take the next frame that came in from the wire; None if there is none, or it is one we sent."""
        if self._ring is not None:
            return self._ring.next()
        try:
            frame, source = self.socket.recvfrom(_MAX_FRAME)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.ENETDOWN, errno.ENXIO):
                return None
            raise
        return None if source[2] == _PACKET_OUTGOING else frame

    def send(self, frame: bytes) -> None:
        """Put a frame on the wire; one that the kernel does not take is lost and counted in `lost`."""
        try:
            self.socket.send(frame)
        except (BlockingIOError, OSError) as error:
            if error.errno not in (
                errno.EAGAIN,
                errno.ENOBUFS,
                errno.ENETDOWN,
                errno.ENXIO,
                errno.EMSGSIZE,
                errno.EINVAL,
            ):
                raise
            self.lost += 1

    def carrier(self) -> bool:
        """Tell whether the interface is up and its link has a carrier at both ends."""
        # Asked of the socket: /sys may show another network namespace than the process is in.
        request = struct.pack("16sh14x", self.name.encode(), 0)
        try:
            flags: int = struct.unpack("16xh14x", fcntl.ioctl(self.socket, _SIOCGIFFLAGS, request))[0]
        except OSError:
            # How the kernel answers for an interface that is gone.
            return False
        return flags & _IFF_UP_RUNNING == _IFF_UP_RUNNING

    def close(self) -> None:
        """Give the interface back."""
        if self._ring is not None:
            self._ring.close()
        self.socket.close()


def link_events() -> socket.socket:
    """Open a socket that becomes readable when some interface of this namespace changes."""
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    events.bind((0, _RTMGRP_LINK))
    events.setblocking(False)
    return events
