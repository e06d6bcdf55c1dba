# SPDX-License-Identifier: Apache-2.0
"""Jobs for the tests of the planner, and a plain walk of the switch tables."""

from __future__ import annotations

import struct
import zlib
from ipaddress import ip_address, ip_network

from controller.model import Flow, Job, Phase, Profile
from controller.routing.forwarding import forwarding
from controller.wire.rocev2 import ROCE_PORT
from topo.graph import Topology

MS = 1_000_000
G = 25_000_000


def job(name: str, hosts: list[str], period: float, up: float, rate: float = 1.0, flops: float = 1e12) -> Job:
    bps = round(G * rate)
    pairs = [(a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts)]
    size = round(bps * up / 1e3 / 8)
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, size) for a, b in pairs)
    profile = Profile(round(period * MS), (Phase(0, round(up * MS), bps),))
    return Job(name, "model", 8 * len(hosts), tuple(hosts), profile, flops, flows)


def walk(topology: Topology, down: frozenset[tuple[str, str]], src: str, dst: str, port: int) -> list[str]:
    """Where a RoCEv2 packet goes, straight from the tables and zlib."""
    tables = forwarding(topology, down)
    a, b = ip_address(topology.host[src].ip), ip_address(topology.host[dst].ip)
    value = zlib.crc32(a.packed + b.packed + struct.pack("!BHH", 17, port, ROCE_PORT))
    path = [src, topology.host[src].leaf]
    while path[-1] != dst:
        table = tables[path[-1]]
        match = max((c for c in table.routes if b in ip_network(c)), key=lambda c: ip_network(c).prefixlen)
        found = table.routes[match]
        hop = found.id
        if found.kind == "group":
            hop = table.groups[found.id][value >> 8 * found.tier & 0xFF]
        path.append(topology.ports[path[-1]][table.next_hops[hop].port].node)
    return path
