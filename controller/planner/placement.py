# SPDX-License-Identifier: Apache-2.0
"""Where to put a new job: candidate placements ranked by who would share links (CASSINI's Algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.interleave.candidates import MOST, rank
from controller.interleave.link_sharing import SLACK, contended
from controller.model import Job
from controller.planner.demand import Demands
from controller.planner.inputs import PlanInput, check
from controller.planner.routing_stage import route_flows


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate by its place in the list given. `links` are the full ones that jobs would share with it in
    place, `compatibility` the mean of their scores, 1 where there are none; `lost` what loops cost of it."""

    index: int
    job: Job
    compatibility: float
    lost: float
    links: tuple[tuple[str, str], ...]


def rank_placements(
    inputs: PlanInput,
    candidates: Sequence[Job],
    *,
    most: int = MOST,
    workers: int = 1,
    loops: bool = True,
) -> list[Placed]:
    """The first `most` candidates for one new job, most compatible first; each has its hosts and flows.

    `inputs` holds the jobs that run already; the paths are what its policy would decide with the candidate.
    `loops` False discards candidates with a loop in the affinity graph, as the thesis does. `workers` threads
    share the work; the order does not depend on them. Raises ValueError for jobs the fabric cannot have.
    """
    shared = []
    periods: dict[str, int] = {}
    for job in candidates[:most]:
        tried = replace(inputs, jobs=(*inputs.jobs, job))
        check(tried)
        demands = Demands(tried)
        shared.append([k for k in route_flows(demands).shared if contended(k, SLACK)])
        periods |= {name: p.period_ns for name, p in demands.profiles.items()}
    found = rank(shared, periods, most=most, workers=workers, loops=loops, seed=inputs.seed)
    return [
        Placed(
            index=r.index,
            job=candidates[r.index],
            compatibility=r.compatibility,
            lost=r.lost,
            links=tuple(k.name for k in shared[r.index]),
        )
        for r in found
    ]
