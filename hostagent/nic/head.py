# SPDX-License-Identifier: Apache-2.0
"""The head of a received RoCEv2 frame: what the NIC reads of it, and which frames it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.wire.rocev2 import ROCE_PORT
from hostagent.nic.roce import (
    CE,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    FLAGS_AT,
    HEAD_BYTES,
    IPV6_EXTRA,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    icrc_state,
    internet_checksum,
)

if TYPE_CHECKING:
    from hostagent.nic.requester import Requester
    from hostagent.nic.responder import Responder

DATA_OPCODES = (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY)
_UDP = 17
_ROCE_PORT = ROCE_PORT.to_bytes(2, "big")
_LEAST_BYTES = 62
"""The shortest frame over IPv4: a head, the word with the PSN, an AETH and the ICRC."""


class BadFrameError(Exception):
    """A frame that is damaged, or no IP packet."""


class StrayFrameError(Exception):
    """A frame for another host or address family, or one that is not RoCEv2."""


class Head:
    """The meaning of the head of a frame, parsed once.

    `end` is where the ICRC begins, `state` the CRC state after the head, `size` the bytes of payload without
    padding. `flags` are FECN, BECN and the reserved bits of the BTH. `number` is the queue pair that it is
    for, `src` the sender's address. `requester` or `responder` is that queue pair.
    """

    __slots__ = (
        *("end", "flags", "marked", "number", "opcode"),
        *("requester", "responder", "size", "src", "state"),
    )

    def __init__(
        self, end: int, state: int, opcode: int, marked: bool, flags: int, size: int, number: int, src: bytes
    ) -> None:
        self.end = end
        self.state = state
        self.opcode = opcode
        self.marked = marked
        self.flags = flags
        self.size = size
        self.number = number
        self.src = src
        self.requester: Requester | None = None
        self.responder: Responder | None = None


def read_head(frame: bytes, mac: bytes, ip: bytes) -> Head:
    """Parse the head of a frame for the NIC with these addresses.

    Raises:
        BadFrameError: too short, no IP, IPv4 options, or a wrong IPv4 checksum.
        StrayFrameError: not for this NIC.
    """
    extra = IPV6_EXTRA if len(ip) == 16 else 0
    if frame[12:14] == (ETHERTYPE_IPV4 if extra else ETHERTYPE_IPV6):
        raise StrayFrameError
    if len(frame) < _LEAST_BYTES + extra:
        raise BadFrameError
    if extra:
        sound = frame[12:14] == ETHERTYPE_IPV6 and frame[14] >> 4 == 6
        protocol, src, dst = frame[20], frame[22:38], frame[38:54]
        end = 54 + int.from_bytes(frame[18:20], "big") - 4
        marked = frame[15] >> 4 & 3 == CE
    else:
        sound = frame[12:15] == ETHERTYPE_IPV4 + b"\x45" and not internet_checksum(frame[14:34])
        protocol, src, dst = frame[23], frame[26:30], frame[30:34]
        end = 14 + int.from_bytes(frame[16:18], "big") - 4
        marked = frame[15] & 3 == CE
    if not sound:
        raise BadFrameError
    port = frame[36 + extra : 38 + extra]
    if frame[:6] != mac or protocol != _UDP or dst != ip or port != _ROCE_PORT:
        raise StrayFrameError
    opcode = frame[42 + extra]
    pad = frame[43 + extra] >> 4 & 3
    size = end - HEAD_BYTES - extra - 4 - pad
    number = int.from_bytes(frame[47 + extra : 50 + extra], "big")
    return Head(end, icrc_state(frame), opcode, marked, frame[FLAGS_AT + extra], size, number, src)
