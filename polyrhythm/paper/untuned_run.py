# SPDX-License-Identifier: Apache-2.0
"""One simulation of an untuned workload: from its task to the row that is kept."""

from __future__ import annotations

from collections.abc import Mapping

from controller.interleave.timing import Circles
from controller.planner import Policy, policy_named
from controller.priority.priorities import Crux
from controller.routing.spreading import Spray
from polyrhythm.paper.resumable import Row, Task
from polyrhythm.paper.unjudged import UNJUDGED
from polyrhythm.paper.untuned_jobs import UntunedSpec, cluster, workload
from polyrhythm.paper.untuned_table import UntunedRun
from sim.scheduler import scheduler_named
from sim.simulation import Simulation, SimulationSettings

POLICIES = (
    "ecmp",
    "crux",
    "cassini",
    "mltcp",
    "polyrhythm",
    "polyrhythm-unjudged",
    "routing",
    "spray",
    "dlb",
    "spray-priority",
    "spray-time",
)
"""What is compared. ECMP is the base. `mltcp` has DCQCN with MLTCP's growth."""
OWN: Mapping[str, Policy] = {
    "polyrhythm-unjudged": UNJUDGED,
    "spray-priority": Policy("spray-priority", Spray(), Crux()),
    "spray-time": Policy("spray-time", Spray(), timing=Circles()),
}
"""The default policy without its judge; what priorities and time-shifts add to spraying."""
SCHEDULER = "gandiva"


def task_of(spec: UntunedSpec, policy: str) -> Task:
    """The name under which the row of a simulation is kept."""
    return (spec.trace, spec.topology, spec.load, spec.seed, spec.jobs_a_gpu, spec.digest, policy)


def measure(task: Task) -> Row:
    """Simulate the jobs of a task under its policy until all have ended.

    Jobs get GPUs in the order of their arrival, as close together as possible; a job that does not fit lets
    later ones overtake.
    """
    *fields, name = task
    spec = UntunedSpec(*fields)
    jobs = workload(spec).requests
    settings = SimulationSettings(policy=name, seed=spec.seed, log=False)
    simulation = Simulation(
        cluster(spec.topology),
        jobs,
        settings,
        scheduler=scheduler_named(SCHEDULER),
        policies={name: OWN.get(name) or policy_named(name)},
    )
    simulation.run()
    outcomes = [simulation.memory.outcomes[job.name] for job in jobs]
    return {
        "completion_s": [round(o.ended / 1e12 - o.request.arrival_ns / 1e9, 6) for o in outcomes],
        "computed": sum(o.request.gpus * o.iterations * o.request.shape.compute_ns / 1e9 for o in outcomes),
        "allocated": sum(o.request.gpus * (o.ended - o.started) / 1e12 for o in outcomes),
    }


def run_of(row: Row) -> UntunedRun:
    """The figures of a row."""
    return UntunedRun(tuple(row["completion_s"]), row["computed"], row["allocated"])
