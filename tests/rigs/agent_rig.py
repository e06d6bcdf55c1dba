# SPDX-License-Identifier: Apache-2.0
"""Agents as real processes on loopback addresses, and a controller's end of their session by hand."""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.wire import agent_pb2 as pb
from controller.wire import agent_pb2_grpc as pb_grpc
from controller.wire.rocev2 import ROCE_PORT

PATIENCE_S = 120.0
"""How long a test waits for what must come: chosen for a machine with much else to do."""
MS = 1_000_000
ROOT = Path(__file__).parents[2]
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip (iproute2) for namespaces"
)


def eventually(condition: Callable[[], Any], what: str = "condition") -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"never came true: {what}")


class Hub(pb_grpc.AgentHubServicer):
    """A controller's agents port. `answer(message)` gives what is said to each message of an agent."""

    def __init__(self) -> None:
        self.heard: queue.Queue[pb.AgentMessage] = queue.Queue()
        self.kept: list[pb.AgentMessage] = []
        self.answer: Callable[[pb.AgentMessage], Iterable[pb.ControllerMessage]] = welcome_and_pin

    def Session(
        self, request_iterator: Iterator[pb.AgentMessage], context: grpc.ServicerContext
    ) -> Iterator[pb.ControllerMessage]:
        try:
            for message in request_iterator:
                self.kept.append(message)
                yield from self.answer(message)
        except grpc.RpcError:
            return

    def bodies(self, kind: str) -> list[Any]:
        """What was said of that kind, in order."""
        said = []
        for message in list(self.kept):
            said += message.earlier if kind == "iteration" else ()
            said += [getattr(message, kind)] if message.WhichOneof("body") == kind else ()
        return said


def local_socket(path: str) -> socket.socket:
    """A connection with an agent's socket."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(PATIENCE_S)
    made.connect(path)
    return made


def status(path: str) -> dict[str, Any]:
    """An agent's state, from its socket."""
    with local_socket(path) as made:
        made.sendall(b'{"op": "status"}\n')
        answer: dict[str, Any] = json.loads(made.makefile().readline())
        return answer


WELCOME = pb.Welcome(
    policy="test", cnp_dscp=48, ack_dscp=48, equal_dscp=26, mice_dscp=2, elephant_bytes=10_000,
    answer_deadline_ns=round(PATIENCE_S * 1e9),
)  # fmt: skip


def welcome_and_pin(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
    kind = message.WhichOneof("body")
    if kind == "hello":
        return [pb.ControllerMessage(sequence=1, welcome=WELCOME)]
    if kind == "flow_request":
        return [assignment(message.flow_request.flow)]
    return []


def clock_answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
    """What time it is, by a controller whose clock is this host's."""
    now, sent = time.monotonic_ns(), message.clock_request.sent_ns
    return [pb.ControllerMessage(clock=pb.ClockReply(sent_ns=sent, received_ns=now, replied_ns=now))]


def assignment(flow: str, port: int = 0xC777, dscp: int = 34) -> pb.ControllerMessage:
    return pb.ControllerMessage(flow=pb.FlowAssignment(flow=flow, source_port=port, dscp=dscp))


@dataclass
class AgentProcess:
    """A running agent: its first line, its log, and the records of its workers."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    log: Path
    records_file: Path

    def records(self) -> list[dict[str, Any]]:
        lines = self.records_file.read_text().splitlines() if self.records_file.exists() else []
        return [json.loads(line) for line in lines]

    def says(self, words: str) -> bool:
        return words in self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'hostagent' / 'job_library'}"}


def command(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-m", "polyrhythm", "agent", *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip


def config_text(
    host: str,
    ip: str,
    *,
    controller: str = "127.0.0.1:1",
    addresses: dict[str, str] | None = None,
    agent: str = "",
    nic: str = 'driver = "udp"',
    more: str = "",
) -> str:
    hosts = "".join(f'{name} = "{address}"\n' for name, address in (addresses or {}).items())
    # The longest legal deadline: by default flows wait for the controller 10 ms, less than a busy machine takes.
    return (
        f'[agent]\nhost = "{host}"\nip = "{ip}"\ncontroller = "{controller}"\ndeadline_ms = 1000.0\n{agent}\n'
        f"[nic]\n{nic}\n[hosts]\n{hosts}\n{more}\n"
    )


def job_text(
    hosts: tuple[str, ...], records: Path, *, name: str = "a", up_ms: int = 20, down_ms: int = 30,
    size: int = 20_000, start_ns: int = 0, iterations: int = 0,
) -> str:  # fmt: skip
    names = ", ".join(f'"{h}"' for h in hosts)
    return (
        f'[training]\nrecords = "{records}"\nseed = 3\n[[training.jobs]]\nname = "{name}"\nhosts = [{names}]\n'
        f"phases = [{{up_ns = {up_ms * MS}, bytes_per_flow = {size}, down_ns = {down_ms * MS}}}]\n"
        f"start_ns = {start_ns}\niterations = {iterations}\n"
    )


@contextmanager
def agents_in(folder: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Start an agent on a configuration; all are ended at the end."""
    running: list[AgentProcess] = []

    def start(text: str, *, prefix: tuple[str, ...] = (), records: Path | None = None) -> AgentProcess:
        number = len(running)
        file = folder / f"agent{number}.toml"
        file.write_text(text)
        log = folder / f"agent{number}.log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "polyrhythm", "agent", "--config", str(file)],
                stdout=subprocess.PIPE, stderr=sink, text=True, cwd=ROOT, env=environment(),
            )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        agent = AgentProcess(process, json.loads(line), log, records or folder / "none")
        running.append(agent)
        return agent

    try:
        yield start
    finally:
        for agent in running:
            # SIGTERM lets the process write what coverage has counted.
            agent.stop()
            assert agent.process.stdout is not None
            agent.process.stdout.close()


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Start an agent on a configuration; all are ended after the test."""
    with agents_in(tmp_path) as start:
        yield start


@pytest.fixture
def addresses() -> Iterator[dict[str, str]]:
    """Loopback addresses of hosts h1 to h4 that no other test process uses.

    Each agent with the UDP driver takes port 4791 of its address, so tests that run at the same time must not
    share addresses. A socket on the last address of the /24 block reserves the block.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reservation:
        while True:
            block = f"127.{random.SystemRandom().randint(1, 254)}.{random.SystemRandom().randint(0, 255)}"
            try:
                reservation.bind((f"{block}.254", ROCE_PORT))
                break
            except OSError:
                continue
        yield {f"h{n}": f"{block}.{n}" for n in range(1, 5)}


@pytest.fixture
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents wait for a controller's answer for a moment only, for tests of controllers that do not answer."""
    welcome = pb.Welcome()
    welcome.CopyFrom(WELCOME)
    welcome.answer_deadline_ns = 50 * MS
    monkeypatch.setitem(globals(), "WELCOME", welcome)


@pytest.fixture
def patient_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job library waits for its agent as long as a busy machine needs; in a product it gives up soon."""
    monkeypatch.setattr("polyrhythm_job.connection.CONNECT_S", PATIENCE_S)
    monkeypatch.setattr("polyrhythm_job.job.CONNECT_S", PATIENCE_S)
    monkeypatch.setattr("polyrhythm_job.job._ANSWER_S", PATIENCE_S)


@contextmanager
def running_hub() -> Iterator[tuple[Hub, str]]:
    """A served hub and its address."""
    made = Hub()
    server, address = serve_hub(made)
    yield made, address
    server.stop(grace=0).wait()


@pytest.fixture
def hub() -> Iterator[tuple[Hub, str]]:
    """A served hub and its address."""
    with running_hub() as made:
        yield made


def serve_hub(made: Hub, address: str = "127.0.0.1:0") -> tuple[grpc.Server, str]:
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_AgentHubServicer_to_server(made, server)
    port = server.add_insecure_port(address)
    server.start()
    return server, address if address.startswith("unix:") else f"127.0.0.1:{port}"
