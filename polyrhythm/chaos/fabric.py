# SPDX-License-Identifier: Apache-2.0
"""The fabric of `polyrhythm chaos`, as a process: embedded switches that die, links that fail, and probes.

It prints the addresses of its switches as one line of JSON. Each line that it reads is a command (JSON), and
gives one line as its answer. A probe is a RoCEv2 packet of a flow, with the flow's source port and DSCP, that
enters at the source's leaf and should leave to the destination. All flows are probed every PROBE_S.

- A *black hole* is a time without a delivered probe of a flow while a path exists and both leaves live.
- A *loop* is a probe that enters a switch for the second time.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from typing import Any

from bmv2 import EmbeddedSwitch, PortTable
from bmv2.hostloop import HostLoop
from bmv2.server import SwitchServer, serve
from controller.routing.forwarding import pair
from controller.wire.rocev2 import ROCE_PORT
from topo.generate import leaf_spine
from topo.graph import Topology

RATE_BPS = 1_000_000_000
PROBE_S = 0.1
# A probe that has not arrived after this time is lost. Chosen: far above what a busy machine needs.
_LOST_S = 0.5
_MAGIC = b"chaos"
_HEADERS = 14 + 20 + 8 + 12
_TOKEN = struct.Struct("!5sI")
_NICENESS = 10


def topology() -> Topology:
    """A fabric of 2 leaves, 2 spines and 4 hosts."""
    return leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


@dataclass(slots=True)
class ProbedFlow:
    """A flow and since when its probes have been lost (s of the monotonic clock; None: they arrive).

    `longest_s` is the longest black hole since the last report, `delivered` the probes that arrived.
    """

    src: str
    dst: str
    source_port: int
    dscp: int
    lost_since_s: float | None = None
    longest_s: float = 0.0
    delivered: int = 0


@dataclass(slots=True)
class _Probe:
    flow: str
    sent_s: float
    arrived: bool = False
    seen: list[str] = field(default_factory=list)


class ChaosFabric:
    """The switches, their servers, what is down, and the probes. Probes run on the data-plane thread."""

    def __init__(self) -> None:
        self.topology = topology()
        self.loop = HostLoop()
        self.switches: dict[str, EmbeddedSwitch] = {}
        self.servers: dict[str, SwitchServer] = {}
        self.down_links: set[tuple[str, str]] = set()
        self.flows: dict[str, ProbedFlow] = {}
        self.loops: list[str] = []
        self._probes: dict[int, _Probe] = {}
        self._tokens = 0
        for switch in self.topology.switches:
            self._start(switch.name)
        self.loop.call_at(self.loop.now, self._probe)

    def addresses(self) -> dict[str, str]:
        """The addresses of the switches that live."""
        return {name: server.address for name, server in self.servers.items()}

    def command(self, words: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command; returns the answer."""
        what = words["do"]
        if what == "link":
            self.loop.call("chaos", partial(self._set_link, pair(*words["link"]), words["up"]))
        elif what == "stop":
            self.stop(words["switch"])
        elif what == "start":
            self._start(words["switch"])
            self.loop.call("chaos", self._set_ports)
        elif what == "flows":
            self.loop.call("chaos", partial(self._set_flows, words["flows"]))
        report: dict[str, Any] = self.loop.call("chaos", self._report)
        return {"addresses": self.addresses(), **report}

    def stop(self, name: str) -> None:
        """A switch loses power: its sessions end, its tables are gone, its neighbours' ports go down."""
        self.servers.pop(name).stop()
        self.switches.pop(name)
        self.loop.call("chaos", self._set_ports)

    def _start(self, name: str) -> None:
        watch = PortTable("port_state", "set_port_down")
        switch = EmbeddedSwitch(name, self.loop, port_table=watch)
        for port, peer in self.topology.ports[name].items():
            switch.add_port(port, rate_bps=peer.rate_bps, transmit=self._wire(peer.node, peer.port))
        self.switches[name] = switch
        self.servers[name] = serve(switch, self.loop, device_id=self.topology.switch[name].device_id)

    def _wire(self, node: str, port: int) -> Callable[[bytes], None]:
        def carry(frame: bytes) -> None:
            probe = self._probe_of(frame)
            if node in self.topology.host:
                if probe is not None:
                    self._arrived(node, probe)
                return
            switch = self.switches.get(node)
            if switch is None:
                return
            if probe is not None and not self._enters(node, probe):
                return
            switch.receive(port, frame)

        return carry

    def _set_link(self, link: tuple[str, str], up: bool) -> None:
        (self.down_links.discard if up else self.down_links.add)(link)
        self._set_ports()

    def _set_ports(self) -> None:
        """Bring every port to the state of its link and of the switch at the other end."""
        for name, switch in self.switches.items():
            for port, peer in self.topology.ports[name].items():
                lives = peer.node in self.topology.host or peer.node in self.switches
                up = lives and pair(name, peer.node) not in self.down_links
                if switch.ports[port].up != up:
                    switch.set_port_up(port, up)

    def _set_flows(self, flows: dict[str, tuple[str, str, int, int]]) -> None:
        for name in self.flows.keys() - flows.keys():
            del self.flows[name]
        for name, (src, dst, source_port, dscp) in flows.items():
            known = self.flows.setdefault(name, ProbedFlow(src, dst, source_port, dscp))
            known.source_port, known.dscp = source_port, dscp

    def _report(self) -> dict[str, Any]:
        now = time.monotonic()
        holes = {}
        delivered = {}
        for name, flow in self.flows.items():
            holes[name] = max(
                flow.longest_s, now - flow.lost_since_s if flow.lost_since_s is not None else 0.0
            )
            delivered[name] = flow.delivered
            flow.longest_s, flow.delivered = 0.0, 0
        loops, self.loops = self.loops, []
        lost = [name for name, flow in self.flows.items() if flow.lost_since_s is not None]
        return {"holes_s": holes, "delivered": delivered, "loops": loops, "lost": lost}

    # Probes, on the data-plane thread.

    def _probe(self) -> None:
        self.loop.call_at(self.loop.now + int(PROBE_S * 1e9), self._probe)
        now = time.monotonic()
        for token, probe in list(self._probes.items()):
            if now - probe.sent_s < _LOST_S:
                break
            del self._probes[token]
            flow = self.flows.get(probe.flow)
            if flow is None or probe.arrived:
                continue
            if flow.lost_since_s is None and self._connected(flow):
                flow.lost_since_s = probe.sent_s
        for name, flow in self.flows.items():
            if not self._connected(flow):
                flow.lost_since_s = None
                continue
            self._tokens = (self._tokens + 1) & 0xFFFFFFFF
            self._probes[self._tokens] = probe = _Probe(name, now)
            src = self.topology.host[flow.src]
            if self._enters(src.leaf, probe):
                self.switches[src.leaf].receive(src.leaf_port, self._frame(flow, self._tokens))

    def _connected(self, flow: ProbedFlow) -> bool:
        """Whether a path exists and both leaves live."""
        a, b = (self.topology.host[host].leaf for host in (flow.src, flow.dst))
        if a not in self.switches or b not in self.switches:
            return False
        spines = self.switches.keys() - self.topology.prefixes.keys()
        return a == b or any(
            pair(a, spine) not in self.down_links and pair(b, spine) not in self.down_links
            for spine in spines
        )

    def _probe_of(self, frame: bytes) -> _Probe | None:
        if len(frame) < _HEADERS + _TOKEN.size:
            return None
        magic, token = _TOKEN.unpack_from(frame, _HEADERS)
        return self._probes.get(token) if magic == _MAGIC else None

    def _enters(self, node: str, probe: _Probe) -> bool:
        """A probe enters a switch; False if it was there before, and goes no further."""
        if node in probe.seen:
            self.loops.append(f"{probe.flow}: {' '.join((*probe.seen, node))}")
            return False
        probe.seen.append(node)
        return True

    def _arrived(self, host: str, probe: _Probe) -> None:
        flow = self.flows.get(probe.flow)
        if flow is None or flow.dst != host:
            return
        probe.arrived = True
        flow.delivered += 1
        if flow.lost_since_s is not None and probe.sent_s > flow.lost_since_s:
            flow.longest_s = max(flow.longest_s, time.monotonic() - flow.lost_since_s)
            flow.lost_since_s = None

    def _frame(self, flow: ProbedFlow, token: int) -> bytes:
        src, dst = self.topology.host[flow.src], self.topology.host[flow.dst]
        body = bytes(12) + _TOKEN.pack(_MAGIC, token) + bytes(7)
        udp = struct.pack("!HHHH", flow.source_port, ROCE_PORT, 8 + len(body), 0) + body
        total = 20 + len(udp)
        ends = IPv4Address(src.ip).packed + IPv4Address(dst.ip).packed
        head = struct.pack("!BBHHHBBH", 0x45, flow.dscp << 2, total, 0, 0, 64, 17, 0) + ends
        words = sum(struct.unpack("!10H", head))
        words = (words & 0xFFFF) + (words >> 16)
        checksum = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
        head = head[:10] + checksum.to_bytes(2) + head[12:]
        leaf = self.topology.switch[src.leaf]
        macs = bytes.fromhex(leaf.mac.replace(":", "")) + bytes.fromhex(src.mac.replace(":", ""))
        frame: bytes = macs + b"\x08\x00" + head + udp
        return frame


def main() -> None:
    """Serve until the input is closed."""
    # The switches stand for other machines.
    os.nice(_NICENESS)
    fabric = ChaosFabric()
    threading.Thread(target=fabric.loop.run, daemon=True).start()
    print(json.dumps(fabric.addresses()), flush=True)
    for line in sys.stdin:
        print(json.dumps(fabric.command(json.loads(line))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
