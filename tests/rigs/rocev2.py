# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 frames into and out of a small fabric of served switches."""

import asyncio
import struct
from functools import partial
from ipaddress import IPv4Address

from control_rig import PATIENCE_S

from controller.wire.rocev2 import ROCE_PORT


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def internet_checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


# Bytes behind the BTH, ICRC included, of the packets that have one length: acknowledgements and CNPs.
LENGTHS = {0x11: 4 + 4, 0x81: 16 + 4}


def roce(topology, src, dst, sport, dscp, opcode):
    """A RoCEv2 frame from one host to another."""
    a, b = topology.host[src], topology.host[dst]
    body = bytes([opcode]) + bytes(11) + (b"payload!" * 8)[: LENGTHS.get(opcode)]
    ip = struct.pack(
        "!BBHHHBBH4s4s",
        0x45, dscp << 2, 28 + len(body), 0, 0, 64, 17, 0,
        IPv4Address(a.ip).packed, IPv4Address(b.ip).packed,
    )  # fmt: skip
    ip = ip[:10] + struct.pack("!H", internet_checksum(ip)) + ip[12:]
    udp = struct.pack("!HHHH", sport, ROCE_PORT, 8 + len(body), 0)
    return mac(topology.switch[a.leaf].mac) + mac(a.mac) + b"\x08\x00" + ip + udp + body


async def from_host(fabric, host, frame):
    """Let a host's NIC send a frame."""
    place = fabric.topology.host[host]
    receive = partial(fabric.switches[place.leaf].receive, place.leaf_port, frame)
    await asyncio.to_thread(fabric.on_data_plane, receive)


async def at_host(fabric):
    """The next frame that reaches a host."""
    return await asyncio.to_thread(fabric.to_hosts.get, timeout=PATIENCE_S)
