# SPDX-License-Identifier: Apache-2.0
"""The processes of `polyrhythm chaos`: fabric, controller, agents and trainers, connected by proxies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from polyrhythm.chaos.fabric import topology
from polyrhythm.chaos.proxy import Proxy
from topo.jsonio import topology_to_json

# Host time for a process to start, on a busy machine; and for an answer of the REST API.
START_S = 90.0
_REST_S = 5.0
JOBS = {"a": ("h1", "h3"), "b": ("h2", "h4"), "c": ("h4", "h1")}
"""The jobs and their hosts. Every flow crosses the spines."""


class ProcessError(RuntimeError):
    """A process did not start, or has ended; the message has its last words."""


class Child:
    """A child process whose standard output is read by lines; its log goes to a file."""

    def __init__(self, name: str, folder: Path, arguments: list[str], environment: dict[str, str]) -> None:
        self.name, self._arguments, self._environment = name, arguments, environment
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process runs, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._environment},
            )
        self._unread = b""

    def line(self, patience_s: float = START_S) -> dict[str, Any]:
        """The next line that it prints, as JSON. Raises ProcessError."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ProcessError(f"{self.name} says nothing for {patience_s:g} s{self.last_words()}")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise ProcessError(f"{self.name} has ended{self.last_words()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, words: dict[str, Any]) -> dict[str, Any]:
        """Send one line of JSON; returns the line that answers it."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()
        return self.line()

    def send(self, number: int) -> None:
        """Send a signal to the process."""
        if self.lives:
            os.kill(self.pid, number)

    def end(self, number: int = signal.SIGTERM, patience_s: float = 10.0) -> None:
        """End the process by a signal, and by SIGKILL if it does not end."""
        if self._process is None:
            return
        self.send(number)
        self.send(signal.SIGCONT)
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def last_words(self) -> str:
        """The last lines of its log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines()[-3:] if self.log.exists() else []
        return "".join(f"\n  {line}" for line in lines)


class ChaosCluster:
    """All processes. `agents` and `to_switch`, `to_controller` (proxies) are keyed by host or switch."""

    def __init__(self, folder: Path) -> None:
        self.topology = topology()
        self.folder = folder
        self.state = folder / "state.sqlite"
        self.wall_clock = folder / "wall_clock"
        self.web = ""
        self.agents_address = ""
        self.controller_starts = 0
        self.fabric = Child("fabric", folder, ["-m", "polyrhythm.chaos.fabric"], {})
        self.to_switch = {s.name: Proxy() for s in self.topology.switches}
        self.to_controller = {h.name: Proxy() for h in self.topology.hosts}
        self.controller = Child(
            "controller",
            folder,
            [
                "-m",
                "polyrhythm.chaos.controller",
                "controller",
                f"--fabric={folder / 'fabric.json'}",
                f"--state={self.state}",
            ],
            {"POLYRHYTHM_CHAOS_WALL_CLOCK": str(self.wall_clock)},
        )
        self.agents = {
            host.name: Child(
                f"agent-{host.name}",
                folder,
                ["-m", "polyrhythm", "agent", f"--config={folder / host.name}.toml"],
                {},
            )
            for host in self.topology.hosts
        }
        sockets = {job: {h: str(self.agent_socket(h)) for h in hosts} for job, hosts in JOBS.items()}
        self.trainers = Child(
            "trainers", folder, ["-m", "polyrhythm.chaos.trainers", json.dumps(sockets)], {}
        )

    def agent_socket(self, host: str) -> Path:
        """The path of an agent's socket."""
        return self.folder / f"{host}.sock"

    def start(self) -> None:
        """Start everything."""
        self.wall_clock.write_text("0")
        self.fabric.start()
        self.take_addresses(self.fabric.line())
        description = {
            "name": "chaos",
            "clock": "host",
            "control_delay_ns": 0,
            "topology": topology_to_json(self.topology),
            "switches": {
                s.name: {"address": self.to_switch[s.name].address, "device_id": s.device_id}
                for s in self.topology.switches
            },
            "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
            "profile": "declared",
        }
        (self.folder / "fabric.json").write_text(json.dumps(description))
        self.start_controller()
        # The agents write port maps for a shim and a device that nobody has: the probes send by their ports.
        (self.folder / "devices" / "none").mkdir(parents=True, exist_ok=True)
        hosts = "".join(f'{h.name} = "{h.ip}"\n' for h in self.topology.hosts)
        for host in self.topology.hosts:
            (self.folder / f"{host.name}.toml").write_text(
                f'[agent]\nhost = "{host.name}"\nip = "{host.ip}"\n'
                f'controller = "{self.to_controller[host.name].address}"\n'
                f'socket = "{self.agent_socket(host.name)}"\n'
                f'[nic]\ndriver = "shim"\nport_map = "{self.folder / host.name}.map"\n'
                f'[nccl]\nshim = "{self.folder / "fabric.json"}"\n'
                f'[sources]\nsysfs = "{self.folder / "devices"}"\n[hosts]\n{hosts}'
            )
            self.agents[host.name].start()
        for agent in self.agents.values():
            agent.line()
        self.trainers.start()

    def take_addresses(self, addresses: dict[str, str]) -> None:
        """The switches have these addresses now."""
        for name, address in addresses.items():
            self.to_switch[name].target = address

    def start_controller(self) -> None:
        """Start the controller, and tell the agents' proxies where it is."""
        self.controller.start()
        self.controller_starts += 1
        ready = self.controller.line()
        self.web, self.agents_address = ready["web"], ready["agents"]
        for proxy in self.to_controller.values():
            proxy.target = self.agents_address

    def command(self, **words: Any) -> dict[str, Any]:
        """A command to the fabric; returns its report."""
        answer = self.fabric.ask(words)
        self.take_addresses(answer["addresses"])
        return answer

    def api(self, path: str) -> Any:
        """A GET of the REST API; None if there is no answer, or an error."""
        try:
            with urllib.request.urlopen(f"{self.web}/api/v1/{path}", timeout=_REST_S) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def stop(self) -> None:
        """End everything."""
        for child in (self.trainers, *self.agents.values(), self.controller, self.fabric):
            child.end()
        for proxy in (*self.to_switch.values(), *self.to_controller.values()):
            proxy.close()
