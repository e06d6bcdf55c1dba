# SPDX-License-Identifier: Apache-2.0
"""One simulation of a sweep, from its inputs to a row of figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from controller.planner import policy_named
from polyrhythm.paper.resumable import PROGRAM, Row, Task, mark
from polyrhythm.simulated_workload import SimulatedWorkload, settings_of
from sim.checkpoint import fingerprint
from sim.output import job_rows, summary, versions
from sim.scheduler import scheduler_named
from sim.simulation import Simulation

COLUMNS = ("trace", "topology", "policy", "scheduler", "seed")
SUMMARY = (
    "jobs", "finished", "mean_completion_s", "p99_completion_s", "makespan_s", "mean_slowdown",
    "gpu_utilisation", "iterations", "iterations_skipped", "events",
)  # fmt: skip
"""The figures of `sim.output.summary` that a row holds."""
SOURCES = (*PROGRAM, "polyrhythm/sweep", "polyrhythm/simulated_workload.py")
"""The folders and files of the sources on which a row depends."""


class OtherProgramError(RuntimeError):
    """The worker runs other sources than the command."""


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation. `trace` and `topology` are as the file names them (topology "": the scenario's own),
    `trace_file` and `topology_file` where they are."""

    trace: str
    trace_file: str
    topology: str
    topology_file: str
    policy: str
    scheduler: str
    seed: int
    lease_s: float
    until_s: float
    replan_delay_ms: float
    restore_s: float = 0.0

    @property
    def columns(self) -> tuple[str | int, ...]:
        """The values of COLUMNS."""
        return (self.trace, self.topology, self.policy, self.scheduler, self.seed)


def task_of(point: Point, inputs: str) -> Task:
    """The name under which the row of a point is kept. It changes with everything that the row depends on;
    `inputs` is the digest of the workload."""
    settings = fingerprint(
        inputs, point.lease_s, point.until_s, point.replan_delay_ms, point.restore_s, versions(),
        policy_named(point.policy).reference,
    )  # fmt: skip
    return (*point.columns, settings.hex())


def inputs_digest(workload: SimulatedWorkload) -> str:
    """A digest of the network, the servers and the jobs."""
    network = workload.cluster.network
    return fingerprint(
        network.topology, network.inside, workload.cluster.servers, workload.requests, workload.elephant_bytes
    ).hex()


def measure(point: Point, workload: SimulatedWorkload, program: str) -> Row:
    """Simulate a point. `program` is the digest of the sources of the process that wants the row.

    Raises:
        OtherProgramError: this process has other sources.
        ValueError: the simulation cannot run; the message is for a person.
    """
    if mark(SOURCES) != program:
        raise OtherProgramError(
            f"this worker has another Polyrhythm ({versions()['polyrhythm']}) than the command: install the "
            "same on both"
        )
    settings = settings_of(
        workload,
        point.seed,
        replan_delay_ms=point.replan_delay_ms,
        restore_s=point.restore_s,
        until_s=point.until_s,
        samples_s=0.0,
    )
    simulation = Simulation(
        workload.cluster,
        workload.requests,
        replace(settings, policy=point.policy),
        scheduler=scheduler_named(point.scheduler, lease_s=point.lease_s, seed=point.seed),
        policies={point.policy: policy_named(point.policy)},
    )
    simulation.run()
    found: dict[str, Any] = summary(simulation)
    columns, jobs = job_rows(simulation, workload.marking)
    return {
        "summary": {name: found[name] for name in SUMMARY},
        "columns": list(columns),
        "jobs": [list(job) for job in jobs],
    }
