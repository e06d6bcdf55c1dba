# SPDX-License-Identifier: Apache-2.0
"""The traffic of the switch bench: RoCEv2 packets of many flows, and entries that spread them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from bmv2.calculations import csum16
from bmv2.entries import Exact, Lpm, Range, TableEntry
from controller.wire.rocev2 import ROCE_PORT

FLOWS = 256
DSCP = 10
QUEUE = 3
_GROUP = 1
_HEADERS = 20 + 8 + 12


def frames(payload: int) -> list[bytes]:
    """One RoCEv2 frame of each flow, ECN-capable, with this many bytes after its BTH."""
    head = struct.pack(
        "!BBHHHBBHII",
        0x45,
        DSCP << 2 | 2,
        _HEADERS + payload,
        1,
        0x4000,
        64,
        17,
        0,
        0x0A000001,
        0x0A000102,
    )
    head = head[:10] + csum16(head).to_bytes(2) + head[12:]
    ethernet = bytes.fromhex("0200000000fe0200000000fd0800")
    return [
        ethernet
        + head
        + struct.pack("!HHHH", 0xC000 + flow, ROCE_PORT, 8 + 12 + payload, 0)
        + bytes(12 + payload)
        for flow in range(FLOWS)
    ]


def entries(ports: list[int]) -> Iterator[tuple[str, TableEntry]]:
    """The (table, entry) pairs that spread all flows over the ports and mark by queue depth."""
    yield "routing", TableEntry((Lpm(0x0A000000, 8),), 0, "set_ecmp_group_tier0", (_GROUP,))
    for bucket in range(256):
        hop = 1 + bucket % len(ports)
        yield "ecmp", TableEntry((Exact(_GROUP), Exact(bucket)), 0, "set_next_hop", (hop,))
    for number, port in enumerate(ports):
        macs = (0x020000000000 + port, 0x040000000000 + port)
        yield "next_hop", TableEntry((Exact(1 + number),), 0, "forward", (port, *macs))
    yield "queue", TableEntry((Exact(DSCP),), 0, "set_queue", (QUEUE,))
    yield "ecn", TableEntry((Exact(QUEUE), Range(64, 256)), 1, "set_mark_probability", (0x4000,))
