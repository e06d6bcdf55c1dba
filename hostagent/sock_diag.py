# SPDX-License-Identifier: Apache-2.0
"""The open TCP and UDP sockets of this network namespace, from the kernel (netlink, sock_diag(7))."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48s")
_MESSAGE = struct.Struct("=BBBx2s2s16s16s4x8xIIIII")
_ATTRIBUTE = struct.Struct("=HH")
_INET_DIAG_INFO, _INET_DIAG_TOS, _INET_DIAG_TCLASS = 2, 5, 6
_EXTENSIONS = sum(1 << (kind - 1) for kind in (_INET_DIAG_INFO, _INET_DIAG_TOS, _INET_DIAG_TCLASS))
_BYTES_ACKED_AT = 120
"""Where tcp_info has tcpi_bytes_acked (linux/tcp.h); tcpi_bytes_received follows."""
_PATIENCE_S = 1.0
_ANSWER_BYTES = 1 << 16

ESTABLISHED, SYN_SENT, SYN_RECEIVED, CLOSE_WAIT = 1, 2, 3, 8
_OPEN_STATES = ESTABLISHED, SYN_SENT, SYN_RECEIVED, CLOSE_WAIT
FAMILIES = socket.AF_INET, socket.AF_INET6


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A connected socket. Addresses as text, IPv4 also where an IPv6 socket has it. `bytes_sent` are those
    that the peer has acknowledged, `bytes_received` those that arrived; both 0 for UDP. `dscp` is what its
    packets carry."""

    protocol: int
    local: tuple[str, int]
    peer: tuple[str, int]
    user: int
    inode: int
    bytes_sent: int
    bytes_received: int
    dscp: int = 0


def open_sockets(protocol: int) -> Iterator[OpenSocket]:
    """The connected sockets of a protocol (IPPROTO_TCP or IPPROTO_UDP). Raises OSError."""
    for family in FAMILIES:
        try:
            yield from _dump(family, protocol)
        except OSError as error:
            # A kernel without IPv6, or without the module for UDP.
            if error.errno not in (errno.ENOENT, errno.EOPNOTSUPP):
                raise


def _dump(family: int, protocol: int) -> Iterator[OpenSocket]:
    states = sum(1 << state for state in _OPEN_STATES)
    request = _REQUEST.pack(family, protocol, _EXTENSIONS, states, bytes(48))
    header = _HEADER.pack(
        _HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as made:
        made.settimeout(_PATIENCE_S)
        made.send(header + request)
        while True:
            answer = memoryview(made.recv(_ANSWER_BYTES))
            at = 0
            while at + _HEADER.size <= len(answer):
                length, kind, *_ = _HEADER.unpack_from(answer, at)
                body = answer[at + _HEADER.size : at + length]
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    raise OSError(code, os.strerror(code))
                yield _socket(protocol, body)
                at += -(-length // 4) * 4


def _socket(protocol: int, body: memoryview) -> OpenSocket:
    family, _, _, own_port, peer_port, own, peer, *_, user, inode = _MESSAGE.unpack_from(body)
    ends = ((own, own_port), (peer, peer_port))
    local, other = ((_text(family, a), int.from_bytes(p, "big")) for a, p in ends)
    # An IPv6 socket with an IPv4 peer sends with the class of IPv4.
    its_class = _INET_DIAG_TCLASS if ":" in local[0] else _INET_DIAG_TOS
    sent = received = dscp = 0
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        value = body[at + _ATTRIBUTE.size : at + length]
        if kind == _INET_DIAG_INFO and len(value) >= _BYTES_ACKED_AT + 16:
            sent, received = struct.unpack_from("=QQ", value, _BYTES_ACKED_AT)
        elif kind == its_class and value:
            dscp = value[0] >> 2
        at += max(_ATTRIBUTE.size, -(-length // 4) * 4)
    return OpenSocket(protocol, local, other, user, inode, sent, received, dscp)


def _text(family: int, address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET, address[:4]) if family == socket.AF_INET else plain(address)


def plain(address: bytes | str) -> str:
    """An IPv6 address as text; an IPv4-mapped one as IPv4. Raises ValueError if it is none."""
    found = IPv6Address(address)
    return str(found.ipv4_mapped or found)
