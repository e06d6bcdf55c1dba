# SPDX-License-Identifier: Apache-2.0
"""Emulated hosts on one switch, and their training jobs."""

from __future__ import annotations

from collections.abc import Callable

from host_bench import FRAME, HOP_NS, MS, RATE, Bench, EventHeap, OutPort

from controller.wire import agent_pb2 as pb
from hostagent.host import EmulatedHost
from hostagent.job import IterationRecord, JobSpec, PhaseSpec
from hostagent.phase_barrier import PhaseBarrier

NAMES = tuple(f"h{i}" for i in range(4))
WELCOME = pb.ControllerMessage(
    welcome=pb.Welcome(
        policy="ecmp", cnp_dscp=48, ack_dscp=48, equal_dscp=16, mice_dscp=2,
        elephant_bytes=100_000, answer_deadline_ns=10 * MS,
    )
)  # fmt: skip


def up(ms: float, nominal: int = 50) -> int:
    """Payload bytes that take `ms` at `nominal` of 50 Gbit/s."""
    return int(RATE * nominal / 50 * ms / 1000 / 8 / FRAME) * 1024


def job(
    name: str = "a",
    hosts: tuple[str, ...] = ("h0", "h1"),
    up_ms: float = 120,
    down_ms: float = 140,
    cap: int = 0,
) -> JobSpec:
    ring = tuple((src, hosts[(i + 1) % len(hosts)]) for i, src in enumerate(hosts))
    phase = PhaseSpec(int(up_ms * MS), up(up_ms), cap, int(down_ms * MS))
    return JobSpec(name, "VGG19", len(hosts), hosts, ring, (phase,), 1e12)


class Cluster:
    """Hosts on one switch; data from h0 and h1 to h2 and h3 shares a trunk. What agents say is kept."""

    def __init__(self, seed: int = 3, **nic: bool) -> None:
        self.heap = EventHeap()
        self.said: list[tuple[int, str, pb.AgentMessage]] = []
        self.down: dict[bytes, OutPort] = {}
        self.hosts: dict[str, EmulatedHost] = {}
        addresses = {name: Bench.ip(i) for i, name in enumerate(NAMES)}
        self.trunk = OutPort(self.heap, RATE, self.to_host)
        for i, name in enumerate(NAMES):
            host = EmulatedHost(
                name, Bench.ip(i), Bench.mac(i), Bench.mac(9), RATE,
                clock=self.heap, transmit=self.hop, send=self.hear(name), addresses=addresses, seed=seed, **nic,
            )  # fmt: skip
            self.hosts[name] = host
            self.down[host.nic.ip] = OutPort(self.heap, RATE, self.last_hop(host))

    def hear(self, name: str) -> Callable[[pb.AgentMessage], None]:
        return lambda message: self.said.append((self.heap.now, name, message))

    def last_hop(self, host: EmulatedHost) -> Callable[[bytes], None]:
        macs = host.nic.macs[6:] + host.nic.macs[:6]
        return lambda f: self.heap.call_at(self.heap.now + HOP_NS, host.receive, macs + f[12:])

    def hop(self, frame: bytes) -> None:
        trunk = frame[29] <= 2 < frame[33]
        target = self.trunk.enqueue if trunk else self.to_host
        self.heap.call_at(self.heap.now + HOP_NS, target, frame)

    def to_host(self, frame: bytes) -> None:
        self.down[frame[30:34]].enqueue(frame)

    def run_job(
        self, spec: JobSpec, start_ms: float, iterations: int, jitter_ns: int = 0, *, apart: bool = False
    ) -> None:
        """Run a job whose workers share a barrier, or know of each other only by their bytes (`apart`)."""
        barrier = None if apart else PhaseBarrier(spec)
        for rank, name in enumerate(spec.hosts):
            self.hosts[name].add_worker(
                spec, rank, int(start_ms * MS), iterations, start_jitter_ns=jitter_ns, barrier=barrier
            )

    def records(self, name: str, job: str) -> list[IterationRecord]:
        return [r for r in self.hosts[name].records if r.job == job]

    def connect(self) -> None:
        for host in self.hosts.values():
            host.agent.session_up()
            host.agent.on_message(WELCOME)

    def bodies(self, name: str, kind: str) -> list[tuple[int, pb.AgentMessage]]:
        return [(at, m) for at, who, m in self.said if who == name and m.WhichOneof("body") == kind]
