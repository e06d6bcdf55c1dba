# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 frames: Ethernet, IPv4, UDP, base transport header (BTH), payload, ICRC.

A frame has a head of 50 bytes (Ethernet up to the destination QP), which changes only when the flow gets
another pin, and a rest: the word with the AckReq bit and the PSN, the payload, and the ICRC. The CRC state
after the head is stored with the head, so each packet needs one CRC call only. Layout: InfiniBand
specification volume 1, section 9.2 and annex A17 (RoCEv2).
"""

from __future__ import annotations

import socket
import struct
from zlib import crc32

from controller.wire.rocev2 import ROCE_PORT

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
ACKNOWLEDGE = 0x11
CNP = 0x81
ACK_REQUEST = 0x8000_0000
PSN_MASK = 0xFF_FFFF
SYNDROME_ACK = 0x1F
"""AETH: positive, no limit of end-to-end credits."""
SYNDROME_NAK_SEQUENCE = 0x60
NOT_ECT, ECT0, CE = 0, 2, 3
HEAD_BYTES = 50
FLAGS_AT = 46
"""Where a frame has FECN, BECN and the reserved bits of the BTH."""
OVERHEAD_BYTES = 14 + 20 + 8 + 12 + 4
"""Bytes of a data frame around its payload: Ethernet, IPv4, UDP, BTH, ICRC."""
BECN = 0x40
"""In the byte before the destination QP of the BTH: set in a CNP (annex A17), and in an acknowledgement that
echoes marks (annex A10)."""
ECHO_REQUEST = 0x01
"""A reserved bit of the same byte: the receiver is to echo marks in acknowledgements, and to send no CNPs.
Our own use, for the congestion controls of TCP (see `hostagent.nic.reno`)."""
_TTL = 64
_DONT_FRAGMENT = 0x4000
_PKEY = 0xFFFF
_ETHERTYPE_IPV4 = 0x0800
_HEAD = struct.Struct(">6s6sH BBHHHBBH4s4s HHHH BBHI")


def ip_bytes(address: str) -> bytes:
    """The four bytes of a dotted IPv4 address. Raises ValueError for anything else."""
    try:
        return socket.inet_pton(socket.AF_INET, address)
    except OSError as error:
        raise ValueError(f"{address!r} is not an IPv4 address such as 10.0.1.2") from error


def mac_bytes(address: str) -> bytes:
    """The six bytes of a MAC address written 02:00:00:00:01:02. Raises ValueError for anything else."""
    parts = address.split(":")
    if len(parts) != 6 or any(len(part) != 2 for part in parts):
        raise ValueError(f"{address!r} is not a MAC address such as 02:00:00:00:01:02")
    return bytes(int(part, 16) for part in parts)


def internet_checksum(header: bytes) -> int:
    """The checksum of an IPv4 header (RFC 1071); 0 for a header with a correct checksum."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def icrc_state(head: bytes) -> int:
    """The CRC state of the ICRC after a frame's head, with the variable fields masked by ones (annex
    A17.3.2).

    Masked are the type of service, TTL and checksum of IPv4, the checksum of UDP, and the reserved byte of
    the BTH with FECN and BECN. Eight bytes of ones replace the missing LRH.
    """
    return crc32(
        b"".join(
            (
                b"\xff" * 8,
                head[14:15],
                b"\xff",
                head[16:22],
                b"\xff",
                head[23:24],
                b"\xff\xff",
                head[26:40],
                b"\xff\xff",
                head[42:46],
                b"\xff",
                head[47:50],
            )
        )
    )


def build_head(
    macs: bytes,
    src_ip: bytes,
    dst_ip: bytes,
    source_port: int,
    dscp: int,
    *,
    ecn: int,
    opcode: int,
    qp: int,
    payload_bytes: int,
    pad: int = 0,
    flags: int = 0,
) -> tuple[bytes, int]:
    """The head of a frame, and the CRC state after it.

    `macs` is destination, then source. `payload_bytes` counts everything between BTH and ICRC, padding
    included. `flags`: BECN or ECHO_REQUEST; a CNP always has BECN.
    """
    udp_bytes = 8 + 12 + payload_bytes + 4
    fields = (macs[:6], macs[6:], _ETHERTYPE_IPV4, 0x45, dscp << 2 | ecn, 20 + udp_bytes, 0, _DONT_FRAGMENT)
    flags |= BECN if opcode == CNP else 0
    rest = (src_ip, dst_ip, source_port, ROCE_PORT, udp_bytes, 0, opcode, pad << 4, _PKEY, flags << 24 | qp)
    bare = _HEAD.pack(*fields, _TTL, socket.IPPROTO_UDP, 0, *rest)
    checksum = internet_checksum(bare[14:34])
    head = bare[:24] + checksum.to_bytes(2, "big") + bare[26:]
    return head, icrc_state(head)


def finish(head: bytes, state: int, word: int, payload: bytes) -> bytes:
    """The whole frame: head, AckReq and PSN, payload, ICRC (least significant byte first)."""
    body = word.to_bytes(4, "big") + payload
    return head + body + crc32(body, state).to_bytes(4, "little")
