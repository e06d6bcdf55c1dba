# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench agent`: the cost of an agent for its host, and the time until a new flow has its path.

A live controller, its switches and the agent are processes of this machine. The figures:

- `rss_mib`: the largest resident memory of the agent during the whole bench.
- `cpu_percent`: the agent's processor time, in percent of one core, while training processes with 100 flows
  report 10 iterations per second.
- `new_flow_p99_ms`: the time from question to answer that a training process sees on the agent's socket, at
  200 new flows per second. Meanwhile a job comes and goes (a plan each time), and a link goes down and up (a
  plan and a reconciliation each time).
- `flows_per_second`: the rate of answers with 32 questions in flight.
- `late_answers`: answers that took longer than the usual deadline of an agent, 10 ms. The deadline is 1 s
  here, so that they are measured too.
- `unanswered`: questions without an answer within 1 s. They count as 1 s.

The process of the switches has a low priority (nice 10), because it stands for other machines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from controller.wire import agent_pb2 as pb
from hostagent.session import ControllerSession
from polyrhythm.bench.hostfabric import HOSTS_PER_LEAF, fabric
from polyrhythm.bench.processes import READY_S, last_words, line, process, until
from polyrhythm.bench.report import show
from polyrhythm.progress import working

HOST = "h1"
JOBS, FLOWS_A_JOB, ITERATIONS_A_SECOND = 4, HOSTS_PER_LEAF, 10
OFFERED_A_SECOND = 200
POOLS = 2
USUAL_DEADLINE_S = 0.010
DEADLINE_MS = 1000.0
_PERIOD_NS = 400_000_000
_ELEPHANT = 1 << 30
_TICKS = os.sysconf("SC_CLK_TCK")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench agent`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="duration of each part in seconds, 0.5 to 600 (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the bench. Returns 1 if one of its processes does not start, 2 for bad options."""
    if not 0.5 <= args.seconds <= 600:
        print(f"polyrhythm bench agent: --seconds {args.seconds}; legal: 0.5 to 600", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        try:
            with working("measuring"):
                found = _measure(Path(folder), stack, args.seconds)
            show(found, args.json)
        except (RuntimeError, OSError) as error:
            print(f"polyrhythm bench agent: {error}{last_words(Path(folder))}", file=sys.stderr)
            return 1
    return 0


def _measure(folder: Path, stack: contextlib.ExitStack, seconds: float) -> dict[str, Any]:
    switches = stack.enter_context(process("-m", "polyrhythm.bench.hostfabric", log=folder / "fabric.log"))
    description = folder / "fabric.json"
    # With a long deadline every answer is measured; those after the usual deadline are counted.
    fabric_json = {**json.loads(line(switches, folder / "fabric.log")), "answer_deadline_ms": DEADLINE_MS}
    description.write_text(json.dumps(fabric_json))
    controller = stack.enter_context(
        process("-m", "polyrhythm", "controller", f"--fabric={description}", log=folder / "controller.log")
    )
    address = json.loads(line(controller, folder / "controller.log"))["agents"]
    path = folder / "agent.sock"
    config = folder / "agent.toml"
    config.write_text(_config(address, path))
    agent = stack.enter_context(
        process("-m", "polyrhythm", "agent", f"--config={config}", log=folder / "agent.log")
    )
    line(agent, folder / "agent.log")
    peers = stack.enter_context(_peers(address))
    client = stack.enter_context(contextlib.closing(_Client(path)))
    until(lambda: client.status()["connected"], "the agent's session")
    _announce_pools(path, peers)
    flows = _pool_flows(peers)
    trainers = [stack.enter_context(contextlib.closing(_Client(path))) for _ in range(JOBS)]
    for number, trainer in enumerate(trainers):
        _join(f"job{number}", trainer, peers)
    until(lambda: _answered(client, flows[0]), "a plan")
    until(lambda: len(client.status()["flows"]) == JOBS * FLOWS_A_JOB, "all flows placed")
    time.sleep(1.0)
    cpu_percent, reports = _report_iterations(agent.pid, trainers, seconds)
    waits, unanswered = _offer(client, flows, peers, switches, seconds)
    rate = _flood(client, flows, seconds / 2)
    return {
        "rss_mib": round(_peak_mib(agent.pid), 1),
        "cpu_percent": round(cpu_percent, 3),
        "new_flow_p99_ms": round(waits[int(0.99 * (len(waits) - 1))] * 1e3, 3),
        "new_flow_median_ms": round(statistics.median(waits) * 1e3, 3),
        "flows_per_second": round(rate),
        "flows": JOBS * FLOWS_A_JOB,
        "iterations_reported": reports,
        "new_flows": len(waits),
        "late_answers": sum(w > USUAL_DEADLINE_S for w in waits),
        "unanswered": unanswered,
        "pinning": "none",
    }


def _answered(client: _Client, flow: str) -> bool:
    """Whether the controller answers new flows already."""
    answer = client.ask(flow)
    client.tell_end(flow)
    return bool(answer["by"] == "controller" and answer["dscp"])


# -- the processes


def _config(address: str, path: Path) -> str:
    hosts = "".join(f'{h.name} = "{h.ip}"\n' for h in fabric().hosts)
    ip = fabric().host[HOST].ip
    return (
        f'[agent]\nhost = "{HOST}"\nip = "{ip}"\ncontroller = "{address}"\nsocket = "{path}"\n'
        f"deadline_ms = {DEADLINE_MS}\n"
        f'[nic]\ndriver = "none"\n[hosts]\n{hosts}'
    )


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# -- the other hosts


@contextlib.contextmanager
def _peers(address: str) -> Iterator[dict[str, ControllerSession]]:
    """The agent sessions of the hosts behind the other leaf."""
    sessions: dict[str, ControllerSession] = {}
    up: set[str] = set()
    for host in fabric().hosts[HOSTS_PER_LEAF:]:
        hello = pb.Hello(host=host.name, ip=host.ip, pinning="none", protocol=1)

        def connected(name: str = host.name, hello: pb.Hello = hello) -> None:
            sessions[name].send(pb.AgentMessage(sequence=1, hello=hello))

        def said(message: pb.ControllerMessage, name: str = host.name) -> None:
            if message.HasField("welcome"):
                up.add(name)

        sessions[host.name] = ControllerSession((address,), said, lambda: None, connected)
    for session in sessions.values():
        session.start()
    try:
        until(lambda: len(up) == len(sessions), "the sessions of the other hosts")
        yield sessions
    finally:
        for session in sessions.values():
            session.stop()


def _job(name: str, hosts: list[str], pairs: list[tuple[str, str, str]], rank: int) -> pb.AgentMessage:
    phase = pb.Phase(start_ns=0, end_ns=_PERIOD_NS // 4, rate_bps=10_000_000)
    return pb.AgentMessage(
        job_join=pb.JobJoin(
            job=name,
            model="bench",
            gpus=len(hosts),
            hosts=hosts,
            rank=rank,
            period_ns=_PERIOD_NS,
            phases=[phase],
            flops_per_iteration=1e12,
            flows=[pb.FlowSpec(name=n, src=a, dst=b, bytes_per_iteration=125_000) for n, a, b in pairs],
        )
    )


def _announce_pools(client_path: Path, peers: dict[str, ControllerSession]) -> None:
    """Announce jobs with flows from our host, then let our own workers leave them.

    The agent forgets the flows then, so each is a new flow whenever it is asked for.
    """
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(_Client(client_path))) for _ in range(POOLS)]
        for number, client in enumerate(clients):
            _join(f"pool{number}", client, peers)
        until(lambda: len(clients[0].status()["flows"]) == len(_pool_flows(peers)), "the first plan")


def _pool_flows(peers: dict[str, ControllerSession]) -> list[str]:
    return [f"pool{k}/{HOST}>{host}" for k in range(POOLS) for host in list(peers)[:FLOWS_A_JOB]]


def _join(name: str, trainer: _Client, peers: dict[str, ControllerSession]) -> None:
    """Announce one training job: our host by the agent's socket, the other hosts by their sessions."""
    hosts = [HOST, *list(peers)[:FLOWS_A_JOB]]
    ring = [[HOST, host] for host in hosts[1:]]
    trainer.tell(
        {
            "op": "join",
            "job": name,
            "hosts": hosts,
            "rank": 0,
            "ring": ring,
            "model": "bench",
            "gpus": len(hosts),
            "flops_per_iteration": 1e12,
            "bytes_per_flow": 125_000,
            "period_ns": _PERIOD_NS,
            "phases": [[0, _PERIOD_NS // 4]],
        }
    )
    pairs = [(f"{name}/{a}>{b}", a, b) for a, b in ring]
    for rank, host in enumerate(hosts[1:], 1):
        peers[host].send(_job(name, hosts, pairs, rank))


# -- training code


class _Client:
    """The training process's end of the agent's socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(READY_S)
        self._socket.connect(str(path))
        self._reader = self._socket.makefile("rb")

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, event: str) -> dict[str, Any]:
        """Wait for the next event of this name."""
        while True:
            line = self._reader.readline()
            if not line:
                raise RuntimeError("the agent ended a connection")
            said: dict[str, Any] = json.loads(line)
            if said["event"] == "error":
                raise RuntimeError(f"the agent refuses: {said['what']}")
            if said["event"] == event:
                return said

    def status(self) -> dict[str, Any]:
        """The state of the agent."""
        self.tell({"op": "status"})
        return self.hear("status")

    def ask(self, flow: str) -> dict[str, Any]:
        """Ask for the path of a new flow."""
        self.tell({"op": "flow", "flow": flow, "bytes": _ELEPHANT})
        return self.hear("flow")

    def tell_end(self, flow: str) -> None:
        """Tell the agent that a flow has ended."""
        self.tell({"op": "end", "flow": flow})

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _report_iterations(pid: int, trainers: list[_Client], seconds: float) -> tuple[float, int]:
    """Report iterations for `seconds`; returns the agent's processor time in percent of a core, and the
    reports.
    """
    before, began, reports = _cpu_s(pid), time.monotonic(), 0
    while (gone := time.monotonic() - began) < seconds:
        if reports <= gone * ITERATIONS_A_SECOND:
            start = time.monotonic_ns()
            step = {
                "op": "step",
                "index": reports // len(trainers),
                "start_ns": start - _PERIOD_NS,
                "end_ns": start,
            }
            trainers[reports % len(trainers)].tell({**step, "communication_ns": _PERIOD_NS // 4})
            reports += 1
        time.sleep(0.01)
    return 100 * (_cpu_s(pid) - before) / (time.monotonic() - began), reports


def _offer(
    client: _Client,
    flows: Sequence[str],
    peers: dict[str, ControllerSession],
    switches: subprocess.Popen[str],
    seconds: float,
) -> tuple[list[float], int]:
    """Offer new flows at an even rate while plans are computed.

    Returns the sorted waiting times in s, and the number of questions without an answer.
    """
    waits, unanswered, disturbed = [], 0, 0
    began = time.monotonic()
    for number in range(int(seconds * OFFERED_A_SECOND)):
        due = began + number / OFFERED_A_SECOND
        time.sleep(max(0.0, due - time.monotonic()))
        if time.monotonic() - began > disturbed * 0.5:
            _disturb(disturbed, peers, switches)
            disturbed += 1
        asked = time.monotonic()
        answer = client.ask(flows[number % len(flows)])
        waits.append(time.monotonic() - asked)
        if answer["by"] in ("deadline", "late"):
            # An agent without news from the controller answers at once. That must not count as a quick
            # answer.
            unanswered += 1
            waits[-1] = max(waits[-1], DEADLINE_MS / 1e3)
        elif answer["by"] != "controller":
            raise RuntimeError(f"a new flow was answered by {answer['by']}, not by the controller")
        client.tell_end(answer["flow"])
    return sorted(waits), unanswered


def _disturb(number: int, peers: dict[str, ControllerSession], switches: subprocess.Popen[str]) -> None:
    """Let a job join or leave, or take a link down for 200 ms, in turn."""
    hosts = list(peers)[:2]
    if number % 2 and switches.stdin is not None:
        switches.stdin.write("200\n")
        switches.stdin.flush()
        return
    for rank, host in enumerate(hosts):
        if number % 4:
            peers[host].send(pb.AgentMessage(job_leave=pb.JobLeave(job="short", rank=rank)))
        else:
            peers[host].send(_job("short", hosts, [("short/0", hosts[0], hosts[1])], rank))


def _flood(client: _Client, flows: Sequence[str], seconds: float) -> float:
    """The answers of the controller per second, with 32 questions in flight."""
    began, asked, answered, counted = time.monotonic(), 0, 0, 0
    while time.monotonic() - began < seconds:
        while asked - answered < 32:
            client.tell({"op": "flow", "flow": flows[asked % len(flows)], "bytes": _ELEPHANT})
            asked += 1
        said = client.hear("flow")
        answered += 1
        counted += said["by"] == "controller"
        client.tell_end(said["flow"])
    rate = counted / (time.monotonic() - began)
    for _ in range(asked - answered):
        client.hear("flow")
    return rate
