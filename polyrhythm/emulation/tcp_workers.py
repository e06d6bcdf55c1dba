# SPDX-License-Identifier: Apache-2.0
"""The workers of jobs with `sender: kernel-tcp` on the Mininet fabric: processes under the socket shim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polyrhythm_job
from hostagent.config import BUILT_SOCKET_SHIM, load_config
from hostagent.job import jittered_start
from hostagent.nccl_environment import nccl_environment
from polyrhythm.emulation.agent_config import AgentJob
from polyrhythm.emulation.folder import last_line
from polyrhythm.scenario import Scenario
from topo.mininet import MininetError, MininetFabric

_PROGRAM = Path(__file__).parent / "tcp_worker.py"
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_FIRST_PORT = 20_000
"""The jobs' workers listen on this port and those after it. Chosen."""


def check_kernel(scenario: Scenario) -> None:
    """Check that this machine can run the jobs on kernel TCP.

    Raises:
        MininetError: it cannot; the message says what is missing.
    """
    jobs = [workload for workload in scenario.workloads if workload.on_kernel_tcp]
    if jobs and not BUILT_SOCKET_SHIM.is_file():
        raise MininetError(f"{scenario.name}: sender: kernel-tcp needs the socket shim; make shim")
    available = _AVAILABLE.read_text(encoding="ascii").split() if jobs else []
    for workload in jobs:
        if workload.congestion_control not in available:
            raise MininetError(
                f"{scenario.name}: job {workload.job.name}: this kernel has no congestion control "
                f"{workload.congestion_control}; legal: {', '.join(available)}"
            )


class TcpWorkers:
    """The workers of some jobs. `seed` and `start` as of the agents; their files are in `folder`, and the
    sockets of the agents in `sockets`, whose path is short.

    Raises:
        MininetError: a worker ended.
    """

    def __init__(
        self,
        fabric: MininetFabric,
        scenario: Scenario,
        jobs: Sequence[AgentJob],
        *,
        seed: int,
        start: Path,
        folder: Path,
        sockets: Path,
    ) -> None:
        self._fabric, self._scenario = fabric, scenario
        self._jobs = [job for job in jobs if job.workload.on_kernel_tcp]
        self._seed, self._start, self._folder, self._sockets = seed, start, folder, sockets
        self._processes: dict[str, subprocess.Popen[Any]] = {}

    def agent_folder(self, host: str) -> str:
        """Where the agent of a host has its socket and its socket map; empty: it needs neither."""
        if not any(host in job.workload.job.hosts for job in self._jobs):
            return ""
        own = self._sockets / host
        own.mkdir(parents=True, exist_ok=True)
        return str(own)

    def start(self, configs: Mapping[str, Path]) -> dict[str, Path]:
        """Start the workers, whose hosts' agents serve. `configs`: the configurations of the agents. Returns
        the records of each worker, by "HOST/JOB".
        """
        records = {}
        for number, job in enumerate(self._jobs):
            for rank, host in enumerate(job.workload.job.hosts):
                key = f"{host}/{job.workload.job.name}"
                file = self._folder / f"{host}-tcp{number}"
                records[key] = file.with_suffix(".jsonl")
                records[key].write_text("", encoding="utf-8")
                settings = self._settings(job, rank, _FIRST_PORT + number, records[key])
                file.with_suffix(".json").write_text(json.dumps(settings), encoding="utf-8")
                environment = {
                    **os.environ,
                    **nccl_environment(load_config(configs[host]), job.workload.job.name),
                    "PYTHONPATH": str(Path(polyrhythm_job.__file__).parents[1]),
                }
                with self._log(key).open("wb") as sink:
                    process = self._fabric.spawn(
                        host, [sys.executable, str(_PROGRAM), str(file.with_suffix(".json"))],
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, env=environment,
                    )  # fmt: skip
                self._processes[key] = process
        for key, process in self._processes.items():
            assert process.stdout is not None
            if not process.stdout.readline():
                raise MininetError(f"worker {key} did not start: {last_line(self._log(key))}")
        return records

    def check(self) -> None:
        """Check that no worker has failed.

        Raises:
            MininetError: one has.
        """
        for key, process in self._processes.items():
            if process.poll():
                raise MininetError(
                    f"worker {key} ended with {process.returncode}: {last_line(self._log(key))}"
                )

    def stop(self) -> None:
        """End the workers."""
        for process in self._processes.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _log(self, key: str) -> Path:
        return self._folder / f"{key.replace('/', '.')}.log"

    def _settings(self, agent_job: AgentJob, rank: int, port: int, records: Path) -> dict[str, Any]:
        """What `tcp_worker.py` reads."""
        workload = agent_job.workload
        job, topology = workload.job, self._scenario.topology
        profile = agent_job.profile or {
            "period_ns": job.profile.period_ns,
            "phases": [[phase.start_ns, phase.end_ns] for phase in job.profile.phases],
        }
        jitter_ns = jittered_start(self._seed, job.name, rank, agent_job.start_jitter_ns)
        return {
            "name": job.name, "model": job.model, "gpus": job.gpus, "hosts": job.hosts, "rank": rank,
            "own": job.hosts[rank], "flows": [[flow.src, flow.dst] for flow in job.flows],
            "addresses": {host: topology.host[host].ip for host in job.hosts}, "port": port,
            "congestion_control": workload.congestion_control, "flops": job.flops_per_iteration,
            "bytes_per_flow": max(flow.bytes_per_iteration for flow in job.flows),
            "period_ms": profile["period_ns"] / 1e6,
            "phases_ms": [[phase[0] / 1e6, phase[1] / 1e6] for phase in profile["phases"]],
            "phases": [
                {"bytes": step.sizes, "rate_bps": step.rate_bps, "down_ns": step.compute_ns}
                for step in workload.steps
            ],
            "jitter": workload.jitter, "seed": self._seed, "start": str(self._start),
            "start_ns": agent_job.start_ns + jitter_ns, "stop_ns": agent_job.stop_ns,
            "iterations": agent_job.iterations, "records": str(records),
        }  # fmt: skip
