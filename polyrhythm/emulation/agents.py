# SPDX-License-Identifier: Apache-2.0
"""The agents of the Mininet fabric as processes, and the iterations that their emulated training records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from hostagent.job import IterationRecord
from polyrhythm.emulation.agent_config import AgentJob, agent_config
from polyrhythm.emulation.folder import last_line
from polyrhythm.emulation.tcp_workers import TcpWorkers
from polyrhythm.scenario import Scenario
from topo.mininet import MininetError, MininetFabric

_LEAD_NS = 1_000_000_000
"""The jobs begin this long after the agents are told. Chosen: the agents look for it every 20 ms."""


class Agents:
    """The agents of some hosts, with the workers of some jobs. They run until `stop`.

    The times of the jobs count from `begin`. With `random_offsets` each job starts at a random time in its
    first period. The sockets of agents are in `sockets`, whose path is short. Without `arrivals` the jobs
    begin at once and do not leave.

    Raises:
        MininetError: an agent ended.
    """

    def __init__(
        self,
        fabric: MininetFabric,
        scenario: Scenario,
        folder: Path,
        *,
        sockets: Path,
        controller: str,
        jobs: Sequence[str],
        hosts: Sequence[str],
        profiles: Mapping[str, Any],
        seed: int,
        start_jitter_ns: int,
        random_offsets: bool = False,
        arrivals: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._scenario = scenario
        self._folder = folder
        self._start_ns = 0
        self._start_file = folder / "start"
        # A folder that is kept may have the file of an earlier run.
        self._start_file.unlink(missing_ok=True)
        draw = Random(f"{seed}/offsets")
        agent_jobs = []
        for workload in scenario.workloads:
            offset = draw.randrange(workload.job.profile.period_ns) if random_offsets else 0
            if workload.job.name in jobs:
                profile = profiles.get(workload.job.name)
                start_ns = offset
                iterations = stop_ns = 0
                if arrivals:
                    start_ns += workload.arrival_ns + workload.lead_ns
                    iterations = workload.iterations or 0
                    if workload.stop_ns is not None:
                        stop_ns = workload.stop_ns + offset
                agent_jobs.append(AgentJob(workload, start_ns, start_jitter_ns, iterations, profile, stop_ns))
        self._jobs = {entry.workload.job.name: entry for entry in agent_jobs}
        self._processes: dict[str, subprocess.Popen[Any]] = {}
        self._readers: dict[str, _Records] = {}
        self._moves: list[_Lines] = []
        self._tcp = TcpWorkers(
            fabric, scenario, agent_jobs, seed=seed, start=self._start_file, folder=folder, sockets=sockets
        )
        self._configs: dict[str, Path] = {}
        for host in hosts:
            records, moves = folder / f"{host}.jsonl", folder / f"{host}.moves.jsonl"
            for file in (records, moves):
                file.touch()
            self._readers[host] = _Records(records)
            self._moves.append(_Lines(moves))
            config = self._configs[host] = folder / f"{host}.toml"
            config.write_text(
                agent_config(
                    scenario,
                    host,
                    controller,
                    str(records),
                    str(moves),
                    seed,
                    agent_jobs,
                    str(self._start_file),
                    own=self._tcp.agent_folder(host),
                ),
                encoding="utf-8",
            )
            argv = [sys.executable, "-m", "polyrhythm", "agent", "--config", str(config)]
            # All namespaces share /dev/shm, so each host of the run gets a folder of its own for its PCIe
            # semaphores.
            shared = folder / f"{host}.pcie"
            shared.mkdir(exist_ok=True)
            own = {**os.environ, "POLYRHYTHM_SHARED": str(shared)}
            with self._log(host).open("wb") as sink:
                self._processes[host] = fabric.spawn(
                    host, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, env=own
                )

    def wait_ready(self) -> None:
        """Wait until every agent serves."""
        for host, process in self._processes.items():
            assert process.stdout is not None
            if not process.stdout.readline():
                process.wait()
                raise MininetError(f"the agent of {host} did not start: {last_line(self._log(host))}")
        for key, records in self._tcp.start(self._configs).items():
            self._readers[key] = _Records(records)

    def begin(self) -> None:
        """Start the jobs: tell the agents the time from which those of the jobs count."""
        self._start_ns = time.monotonic_ns() + _LEAD_NS
        self._start_file.write_text(f"{self._start_ns}\n", encoding="utf-8")

    def poll(self) -> int:
        """Read the new records; returns the number of recorded iterations.

        Raises:
            MininetError: an agent has ended.
        """
        for host, process in self._processes.items():
            # An agent ends by itself when all jobs of its host have left.
            if process.poll() is not None and (process.returncode or not self._may_end(host)):
                raise MininetError(
                    f"the agent of {host} ended with {process.returncode}: {last_line(self._log(host))}"
                )
        self._tcp.check()
        return sum(reader.read() for reader in self._readers.values())

    def _may_end(self, host: str) -> bool:
        own = [entry for entry in self._jobs.values() if host in entry.workload.job.hosts]
        return bool(own) and all(entry.iterations or entry.stop_ns for entry in own)

    def begins_ns(self, job: str) -> int:
        """When a job begins to communicate at the earliest, on the monotonic clock."""
        return self._start_ns + self._jobs[job].start_ns

    def stops_ns(self, job: str) -> int | None:
        """The time at which a job leaves, on the monotonic clock; None: at no fixed time."""
        return self._start_ns + self._jobs[job].stop_ns if self._jobs[job].stop_ns else None

    def progress(self, job: str, target: int, now_ns: int) -> float:
        """The finished fraction of a job, 0 to 1. `target` is its number of iterations, unless it leaves at a
        fixed time.
        """
        stops_ns, begins_ns = self.stops_ns(job), self.begins_ns(job)
        if stops_ns is not None:
            return min(1.0, max(0, now_ns - begins_ns) / (stops_ns - begins_ns))
        return min(1.0, self.finished(job) / target)

    def finished(self, job: str) -> int:
        """The number of iterations that every worker of a job has done."""
        hosts = next(w.job.hosts for w in self._scenario.workloads if w.job.name == job)
        return min(len(self._of(job, host)) for host in hosts)

    def records(self, job: str) -> list[IterationRecord]:
        """Every recorded iteration of a job, by rank."""
        hosts = next(w.job.hosts for w in self._scenario.workloads if w.job.name == job)
        return [r for host in hosts for r in self._of(job, host)]

    def _of(self, job: str, host: str) -> list[IterationRecord]:
        reader = self._readers.get(f"{host}/{job}", self._readers[host])
        return [r for r in reader.records if r.job == job]

    def moves_ns(self) -> list[int]:
        """When agents received new paths of flows since the last call, in ns of the monotonic clock."""
        return [move["heard_ns"] for lines in self._moves for move in lines.read()]

    @property
    def start_ns(self) -> int:
        """The time from which those of the jobs count, on the monotonic clock."""
        return self._start_ns

    def stop(self) -> None:
        """End the agents. The controller learns that their jobs have left."""
        self._tcp.stop()
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _log(self, host: str) -> Path:
        return self._folder / f"{host}.log"


class _Lines:
    """Reads the new complete lines of a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class _Records:
    """The iterations of one host, from the file in which its agent records them."""

    def __init__(self, path: Path) -> None:
        self.records: list[IterationRecord] = []
        self._lines = _Lines(path)

    def read(self) -> int:
        for fields in self._lines.read():
            fields["phases"] = tuple(map(tuple, fields["phases"]))
            fields["wire_bytes"] = tuple(fields["wire_bytes"])
            self.records.append(IterationRecord(**fields))
        return len(self.records)
