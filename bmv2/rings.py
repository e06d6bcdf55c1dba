# SPDX-License-Identifier: Apache-2.0
"""Receive frames from an AF_PACKET socket without a system call per frame, by the kernel's ring in shared
memory.

The ring is the kernel's TPACKET_V2: slots of one size, each with a header that says who owns it. A frame too
long for a slot also waits in the socket and is read from there.
"""

from __future__ import annotations

import mmap
import socket
import struct

_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_COPY_THRESH = 7
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_STATUS_USER = 0x1
_STATUS_COPY = 0x2
_STATUS_VLAN_VALID = 0x10
_STATUS_TPID_VALID = 0x40
_DOT1Q = 0x8100
_PACKET_OUTGOING = 4
_SLOT = 2048
_BLOCK = 1 << 16
_BLOCKS = 32
_SLOTS = _BLOCKS * _BLOCK // _SLOT
_MAX_FRAME = 65536
# Where the socket's address begins behind the slot's header, and in it the kind of packet.
_KIND = 32 + 10
# Status, length of the frame, length in the slot, where the frame begins; the VLAN tag taken out of it.
_HEADER = struct.Struct("=IIIH")
_VLAN = struct.Struct("=HH")
_VLAN_AT = 24


class ReceiveRing:
    """The ring of one socket that is not bound yet; OSError where the kernel does not give one."""

    def __init__(self, source: socket.socket) -> None:
        self._socket = source
        source.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        source.setsockopt(_SOL_PACKET, _PACKET_COPY_THRESH, 1)
        request = struct.pack("IIII", _BLOCK, _BLOCKS, _SLOT, _SLOTS)
        source.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self._memory = mmap.mmap(source.fileno(), _BLOCKS * _BLOCK)
        # One word a slot would do; words of four bytes over all make the status a plain index.
        self._words = memoryview(self._memory).cast("I")
        self._step = _SLOT // 4
        self._slot = 0

    def next(self) -> bytes | None:
        """The next frame that came in, as it was on the wire; None if there is none, or it is one we sent."""
        word = self._slot * self._step
        status = self._words[word]
        if not status & _STATUS_USER:
            return None
        start = word * 4
        memory = self._memory
        _, length, kept, begin = _HEADER.unpack_from(memory, start)
        frame: bytes | None
        if kept == length:
            frame = memory[start + begin : start + begin + length]
        elif status & _STATUS_COPY:
            frame = self._socket.recv(_MAX_FRAME)
        else:
            # The socket's buffer was full too: the frame is lost, as it would be on a wire too fast.
            frame = None
        if frame is not None and status & _STATUS_VLAN_VALID:
            tag, protocol = _VLAN.unpack_from(memory, start + _VLAN_AT)
            protocol = protocol if status & _STATUS_TPID_VALID else _DOT1Q
            frame = frame[:12] + protocol.to_bytes(2) + tag.to_bytes(2) + frame[12:]
        if memory[start + _KIND] == _PACKET_OUTGOING:
            frame = None
        self._words[word] = 0
        self._slot = (self._slot + 1) % _SLOTS
        return frame

    def close(self) -> None:
        """Give the memory back."""
        self._words.release()
        self._memory.close()
