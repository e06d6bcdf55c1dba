# SPDX-License-Identifier: Apache-2.0
"""Ranks candidate placements of a new job by how well it can share links in time (CASSINI, Algorithm 2)."""

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
class RankedPlacement:
    """One candidate placement with its rank values.

    `index` is its position in the list of candidates. `links` are the full links that jobs would share.
    `compatibility` is the mean score of these links, 1 if there are none. `lost` is the part of it that is
    lost because the affinity graph has loops.
    """

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
) -> list[RankedPlacement]:
    """Rank the first `most` candidates for one new job, most compatible first.

    Each candidate is the new job with its hosts and flows. `inputs` holds the jobs that run already. Paths
    are what the policy of `inputs` chooses for these jobs and the candidate. `loops` False discards
    candidates with a loop in the affinity graph, as the thesis does. `workers` is the number of threads; the
    order does not depend on it.

    Raises:
        ValueError: a job that the fabric cannot have; the message says why.
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
        RankedPlacement(
            index=r.index,
            job=candidates[r.index],
            compatibility=r.compatibility,
            lost=r.lost,
            links=tuple(k.name for k in shared[r.index]),
        )
        for r in found
    ]
