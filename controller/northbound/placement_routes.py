# SPDX-License-Identifier: Apache-2.0
"""The route that ranks candidate placements of a new job beside the present ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Protocol

from fastapi import APIRouter, Body
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.problems import STANDBY, OperationError, problems
from controller.northbound.tokens import Role
from controller.placement.advice import PlacementAdvice, advise
from controller.placement.latency import Sensitivity
from controller.placement.machines import NetworkTier
from controller.planner.placement import MOST, RankedPlacement

MOST_SENSITIVE = 1e6
"""Chosen: communication of a million times the compute is a mistake."""
MOST_WAITED_S = 1e9
"""Chosen: thirty years."""
_TIERS: Final[dict[NetworkTier, Literal["machine", "rack", "network"]]] = {
    NetworkTier.MACHINE: "machine",
    NetworkTier.RACK: "rack",
    NetworkTier.NETWORK: "network",
}


class SensitivityIn(schema.In):
    """The communication of a job with 8 GPUs that its compute does not hide, as a part of the compute."""

    machine: float = Field(description="On one machine.", ge=0, le=MOST_SENSITIVE)
    rack: float = Field(description="On eight machines of one rack.", ge=0, le=MOST_SENSITIVE)
    network: float = Field(description="In eight racks.", ge=0, le=MOST_SENSITIVE)


class PlacementsIn(schema.In):
    """Candidate placements of one new job."""

    candidates: list[dict[str, Any]] = Field(
        description="The new job once for each candidate, with the hosts and flows that it would have there; "
        "jobs as `polyrhythm place --controller` sends them.",
        min_length=1,
        max_length=MOST,
    )
    loops: bool = Field(
        True, description="false: leave out candidates with a loop in the affinity graph, as the thesis does."
    )
    sensitivity: SensitivityIn | None = Field(
        None, description="The job's sensitivity to the network (Dally, Table I); it gives `communication`."
    )
    waited_s: float = Field(
        0.0,
        description="How long the job has waited for hosts; it shortens `wait_s`.",
        ge=0,
        le=MOST_WAITED_S,
    )


class LinkScoreOut(schema.Out):
    """A full link that several jobs would share."""

    src: str
    dst: str
    jobs: tuple[str, ...]
    score: float = Field(description="Compatibility score under the shifts of the whole placement, up to 1.")
    best_score: float = Field(description="Compatibility score of the link alone, up to 1.")


class PlacementOut(schema.Out):
    """A candidate with its rank values."""

    index: int = Field(description="Position in the list of candidates.")
    hosts: tuple[str, ...]
    compatibility: float = Field(description="Mean score of the links; 1 without any.")
    lost: float = Field(description="The part of it that loops in the affinity graph cost.")
    loops: bool
    links: tuple[LinkScoreOut, ...]
    cut_off: tuple[str, ...] = Field(description="Flows of the job that have no path.")
    why: str
    tier: Literal["machine", "rack", "network"] = Field(
        description="What connects the hosts: one machine, one leaf, or the fabric."
    )
    communication: float | None = Field(
        description="Exposed communication as a part of the compute time; null without `sensitivity`."
    )
    wait_s: float = Field(
        description="How much longer Dally would wait for closer hosts before it takes these."
    )


class PlacementsOut(schema.Out):
    """The candidates, the most compatible first."""

    placements: tuple[PlacementOut, ...]


class PlacementOperations(Protocol):
    """What the route calls."""

    async def rank(self, candidates: list[dict[str, Any]], loops: bool) -> Sequence[RankedPlacement]:
        """The candidates, the most compatible first. Raises OperationError."""


def placements_out(
    found: Sequence[RankedPlacement], sensitivity: Sensitivity | None, waited_s: float
) -> PlacementsOut:
    """Ranked placements as JSON values, with Dally's advice for a job that has waited for `waited_s`."""
    return PlacementsOut(
        placements=tuple(_placement_out(p, advise(p.place, sensitivity, waited_s)) for p in found)
    )


def _placement_out(placement: RankedPlacement, advice: PlacementAdvice) -> PlacementOut:
    return PlacementOut(
        index=placement.index,
        hosts=placement.job.hosts,
        compatibility=placement.compatibility,
        lost=placement.lost,
        loops=placement.loops,
        links=tuple(
            LinkScoreOut(src=k.link[0], dst=k.link[1], jobs=k.jobs, score=k.score, best_score=k.best_score)
            for k in placement.links
        ),
        cut_off=placement.cut_off,
        why=placement.why,
        tier=_TIERS[advice.tier],
        communication=advice.communication,
        wait_s=advice.wait_s,
    )


def placement_routes(operations: PlacementOperations | None) -> APIRouter:
    """The route. `operations` None: a controller that does not lead; it answers 503."""
    router = APIRouter(tags=["placements"])

    @router.post(
        "/placements",
        summary="Rank candidate placements of a new job",
        description="By the compatibility of the links that it would share with the present jobs (CASSINI, "
        "Algorithm 2), with the tier of the hosts and Dally's advice to wait for closer ones. Nothing is "
        "changed.",
        responses=problems(_409="The fabric cannot have such a job.", _503="This controller does not lead."),
        dependencies=[requires(Role.JOB)],
    )
    async def rank(asked: Annotated[PlacementsIn, Body()]) -> PlacementsOut:
        if operations is None:
            raise OperationError(503, STANDBY)
        own = asked.sensitivity
        sensitivity = None if own is None else Sensitivity(own.machine, own.rack, own.network)
        found = await operations.rank(asked.candidates, asked.loops)
        return placements_out(found, sensitivity, asked.waited_s)

    return router
