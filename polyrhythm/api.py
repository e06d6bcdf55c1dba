# SPDX-License-Identifier: Apache-2.0
"""Functions of the public API that no other room has: plan, simulate and run whole scenarios."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.model import Job, Plan, QueuePair
from controller.planner import PlanInput, Policy, plan
from controller.wire.senders import uses_mltcp
from hostagent.job import jittered_start
from polyrhythm.run.comparison import BASELINE, ScenarioResult
from polyrhythm.run.experiment import OverallProgress, RunOptions, ScenarioRunner
from polyrhythm.scenario import Scenario, scenario_path
from polyrhythm.scenario import load_scenario as load_scenario_file
from polyrhythm.scenario.failures import FailureError, parse_failure
from polyrhythm_files import ConfigError
from sim.cluster import JobRequest, machines
from sim.mltcp import LINEAR, check_sender
from sim.network import Network
from sim.output import MarkEstimate, job_rows, summary
from sim.scheduler import scheduler_named
from sim.shape import MESSAGES, PhaseShape, Shape
from sim.simulation import FabricFailure, Simulation, SimulationSettings
from sim.workload import check_connected, read_trace
from topo.graph import Topology

__all__ = [
    "SimulatedJob",
    "SimulationResult",
    "load_scenario",
    "plan_scenario",
    "run_scenario",
    "scenario_workload",
    "simulate",
]


CONTENDED_JITTER = 0.01
"""Flows that share a port under DCQCN do not get exactly equal parts: in the embedded fabric the iterations
of rings that collide differ by 1 to 2 % of their compute. The simulator shares exactly, so without this,
hosts that begin together would collide for ever. Measured."""


def load_scenario(scenario: str | Path) -> Scenario:
    """Read a scenario: a file, or the name of a scenario that comes with Polyrhythm, such as "two_vgg19".

    Raises:
        ConfigError: the file cannot be read or is not a legal scenario.
    """
    return load_scenario_file(scenario_path(str(scenario)))


def plan_scenario(scenario: Scenario, policy: Policy, seed: int = 1) -> Plan:
    """The plan for all jobs of a scenario at once, from the profiles that the scenario declares.

    `seed` decides the random choices of the planner.
    """
    return plan(scenario_input(scenario, policy, seed))


def scenario_input(
    scenario: Scenario, policy: Policy, seed: int = 1, jobs: Sequence[Job] | None = None
) -> PlanInput:
    """The planner's input for `jobs` on the fabric of a scenario; None: all jobs of the scenario."""
    planned = tuple(w.job for w in scenario.workloads) if jobs is None else tuple(jobs)
    return PlanInput(
        topology=scenario.topology,
        jobs=planned,
        policy=policy,
        epoch_ns=0,
        seed=seed,
        elephant_bytes=scenario.elephant_bytes,
        queue_pairs={
            f.name: QueuePair(port_fixed=True)
            for job in planned
            for f in job.flows
            if f.src in scenario.port_choosers
        },
        # The emulated NICs of a scenario can all send by MLTCP.
        mltcp_hosts=frozenset(scenario.topology.host),
    )


def scenario_workload(
    scenario: Scenario, iterations: int | None = None, *, seed: int = 1
) -> list[JobRequest]:
    """The jobs of a scenario for the simulator.

    The bytes on the wire, rate caps, compute times, hosts and arrivals are those of the scenario.
    `iterations` is the number of iterations of each job that has no number of its own; None: as many as the
    scenario runs, warm-up included. Each worker begins as much later than its job as the emulated one does
    under the same `seed`.

    Raises:
        ValueError: a job leaves at a fixed time, which the simulator does not know, or has a sender of which
        the simulator has no equivalent.
    """
    overhead = scenario.frame_bytes / scenario.packet_bytes
    count = iterations or scenario.warmup + scenario.iterations
    requests = []
    for workload in scenario.workloads:
        job = workload.job
        if workload.stop_ns is not None:
            raise ValueError(f"job {job.name} has stop_ms; legal in a simulation: iterations")
        check_sender(job.sender, f"job {job.name}")
        rank = {host: number for number, host in enumerate(job.hosts)}
        ends = [(rank[flow.src], rank[flow.dst]) for flow in job.flows]
        phases = tuple(
            PhaseShape(
                MESSAGES,
                0.0,
                after_ns=step.compute_ns,
                limit_bps=step.rate_bps,
                messages=tuple((a, b, size) for (a, b), size in zip(ends, step.sizes, strict=True)),
            )
            for step in workload.steps
        )
        requests.append(
            JobRequest(
                name=job.name,
                model=job.model,
                arrival_ns=workload.arrival_ns + workload.lead_ns,
                gpus=job.gpus,
                iterations=workload.iterations or count,
                shape=Shape(phases, overhead=overhead, flops=job.flops_per_iteration),
                ranks=job.hosts,
                delays_ns=tuple(
                    jittered_start(seed, job.name, rank, scenario.start_jitter_ns)
                    for rank in range(len(job.hosts))
                ),
                jitter=workload.jitter,
                contended_jitter=max(workload.jitter, CONTENDED_JITTER),
                mltcp=LINEAR if uses_mltcp(job.sender) else "",
            )
        )
    return requests


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """The figures of one job in a simulation. A value is None if it is not known, for example `ended_s` of a
    job that had not ended when the simulation stopped.

    Times in s count from the start of the simulation. `ideal_iteration_ms` is the iteration time without
    other jobs. `ecn_marks_per_iteration` is an estimate in packets.
    """

    name: str
    model: str
    gpus: int
    hosts: tuple[str, ...]
    arrival_s: float
    started_s: float | None
    ended_s: float | None
    iterations: int | None
    ideal_iteration_ms: float | None
    mean_iteration_ms: float | None
    p99_iteration_ms: float | None
    ecn_marks_per_iteration: float | None


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The figures of a simulation under one policy.

    `gpu_utilisation` (0 to 1) is the compute time of all GPUs over the time that they were allocated.
    `makespan_s` is the end of the last job. Completion times count from a job's arrival. `mean_slowdown` is
    the mean over the finished jobs of the iteration time over the ideal one. A value is None if no job has
    finished.
    """

    policy: str
    jobs: Mapping[str, SimulatedJob]
    finished: int
    unfinished: int
    gpu_utilisation: float | None
    makespan_s: float | None
    mean_completion_s: float | None
    p99_completion_s: float | None
    mean_slowdown: float | None


def simulate(
    topology: Topology,
    workload: Sequence[JobRequest] | str,
    policy: str | Policy = "polyrhythm",
    *,
    seed: int = 1,
    gpus_per_server: int = 8,
    scheduler: str = "fifo",
    hours: float = 24.0,
    until_s: float = 0.0,
    elephant_bytes: int = 1024,
    failures: Sequence[FabricFailure] = (),
) -> SimulationResult:
    """Simulate a workload on a cluster under a policy, flow by flow.

    `workload` is a list of jobs, or what `polyrhythm sim --trace` takes: a trace file, or a generator such as
    "poisson:100", whose arrivals are spread over `hours`. Each server of `topology` has `gpus_per_server`
    GPUs. `scheduler` decides which waiting job runs next: "fifo", "backfill", "least-attained", or one of
    placements like "dally" (docs/simulator.md). The simulation stops at `until_s` seconds, or when all jobs
    have ended (0). Flows with fewer than `elephant_bytes` bytes in an iteration are left to ECMP.

    Raises:
        ValueError: the policy or scheduler is unknown, the cluster cannot run a job, or a file is not legal.
            The message says what would be legal.
    """
    check_connected(topology)
    cluster = machines(Network(topology), gpus_per_server)
    requests = read_trace(workload, cluster, seed, hours) if isinstance(workload, str) else list(workload)
    name = policy if isinstance(policy, str) else policy.name
    settings = SimulationSettings(
        policy=name, seed=seed, until_ns=round(until_s * 1e9), elephant_bytes=elephant_bytes
    )
    own: dict[str, Any] = {} if isinstance(policy, str) else {"policies": {name: policy}}
    simulation = Simulation(
        cluster, requests, settings, scheduler=scheduler_named(scheduler), failures=failures, **own
    )
    simulation.run()
    figures = summary(simulation)
    columns, rows = job_rows(simulation, MarkEstimate())
    jobs = [_simulated_job(dict(zip(columns, row, strict=True))) for row in rows]
    return SimulationResult(
        policy=name,
        jobs={job.name: job for job in jobs},
        finished=figures["finished"],
        unfinished=figures["unfinished"],
        gpu_utilisation=figures["gpu_utilisation"],
        makespan_s=figures["makespan_s"],
        mean_completion_s=figures["mean_completion_s"],
        p99_completion_s=figures["p99_completion_s"],
        mean_slowdown=figures["mean_slowdown"],
    )


def _simulated_job(row: Mapping[str, Any]) -> SimulatedJob:
    return SimulatedJob(
        name=row["job"],
        model=row["model"],
        gpus=row["gpus"],
        hosts=tuple(row["hosts"].split()),
        arrival_s=row["arrival_s"],
        started_s=row["started_s"],
        ended_s=row["ended_s"],
        iterations=row["iterations"],
        ideal_iteration_ms=row["ideal_iteration_ms"],
        mean_iteration_ms=row["mean_iteration_ms"],
        p99_iteration_ms=row["p99_iteration_ms"],
        ecn_marks_per_iteration=row["ecn_marks_per_iteration"],
    )


def run_scenario(
    scenario: str | Path,
    policy: str = "polyrhythm",
    *,
    compare: Sequence[str] = (),
    seed: int = 1,
    offsets: int = 0,
    lanes: int = 2,
    fail: Sequence[str] = (),
    fabric: str = "embedded",
    profile: str = "",
    scale: float | None = None,
    folder: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> ScenarioResult:
    """Run a scenario packet by packet: each job alone, all jobs under plain ECMP, and all under `policy`.

    This is `polyrhythm run` as a function; docs/run.md describes the measurement. It starts processes
    (`python -m polyrhythm ...`), and it cannot be called while an asyncio loop runs in the same thread.

    `scenario` is a file, or the name of a scenario that comes with Polyrhythm. `compare` names further
    policies to measure (`ScenarioResult.rivals`). `offsets` is the number of additional runs from random
    start offsets, `lanes` the number of sessions that run at once. `fail` lists failures, such as
    "spine2@3000" or "leaf1:spine2@3000-3500" (ms of fabric time). `fabric` is "embedded" or "mininet" (needs
    root). `profile` is "measured", "declared", or "" for what the scenario says. `scale` replaces the
    scenario's; None: with "mininet" it is doubled, up to three times, where the machine is too slow
    (`ScenarioResult.asked_scale`). Logs are written to `folder`; None: to a temporary folder. `progress` is
    called with the finished fraction, 0 to 1.

    Raises:
        ConfigError: the scenario or a failure is not legal.
        RunError: a process of the run ended early; the message has the last lines of its log.
    """
    path = scenario_path(str(scenario))
    loaded = load_scenario_file(path, scale)
    for text in fail:
        try:
            parse_failure(text, loaded.topology)
        except FailureError as error:
            raise ConfigError(f"fail: {error}") from None
    options = RunOptions(
        seed=seed,
        policy=policy,
        rivals=tuple(name for name in dict.fromkeys(compare) if name not in (BASELINE, policy)),
        offsets=offsets,
        lanes=lanes if fabric == "embedded" else 1,
        fail=tuple(fail),
        fabric=fabric,
        profile=profile,
        scale=scale,
    )
    place = tempfile.TemporaryDirectory(prefix="polyrhythm-") if folder is None else nullcontext(str(folder))
    with place as workdir:
        runner = ScenarioRunner(options, Path(workdir), OverallProgress(progress or (lambda fraction: None)))
        return asyncio.run(_compare(runner, path, loaded))


async def _compare(runner: ScenarioRunner, path: Path, scenario: Scenario) -> ScenarioResult:
    return await runner.compare(path, scenario)
