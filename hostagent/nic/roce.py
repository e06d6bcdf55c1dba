# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 frames: Ethernet, IPv4 or IPv6, UDP, base transport header (BTH), payload, ICRC.

A frame has a head of 50 bytes, or 70 with IPv6 (Ethernet up to the destination QP), which changes only when
the flow gets another pin, and a rest: the word with the AckReq bit and the PSN, the payload, and the ICRC.
The CRC state after the head is stored with the head, so each packet needs one CRC call only. Layout:
InfiniBand specification volume 1, section 9.2 and annex A17 (RoCEv2).
"""

from __future__ import annotations

import socket
import struct
from zlib import crc32

from controller.wire.rocev2 import ROCE_PORT, ROCE_SOURCE_PORTS

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
ACKNOWLEDGE = 0x11
CNP = 0x81
ACK_REQUEST = 0x8000_0000
PSN_MASK = 0xFF_FFFF
SYNDROME_ACK = 0x1F
"""AETH: positive, no limit of end-to-end credits."""
SYNDROME_NAK_SEQUENCE = 0x60
SYNDROME_MISSING = 0x40
"""Of a reserved kind, our own use: all packets before the PSN have arrived and this one has not, as in a NAK;
the MSN field holds the next PSN that has arrived. Nothing is to be sent again for this alone."""
NOT_ECT, ECT0, CE = 0, 2, 3
HEAD_BYTES = 50
FLAGS_AT = 46
"""Where a frame has FECN, BECN and the reserved bits of the BTH."""
OVERHEAD_BYTES = 14 + 20 + 8 + 12 + 4
"""Bytes of a data frame around its payload: Ethernet, IPv4, UDP, BTH, ICRC."""
IPV6_EXTRA = 20
"""So many bytes longer is the header of IPv6: all that follows stands so much further on."""
ETHERTYPE_IPV4 = b"\x08\x00"
ETHERTYPE_IPV6 = b"\x86\xdd"
BECN = 0x40
"""In the byte before the destination QP of the BTH: set in a CNP (annex A17), and in an acknowledgement that
echoes marks (annex A10)."""
ECHO_REQUEST = 0x01
"""A reserved bit of the same byte: the receiver is to echo marks in acknowledgements, and to send no CNPs.
Our own use, for the congestion controls of TCP (see `hostagent.nic.reno`)."""
ANY_ORDER = 0x02
"""Another reserved bit of it: the sender repeats single packets, so the receiver may take packets in any
order and answer with SYNDROME_MISSING. Our own use: real NICs agree on this when they connect."""
_TTL = 64
_DONT_FRAGMENT = 0x4000
_PKEY = 0xFFFF
_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_IPV6 = struct.Struct(">IHBB16s16s")
_UDP_BTH = struct.Struct(">HHHH BBHI")


def ip_bytes(address: str) -> bytes:
    """The 4 or 16 bytes of an IPv4 or IPv6 address. Raises ValueError for anything else."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.inet_pton(family, address)
    except OSError as error:
        raise ValueError(f"{address!r} is not an address such as 10.0.1.2 or fd00::1:2") from error


def overhead_bytes(address: str) -> int:
    """Bytes of a data frame from this address around its payload."""
    return OVERHEAD_BYTES + (IPV6_EXTRA if ":" in address else 0)


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

    Masked are the type of service, TTL and checksum of IPv4, or the traffic class, flow label and hop limit
    of IPv6, the checksum of UDP, and the reserved byte of the BTH with FECN and BECN. Eight bytes of ones
    replace the missing LRH.
    """
    if head[12:14] == ETHERTYPE_IPV6:
        ip: tuple[bytes, ...] = (b"\x6f\xff\xff\xff", head[18:21], b"\xff", head[22:54])
        rest = head[54:70]
    else:
        ip = (head[14:15], b"\xff", head[16:22], b"\xff", head[23:24], b"\xff\xff", head[26:34])
        rest = head[34:50]
    masked = (b"\xff" * 8, *ip, rest[:6], b"\xff\xff", rest[8:12], b"\xff", rest[13:])
    return crc32(b"".join(masked))


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

    `macs` is destination, then source. The addresses have 4 bytes each, or 16. `payload_bytes` counts
    everything between BTH and ICRC, padding included. `flags`: BECN or ECHO_REQUEST; a CNP always has BECN.
    """
    udp_bytes = 8 + 12 + payload_bytes + 4
    flags |= BECN if opcode == CNP else 0
    ip = ip_head(src_ip, dst_ip, socket.IPPROTO_UDP, dscp << 2 | ecn, udp_bytes)
    head = (
        macs
        + ip
        + _UDP_BTH.pack(source_port, ROCE_PORT, udp_bytes, 0, opcode, pad << 4, _PKEY, flags << 24 | qp)
    )
    return head, icrc_state(head)


def ip_head(src_ip: bytes, dst_ip: bytes, protocol: int, traffic_class: int, payload_bytes: int) -> bytes:
    """The type of an Ethernet frame and the IP header behind it, of the family of the addresses.

    `traffic_class` is DSCP and ECN. `payload_bytes` follow the IP header.
    """
    if len(src_ip) == 16:
        word = 6 << 28 | traffic_class << 20
        return ETHERTYPE_IPV6 + _IPV6.pack(word, payload_bytes, protocol, _TTL, src_ip, dst_ip)
    fields = (0x45, traffic_class, _IPV4.size + payload_bytes, 0, _DONT_FRAGMENT, _TTL, protocol)
    checksum = internet_checksum(_IPV4.pack(*fields, 0, src_ip, dst_ip))
    return ETHERTYPE_IPV4 + _IPV4.pack(*fields, checksum, src_ip, dst_ip)


def finish(head: bytes, state: int, word: int, payload: bytes) -> bytes:
    """The whole frame: head, AckReq and PSN, payload, ICRC (least significant byte first)."""
    body = word.to_bytes(4, "big") + payload
    return head + body + crc32(body, state).to_bytes(4, "little")


def check_pin(flow: str, source_port: int, dscp: int) -> None:
    """Raise ValueError unless the source port is RoCEv2's and the DSCP has six bits."""
    if source_port not in ROCE_SOURCE_PORTS:
        raise ValueError(f"flow {flow}: source port {source_port} is outside 49152-65535")
    if not 0 <= dscp <= 63:
        raise ValueError(f"flow {flow}: DSCP {dscp} is outside 0-63")
