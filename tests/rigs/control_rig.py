# SPDX-License-Identifier: Apache-2.0
"""A small fabric of served switches, agents by hand, and the controller as a real process."""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r_grpc

from bmv2 import EmbeddedSwitch
from bmv2.hostloop import HostLoop
from bmv2.server import SwitchServer, serve
from bmv2.server.p4runtime import P4RuntimeService
from bmv2.server.seats import Seats
from controller.model.job import Flow, Job, Phase, Profile
from controller.southbound.artefacts import Artefacts, load_artefacts
from controller.wire import agent_pb2 as wire
from controller.wire import agent_pb2_grpc as wire_grpc
from topo.generate import leaf_spine
from topo.graph import Topology
from topo.jsonio import topology_to_json

PATIENCE_S = 120.0
RATE_BPS = 100_000_000


def eventually(condition: Callable[[], Any], what: str = "condition", patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `condition()`; a failure if none comes."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"never came true: {what}")


# grpc.aio stays bound to the first loop it meets: all tests of a process share one.
_LOOP = asyncio.new_event_loop()


def on_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return _LOOP.run_until_complete(work)


@dataclass
class HostFabric:
    """Embedded switches on the host's clock, wired by the topology and served on real ports."""

    topology: Topology
    loop: HostLoop
    switches: dict[str, EmbeddedSwitch]
    servers: dict[str, SwitchServer]
    to_hosts: queue.SimpleQueue[tuple[str, bytes]] = field(default_factory=queue.SimpleQueue)

    def on_data_plane(self, function: Callable[[], Any]) -> Any:
        return self.loop.call("test", function)

    def description(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": "test",
            "clock": "host",
            "control_delay_ns": 0,
            "topology": topology_to_json(self.topology),
            "switches": {
                s.name: {"address": self.servers[s.name].address, "device_id": s.device_id}
                for s in self.topology.switches
            },
            "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
            **changes,
        }


def wire_up(
    topology: Topology, switches: dict[str, EmbeddedSwitch], sink: Callable[[str, bytes], None]
) -> None:
    """Connect the switches' ports by the topology; what goes to hosts goes to `sink`."""

    def transmit(node: str, port: int) -> Callable[[bytes], None]:
        if node in switches:
            return lambda frame: switches[node].receive(port, frame)
        return lambda frame: sink(node, frame)

    for name, switch in switches.items():
        for port, peer in topology.ports[name].items():
            switch.add_port(port, rate_bps=peer.rate_bps, transmit=transmit(peer.node, peer.port))


@pytest.fixture(scope="session")
def artefacts() -> Artefacts:
    return load_artefacts()


@pytest.fixture
def topology() -> Topology:
    return leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


@contextmanager
def running(
    topology: Topology,
    open_server: Callable[..., Any],
    make: Callable[..., EmbeddedSwitch] = EmbeddedSwitch,
) -> Iterator[HostFabric]:
    """A fabric of `make(name, loop)` switches, served by `open_server(switch, loop, device_id=...)`."""
    loop = HostLoop()
    switches = {s.name: make(s.name, loop) for s in topology.switches}
    servers = {s.name: open_server(switches[s.name], loop, device_id=s.device_id) for s in topology.switches}
    rig = HostFabric(topology, loop, switches, servers)
    wire_up(topology, switches, lambda node, frame: rig.to_hosts.put((node, frame)))
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    yield rig
    for server in rig.servers.values():
        server.stop()
    loop.stop()
    thread.join(PATIENCE_S)
    loop.close()


class SilentServer:
    """P4Runtime alone, as where a target has no gNMI."""

    service_class = P4RuntimeService

    def __init__(self, switch: EmbeddedSwitch, loop: HostLoop, *, device_id: int) -> None:
        self._server = grpc.server(ThreadPoolExecutor(16))
        self.service = self.service_class(switch, loop, device_id, 0.0, Seats(16))
        p4r_grpc.add_P4RuntimeServicer_to_server(self.service, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0).wait()


def silent_fabric(topology: Topology) -> AbstractContextManager[HostFabric]:
    return running(topology, SilentServer)


@pytest.fixture
def fabric(topology: Topology) -> Iterator[HostFabric]:
    with running(topology, serve) as rig:
        yield rig


def job(name: str, *hosts: str, gpus: int = 2) -> Job:
    """A job of two or more workers, each sending to the next."""
    pairs = list(zip(hosts, (*hosts[1:], hosts[0]), strict=True))
    return Job(
        name=name,
        model="VGG19",
        gpus=gpus,
        hosts=hosts,
        profile=Profile(260_000_000, (Phase(0, 120_000_000, RATE_BPS),)),
        flops_per_iteration=1e12,
        flows=tuple(Flow(f"{name}/{a}>{b}", name, a, b, 1_500_000) for a, b in pairs),
    )


def join_message(member: Job, rank: int) -> wire.AgentMessage:
    """A worker's JobJoin."""
    return wire.AgentMessage(
        job_join=wire.JobJoin(
            job=member.name,
            model=member.model,
            gpus=member.gpus,
            hosts=member.hosts,
            rank=rank,
            period_ns=member.profile.period_ns,
            phases=[
                wire.Phase(start_ns=p.start_ns, end_ns=p.end_ns, rate_bps=p.rate_bps)
                for p in member.profile.phases
            ],
            flops_per_iteration=member.flops_per_iteration,
            flows=[
                wire.FlowSpec(name=f.name, src=f.src, dst=f.dst, bytes_per_iteration=f.bytes_per_iteration)
                for f in member.flows
            ],
        )
    )


class Agent:
    """An agent's session by hand. With `returns`, a lost session is followed by another one, as real agents do:
    the controller ends sessions of a machine that stands still for 5 s."""

    def __init__(
        self,
        address: str,
        host: str,
        ip: str,
        *,
        hello: bool = True,
        pinning: str = "udp",
        credentials: grpc.ChannelCredentials | None = None,
        returns: bool = False,
    ) -> None:
        self.host = host
        self.inbox: queue.SimpleQueue[wire.ControllerMessage | None] = queue.SimpleQueue()
        # An agent that names its process replaces the session that it has lost, if that one is still there.
        instance = f"{host}/by-hand" if returns else ""
        self._hello = wire.Hello(host=host, ip=ip, pinning=pinning, protocol=1, instance=instance)
        self._joined: dict[tuple[str, int], wire.JobJoin] = {}
        self._returns = returns
        self._guard = threading.RLock()
        if credentials is None:
            self._channel = grpc.insecure_channel(address)
        else:
            self._channel = grpc.secure_channel(address, credentials)
        self._open(hello=hello)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: wire.AgentMessage) -> None:
        with self._guard:
            match message.WhichOneof("body"):
                case "job_join":
                    self._joined[message.job_join.job, message.job_join.rank] = message.job_join
                case "job_leave":
                    self._joined.pop((message.job_leave.job, message.job_leave.rank), None)
            self._sequence += 1
            message.sequence = self._sequence
            self._outbox.put(message)

    def next(self, kind: str) -> Any:
        """The next message of `kind`; others are passed over."""
        while True:
            message = self.inbox.get(timeout=PATIENCE_S)
            assert message is not None, "the controller ended the session"
            if message.WhichOneof("body") == kind:
                return getattr(message, kind)

    def close(self) -> None:
        self._returns = False
        with self._guard:
            self._outbox.put(None)
            self._call.cancel()
            self._channel.close()

    def _open(self, *, hello: bool) -> None:
        """Begin a session: say Hello, and announce the workers that have joined."""
        self._outbox: queue.SimpleQueue[wire.AgentMessage | None] = queue.SimpleQueue()
        self._sequence = 0
        self._call = wire_grpc.AgentHubStub(self._channel).Session(iter(self._outbox.get, None))
        if hello:
            self.send(wire.AgentMessage(hello=self._hello))
        for member in tuple(self._joined.values()):
            self.send(wire.AgentMessage(job_join=member))

    def _read(self) -> None:
        while True:
            try:
                for message in self._call:
                    self.inbox.put(message)
            except grpc.RpcError:
                pass
            with self._guard:
                if not self._returns:
                    break
                self._outbox.put(None)
                self._open(hello=True)
            time.sleep(0.1)
        self.inbox.put(None)


@dataclass
class Controller:
    """The controller's process, ready."""

    process: subprocess.Popen[str]
    agents: str
    web: str
    log: Path

    def api(self, path: str) -> Any:
        """A GET of the REST API; None where it answers with an error."""
        try:
            with urllib.request.urlopen(f"{self.web}/api/v1/{path}", timeout=PATIENCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            return None

    def says(self, words: str) -> bool:
        """Whether the log has these words."""
        return words in self.log.read_text()


def spawn(arguments: list[str], log: Path) -> subprocess.Popen[str]:
    with log.open("w") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "polyrhythm", "controller", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            cwd=Path(__file__).parents[2],
        )


@pytest.fixture
def start_controller(tmp_path: Path) -> Iterator[Callable[..., Controller]]:
    """Start the controller on a description; further arguments go to its command line."""
    processes: list[subprocess.Popen[str]] = []

    def start(description: dict[str, Any], *arguments: str) -> Controller:
        file = tmp_path / f"fabric{len(processes)}.json"
        file.write_text(json.dumps(description))
        log = tmp_path / f"controller{len(processes)}.log"
        process = spawn([f"--fabric={file}", *arguments], log)
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        ready = json.loads(line)
        assert ready["ready"] is True
        return Controller(process, ready["agents"], ready["web"], log)

    yield start
    for process in processes:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def connect(topology: Topology) -> Iterator[Callable[..., Agent]]:
    """Open an agent's session; all are closed at the end."""
    with ExitStack() as stack:

        def open_one(address: str, host: str, **options: Any) -> Agent:
            ip = options.pop("ip", topology.host[host].ip if host in topology.host else "192.0.2.1")
            agent = Agent(address, host, ip, **options)
            stack.callback(agent.close)
            return agent

        yield open_one
