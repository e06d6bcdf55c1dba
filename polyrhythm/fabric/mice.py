# SPDX-License-Identifier: Apache-2.0
"""Background flows below the elephant threshold: short messages between random pairs of hosts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from hostagent.host import EmulatedHost
from hostagent.nic.driver import ReceiveQueue, SendQueue
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.scenario import Scenario
from polyrhythm.scenario.build import Mice
from topo.addresses import is_ipv6

# How long a receiving end outlives its flow: it acknowledges again what the sender retransmits. Chosen: as
# for the flows of jobs (hostagent/agent.py).
LINGER_NS = 1_000_000_000

# The first part of the flows' names, where the flows of jobs have the name of their job. No job can have this
# name.
OWNER = ".mice"


class BackgroundMice:
    """Starts flows at each host at random times (a Poisson process), from `start_ns` on, without end.

    Each flow goes to a random host that the fabric connects, from a random source port, in the class that the
    host's agent uses for mice. `seed` decides all draws. `started` counts the flows.
    """

    def __init__(
        self,
        scenario: Scenario,
        mice: Mice,
        hosts: Mapping[str, EmulatedHost],
        heap: EventHeap,
        *,
        start_ns: int,
        seed: int,
    ) -> None:
        self.started = 0
        self._hosts = hosts
        self._heap = heap
        self._size = mice.size
        topology = scenario.topology
        self._ip = {host.name: host.ip for host in topology.hosts}
        part = {host.name: topology.part[host.leaf] for host in topology.hosts}
        family = {host.name: is_ipv6(host.ip) for host in topology.hosts}
        packets = math.ceil(mice.size / scenario.packet_bytes)
        wire_bits = 8 * (mice.size + packets * (scenario.frame_bytes - scenario.packet_bytes))
        self._mean_gap_ns: dict[str, float] = {}
        self._peers: dict[str, list[str]] = {}
        self._random: dict[str, Random] = {}
        for host in topology.hosts:
            name = host.name
            peers = [
                peer
                for peer in part
                if peer != name and part[peer] == part[name] and family[peer] == family[name]
            ]
            if peers:
                self._peers[name] = peers
                self._random[name] = Random(f"{seed}/mice/{name}")
                self._mean_gap_ns[name] = wire_bits * 1e9 / (mice.load * host.rate_bps)
                self._next(name, start_ns)

    def _next(self, src: str, after_ns: int) -> None:
        gap = self._random[src].expovariate(1 / self._mean_gap_ns[src])
        self._heap.call_at(after_ns + round(gap), self._open, src)

    def _open(self, src: str) -> None:
        draw = self._random[src]
        dst = draw.choice(self._peers[src])
        port = draw.randrange(ROCE_SOURCE_PORTS.start, ROCE_SOURCE_PORTS.stop)
        self.started += 1
        flow = f"{OWNER}/{src}>{dst}/{self.started}"
        self._next(src, self._heap.now)
        host = self._hosts[src]
        try:
            send = host.nic.open_qp(flow, self._ip[dst], port, host.agent.settings.mice_dscp)
        except ValueError:
            # The queue-pair number, a hash of the name, belongs to a flow that is open.
            return
        try:
            receive = self._hosts[dst].nic.listen(flow, self._ip[src], _unheeded)
        except ValueError:
            send.close()
            return
        send.post(self._size, lambda: self._heap.call_at(self._heap.now, self._close, send, receive))

    def _close(self, send: SendQueue, receive: ReceiveQueue) -> None:
        send.close()
        self._heap.call_at(self._heap.now + LINGER_NS, receive.close)


def _unheeded(queue: ReceiveQueue, size: int) -> None:
    """Bytes of a mouse have arrived: nothing waits for them."""
