# SPDX-License-Identifier: Apache-2.0
"""A Mininet fabric with a controller and agents, on which programs of others train."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from socket import IPPROTO_TCP
from typing import Any

from hostagent.sock_diag import OpenSocket, open_sockets
from polyrhythm import rest_client
from polyrhythm.emulation.folder import last_line
from polyrhythm.emulation.process import describe
from polyrhythm.emulation.programmed import wait_programmed
from polyrhythm.emulation.switches import Switches
from polyrhythm.scenario import load_scenario
from topo.graph import Host
from topo.mininet import HOST_INTERFACE, MininetError, MininetFabric

PACKET_BYTES = 4096
"""The largest payload of a packet. Chosen, as RoCEv2's: the switches are processes, and few packets."""
BUFFER_PACKETS = 64
TCP = {"tcp_congestion_control": "reno", "tcp_ecn": "1"}
"""Set in the namespace of each host, whatever the machine has. Chosen: Linux lets a namespace have any
congestion control that unprivileged users may choose, and reno is the only one that they always may."""
_PATIENCE_S = 300.0
"""How long a process may take to start, or to say its next word. Chosen for a busy machine."""
_LOOK_S = 0.05


class Rank:
    """A process of a job: it prints lines of JSON to a file."""

    def __init__(self, process: subprocess.Popen[Any], said: Path, log: Path) -> None:
        self.process = process
        self._said, self._log = said, log

    def lines(self) -> list[dict[str, Any]]:
        """The lines so far."""
        whole = self._said.read_bytes()
        return [json.loads(line) for line in whole[: whole.rfind(b"\n") + 1].splitlines()]

    def wait(self, key: str, value: object = None) -> None:
        """Wait for a line that has `key`, with this value if one is given.

        Raises:
            MininetError: the process ended, or said nothing for long.
        """
        seen, moved = 0, time.monotonic()
        while True:
            ended = self.process.poll() is not None
            lines = self.lines()
            if any(key in line and value in (None, line[key]) for line in lines):
                return
            if ended:
                raise MininetError(f"a rank ended with {self.process.returncode}: {last_line(self._log)}")
            if len(lines) > seen:
                seen, moved = len(lines), time.monotonic()
            elif time.monotonic() - moved > _PATIENCE_S:
                raise MininetError(f"a rank says nothing for {_PATIENCE_S:g} s: {last_line(self._log)}")
            time.sleep(_LOOK_S)

    def begin(self) -> None:
        """Let the rank take its first step."""
        self._say(b"\n")

    def end_warm_up(self, number: int) -> None:
        """Let a rank that warms up end that before step `number` of it."""
        self._say(f"{number}\n".encode())

    def warm_up_steps(self) -> int:
        """How many steps of its warm-up the rank has taken.

        Raises:
            MininetError: it has ended.
        """
        if self.process.poll() is not None:
            raise MininetError(f"a rank ended with {self.process.returncode}: {last_line(self._log)}")
        return sum("warm_up" in line for line in self.lines())

    def end(self) -> None:
        """Wait until the process has ended, and kill it if it does not.

        Raises:
            MininetError: it ended with an error.
        """
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.process.returncode:
            raise MininetError(f"a rank ended with {self.process.returncode}: {last_line(self._log)}")
        self.kill()

    def _say(self, words: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words)
        self.process.stdin.flush()

    def kill(self) -> None:
        """End the process at once."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class TrainingCluster:
    """Two leaves with two hosts each and `spines` spines, all links of `rate_bps` bit/s; a controller with
    `policy`, and an agent with the driver `sockets` on each host.

    `hash_known`: whether the controller knows how switches choose among equal paths. `measured`: whether it
    measures the jobs' profiles itself, one job at a time; jobs that measure themselves do so while others
    send. Files are in `folder`, whose path is short. Without `start` it is a network only.

    Raises:
        MininetError: it cannot be built.
    """

    interface = HOST_INTERFACE
    """The interface of each host, for gloo and Open MPI."""

    def __init__(
        self,
        folder: Path,
        *,
        spines: int,
        rate_bps: int,
        policy: str,
        hash_known: bool = True,
        measured: bool = False,
    ) -> None:
        folder.mkdir(exist_ok=True)
        file = folder / "training.json"
        file.write_text(json.dumps(_scenario(spines, rate_bps)), encoding="utf-8")
        self._scenario = replace(load_scenario(file), hash_known=hash_known)
        self.topology, self.rate_bps = self._scenario.topology, rate_bps
        self.folder, self._policy, self._web = folder, policy, ""
        self._profile = "measured" if measured else "declared"
        self._started = 0
        self.processes: list[subprocess.Popen[Any]] = []
        self.network = MininetFabric(self.topology, PACKET_BYTES)

    def start(self) -> None:
        """Start switches, controller and agents, and wait until the switches have their tables."""
        network, folder = self.network, self.folder
        settings = [f"net.ipv4.{key}={value}" for key, value in TCP.items()]
        for host in self.topology.hosts:
            network.run(host.name, ["sysctl", "-qw", *settings])
        switches = Switches(network, self._scenario, folder, seed=1)
        description = folder / "fabric.json"
        described = {**describe(self._scenario, switches), "profile": self._profile}
        description.write_text(json.dumps(described), encoding="utf-8")
        argv = [
            "controller", f"--fabric={description}", f"--agents-address=unix:{folder}/agents.sock",
            "--web-port=0", f"--policy={self._policy}", "--state=none",
        ]  # fmt: skip
        said = self._ready(subprocess.Popen, argv)
        self._web = said["web"]
        for host in self.topology.hosts:
            config = self._config(host.name)
            config.parent.mkdir()
            config.write_text(self.agent_toml(host, said["agents"]), encoding="utf-8")
            argv = ["agent", "--config", str(config)]
            self._ready(lambda a, node=host.name, **o: network.spawn(node, a, **o), argv)
        wait_programmed(self._web)

    def agent_toml(self, host: Host, controller: str) -> str:
        """The configuration of a host's agent, which finds the controller at the address `controller`."""
        own = self._config(host.name).parent
        addresses = "".join(f'{other.name} = "{other.ip}"\n' for other in self.topology.hosts)
        return (
            f'[agent]\nhost = "{host.name}"\nip = "{host.ip}"\ncontroller = "{controller}"\n'
            f'socket = "{own}/agent.sock"\n[nic]\ndriver = "sockets"\n'
            f"rate_mbps = {host.rate_bps / 1e6}\n"
            f'[sockets]\nmap = "{own}/sockets"\npace_mbps = {host.rate_bps / 1e6}\n'
            f"[hosts]\n{addresses}"
        )

    def kill_control(self) -> None:
        """End controller and agents by SIGKILL, as a fault would. The switches go on."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything."""
        self.kill_control()
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self.network.stop()

    def ask(self, path: str, body: object = None, method: str = "GET", absent: object = None) -> Any:
        """The controller's answer to a request for `path` below /api/v1; `absent` if it has no such thing and
        `absent` is given.

        Raises:
            MininetError: the controller refuses, or does not answer.
        """
        try:
            where = argparse.Namespace(controller=self._web, token=None)
            return rest_client.call(where, path, body, method=method)
        except rest_client.CallError as error:
            if error.status == 404 and absent is not None:
                return absent
            raise MininetError(f"the controller: {error}") from None

    def declare(self, job: str, hosts: Sequence[str], period_ms: float, up_ms: float, size: int) -> None:
        """Declare a job to the controller, by REST, and wait until its hosts have their socket maps.

        Each host sends `size` bytes to the next one in an iteration.
        """
        ring = [*zip(hosts, [*hosts[1:], hosts[0]], strict=True)]
        rate_bps = self.topology.host[hosts[0]].rate_bps
        self.ask("jobs", {
            "name": job, "model": "MLP", "gpus": len(hosts), "hosts": list(hosts), "period_ms": period_ms,
            "phases": [{"start_ms": 0, "end_ms": up_ms, "rate_bps": rate_bps}],
            "flows": [{"src": a, "dst": b, "bytes_per_iteration": size} for a, b in ring],
        }, "POST")  # fmt: skip
        maps = [self._socket_map(host) for host in hosts]
        wait_until(
            lambda: all(m.exists() and f"tcp {job} " in m.read_text() for m in maps),
            f"socket maps of job {job}",
        )

    def end_job(self, job: str) -> None:
        """End a declared job, and wait until no socket map has it."""
        self.ask(f"jobs/{job}", method="DELETE")
        maps = [self._socket_map(host.name) for host in self.topology.hosts]
        wait_until(
            lambda: not any(m.exists() and f"tcp {job} " in m.read_text() for m in maps),
            f"the end of job {job}",
        )

    def planned(self, job: str) -> dict[tuple[str, str], tuple[str, ...]]:
        """The planned path of each flow of a job, by source and destination."""
        flows = self.ask("plan", absent={"flows": []})["flows"]
        paths = [tuple(f["path"]) for f in flows if f["flow"].startswith(f"{job}/")]
        return {(path[0], path[-1]): path for path in paths}

    def slots(self) -> dict[str, dict[str, Any]]:
        """What the plan says of each job that reports: its slots and its level. Empty without a plan."""
        keys = ("period_ms", "shift_ms", "level")
        plan = self.ask("plan", absent={"jobs": []})
        return {job["job"]: {key: job[key] for key in keys} for job in plan["jobs"]}

    def unplanned(self, jobs: Collection[str], *, slots: bool) -> str:
        """Why the plan in force is not yet the one for these jobs' measured profiles; empty: it is. With
        `slots` each of them has slots in it."""
        shown = {job["name"]: job for job in self.ask("jobs")["jobs"]}
        for name in jobs:
            if name not in shown:
                return f"job {name} has not joined"
            if shown[name]["measuring"] or not shown[name]["measured"]:
                return f"the profile of job {name} is not measured"
        planned = self.slots()
        for name in jobs:
            if name not in planned:
                return f"no plan has job {name}"
            if slots and planned[name]["period_ms"] is None:
                return f"the plan gives job {name} no slots"
        return ""

    def wait_pinned(self, flows: int) -> None:
        """Wait until switches hold entries for so many flows, where the controller knows no ports that lead
        along a path."""

        def pinned() -> bool:
            switches = self.ask("fabric")["switches"]
            return sum(int(switch["tables"].get("pinned_flow", 0)) for switch in switches) >= flows

        if not self._scenario.hash_known:
            wait_until(pinned, f"entries for {flows} flows")

    def steering(self, job: str, host: str) -> dict[str, str]:
        """The environment by which the programs of a job are steered, as `polyrhythm agent env` prints it."""
        argv = [sys.executable, "-m", "polyrhythm", "agent", "--config", str(self._config(host)), "env", job]
        return dict(line.split("=", 1) for line in self.network.run(host, argv).splitlines())

    def rank(self, host: str, argv: Sequence[str], environment: Mapping[str, str]) -> Rank:
        """Start a process of a job on a host."""
        self._started += 1
        said, log = (self.folder / f"rank{self._started}.{end}" for end in ("jsonl", "log"))
        with said.open("wb") as out, log.open("wb") as errors:
            process = self.network.spawn(
                host, argv, stdin=subprocess.PIPE, stdout=out, stderr=errors,
                env={**os.environ, **environment},
            )  # fmt: skip
        return Rank(process, said, log)

    def connections(self, host: str) -> list[OpenSocket]:
        """The open TCP connections of a host."""
        return self.network.inside(host, lambda: list(open_sockets(IPPROTO_TCP)))

    def _config(self, host: str) -> Path:
        return self.folder / host / "agent.toml"

    def _socket_map(self, host: str) -> Path:
        return self.folder / host / "sockets"

    def _ready(self, spawn: Callable[..., subprocess.Popen[Any]], argv: list[str]) -> Any:
        log = self.folder / f"{argv[0]}{len(self.processes)}.log"
        with log.open("wb") as errors:
            process = spawn(
                [sys.executable, "-m", "polyrhythm", *argv],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.processes.append(process)
        line = process.stdout.readline() if process.stdout is not None else b""
        if not line:
            raise MininetError(f"the {argv[0]} did not start: {last_line(log)}")
        return json.loads(line)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Wait until `condition` holds; `what` says what is waited for.

    Raises:
        MininetError: that takes long.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise MininetError(f"waited {_PATIENCE_S:g} s in vain for {what}")
        time.sleep(_LOOK_S)


def _scenario(spines: int, rate_bps: int) -> dict[str, Any]:
    """A scenario file: it describes the fabric. Its job is not run."""
    gbps = 50
    return {
        "name": "training",
        "scale": gbps * 1e9 / rate_bps,
        "packet_bytes": PACKET_BYTES,
        "buffer_packets": BUFFER_PACKETS,
        "fabric": {
            "kind": "leaf_spine", "leaves": 2, "spines": spines, "hosts_per_leaf": 2, "host_gbps": gbps,
            "fabric_gbps": gbps,
        },
        "jobs": [
            {
                "name": "unused", "model": "MLP", "gpus": 2, "hosts": ["h1", "h3"], "period_ms": 300,
                "phases": [{"start_ms": 0, "end_ms": 150, "gbps": gbps}],
            }
        ],
    }  # fmt: skip
