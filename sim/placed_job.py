# SPDX-License-Identifier: Apache-2.0
"""A requested job on the servers of a placement: its tasks there, and the job that the planner sees."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from controller.model import Job
from sim.cluster import Cluster, JobRequest, Placement, ranks_of
from sim.shape import planner_job, program
from sim.task_graph import TaskGraph
from sim.uncontended import best_rates, uncontended


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A job on its servers. `built` are its tasks, in a loop for each rank if `by_rank`, and `job` is what
    the planner knows. Alone, an iteration takes `iteration_ps`, its first flow begins after `lead_ps`, and no
    rank's iteration without jitter is shorter than `fastest_ps`."""

    built: TaskGraph
    by_rank: bool
    job: Job
    iteration_ps: int
    lead_ps: int
    fastest_ps: int

    @property
    def flows(self) -> Sequence[str]:
        """The names of its flows."""
        return tuple(dict.fromkeys(c.flow for c in self.built.channels))


def placed_request(cluster: Cluster, request: JobRequest, placement: Placement) -> PlacedRequest:
    """The job on these servers, alone on the network."""
    ranks, shape = ranks_of(cluster, request, placement)
    network = cluster.network
    built = program(shape, request.name, ranks)
    # The planner knows the job with its ranks in step, as they are where nothing disturbs it.
    by_rank = len(built.loops) > 2
    planned = program(shape, request.name, ranks, barriers=True) if by_rank else built
    lone = uncontended(planned, network)
    fastest = lone.fastest_ps
    if by_rank:
        fastest = int(built.timeline(best_rates(built, network))[1][built.loops[1:] - 1].min())
    job = planner_job(shape, request.name, request.model, request.gpus, planned, lone.profile)
    return PlacedRequest(built, by_rank, job, lone.iteration_ps, lone.lead_ps, fastest)


def candidate_jobs(
    cluster: Cluster,
    running: Mapping[str, tuple[Job, Placement]],
    placements: Mapping[str, tuple[JobRequest, Placement]],
    stopped: Collection[str],
) -> list[Job]:
    """The jobs of a candidate: those of `placements` there, and the running ones that are not `stopped`."""
    stay = {
        name: job
        for name, (job, there) in running.items()
        if name not in stopped and placements.get(name, (None, there))[1] == there
    }
    moved = [placed_request(cluster, *placed).job for name, placed in placements.items() if name not in stay]
    return [*stay.values(), *moved]
