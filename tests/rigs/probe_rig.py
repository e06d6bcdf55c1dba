# SPDX-License-Identifier: Apache-2.0
"""What switches do to INT probes."""

import struct

from topo.graph import Topology


def push(frame: bytes, node: int) -> bytes:
    """What a switch does to a probe: 32 bytes right behind the MD header, and the shim's length."""
    start = 14 + (20 if frame[12:14] == b"\x08\x00" else 40) + 8
    at = start + 4 + 12
    hop = struct.pack("!IHHIIQQ", node, 1, 2, 30, (7 << 24) | 4, 0, 0)
    shim = bytearray(frame[start : start + 4])
    shim[1] += 8
    return frame[:start] + bytes(shim) + frame[start + 4 : at] + hop + frame[at:]


def travel(topology: Topology, frame: bytes, *names: str) -> bytes:
    """A probe that has passed these switches."""
    for name in names:
        frame = push(frame, topology.switch[name].device_id)
    return frame
