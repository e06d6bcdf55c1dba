# SPDX-License-Identifier: Apache-2.0
"""A cluster and its jobs for the simulator, from a scenario, or from a trace and a topology file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from polyrhythm.api import load_scenario, scenario_workload
from polyrhythm.scenario import scenario_path
from polyrhythm_files import ConfigError
from sim.cluster import Cluster, JobRequest, WorkloadError, check, check_lengths, machines
from sim.network import HostInternals, Network
from sim.output import MarkEstimate
from sim.simulation import SimulationSettings
from sim.workload import check_connected, read_trace
from topo.files import load_topology
from topo.lingjun import lingjun_topology

TIDY_AT_LEAST = 10
"""Chosen: the least number of events between two points where a checkpoint may be taken."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What topology files and traces leave open: the GPUs of a server, the rates inside it (Gbit/s, 0: no
    limit), the rates of Lingjun's topo.csv (Gbit/s), and the hours over which generated jobs arrive."""

    gpus_per_server: int = 8
    pcie_gbps: float = 0.0
    nvlink_gbps: float = 0.0
    host_gbps: float = 200.0
    fabric_gbps: float = 400.0
    hours: float = 24.0


@dataclass(frozen=True)
class SimulatedWorkload:
    """The jobs, the cluster that they run on, and what the scenario says of small flows and of marks."""

    cluster: Cluster
    requests: tuple[JobRequest, ...]
    elephant_bytes: int = 1024
    marking: MarkEstimate = field(default_factory=MarkEstimate)


def load_workload(trace: str, topology: Path | None, options: ClusterOptions, seed: int) -> SimulatedWorkload:
    """Read a scenario (`topology` None), or a trace or generator on a topology. `seed` is of drawn jobs.

    Raises:
        ConfigError, TraceError, WorkloadError: a file or name that cannot be used, or jobs that the cluster
            can never run; one line with file, row and column, or line and path.
    """
    found = _read(trace, topology, options, seed)
    check(found.cluster, found.requests)
    return found


def settings_of(
    workload: SimulatedWorkload,
    seed: int,
    *,
    replan_delay_ms: float,
    restore_s: float,
    until_s: float,
    samples_s: float,
) -> SimulationSettings:
    """The settings of a simulation of this workload, for any policy.

    Raises:
        WorkloadError: without `until_s`, a job that cannot end while the simulator's clock runs.
    """
    if not until_s:
        check_lengths(workload.requests)
    return SimulationSettings(
        # This depends on the number of jobs, never on the clock, so a resumed simulation gives the same
        # result.
        tidy=min(SimulationSettings().tidy, max(TIDY_AT_LEAST, len(workload.requests) // 10)),
        seed=seed,
        replan_delay_ns=round(replan_delay_ms * 1e6),
        restore_ns=round(restore_s * 1e9),
        until_ns=round(until_s * 1e9),
        samples_ns=round(samples_s * 1e9),
        elephant_bytes=workload.elephant_bytes,
    )


def is_scenario(trace: str) -> bool | None:
    """Whether a trace is a scenario; None if that is unknown.

    The name says so, or the first character of a file that could be both (JSON).
    """
    path = Path(trace)
    if ":" in trace or path.suffix == ".csv":
        return False
    if path.suffix == ".json" and path.is_file():
        with path.open("rb") as file:
            return file.read(1024).lstrip().startswith(b"{")
    if path.suffix in {".yaml", ".yml"}:
        return True
    if path.exists():
        return None
    with suppress(ConfigError):
        return scenario_path(trace).exists() or None
    return None


def _read(trace: str, topology: Path | None, options: ClusterOptions, seed: int) -> SimulatedWorkload:
    inside = HostInternals(round(options.pcie_gbps * 1e9), round(options.nvlink_gbps * 1e9))
    of_scenario = is_scenario(trace)
    if topology is None:
        if of_scenario is False:
            raise WorkloadError("--topology is needed: only a scenario has its own fabric")
        scenario = load_scenario(trace)
        largest = max(w.job.gpus for w in scenario.workloads)
        return SimulatedWorkload(
            machines(Network(scenario.topology, inside), max(options.gpus_per_server, largest)),
            tuple(scenario_workload(scenario, seed=seed)),
            scenario.elephant_bytes,
            MarkEstimate(8 * scenario.frame_bytes),
        )
    if of_scenario:
        raise WorkloadError(f"{trace}: a scenario has its own fabric; omit --topology")
    if topology.suffix == ".csv":
        read = lingjun_topology(
            topology,
            host_bps=round(options.host_gbps * 1e9),
            fabric_bps=round(options.fabric_gbps * 1e9),
        )
    else:
        read = load_topology(topology)
    check_connected(read)
    cluster = machines(Network(read, inside), options.gpus_per_server)
    return SimulatedWorkload(cluster, tuple(read_trace(trace, cluster, seed, options.hours)))
