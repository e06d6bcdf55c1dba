# SPDX-License-Identifier: Apache-2.0
"""The route that ranks candidate placements of a new job beside the present ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.problems import STANDBY, OperationError, problems
from controller.northbound.tokens import Role
from controller.planner.placement import MOST, RankedPlacement


class PlacementsIn(schema.Out):
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


class PlacementsOut(schema.Out):
    """The candidates, the most compatible first."""

    placements: tuple[PlacementOut, ...]


class PlacementOperations(Protocol):
    """What the route calls."""

    async def rank(self, candidates: list[dict[str, Any]], loops: bool) -> Sequence[RankedPlacement]:
        """The candidates, the most compatible first. Raises OperationError."""


def placements_out(found: Sequence[RankedPlacement]) -> PlacementsOut:
    """Ranked placements as JSON values."""
    return PlacementsOut(
        placements=tuple(
            PlacementOut(
                index=p.index,
                hosts=p.job.hosts,
                compatibility=p.compatibility,
                lost=p.lost,
                loops=p.loops,
                links=tuple(
                    LinkScoreOut(
                        src=k.link[0], dst=k.link[1], jobs=k.jobs, score=k.score, best_score=k.best_score
                    )
                    for k in p.links
                ),
                cut_off=p.cut_off,
                why=p.why,
            )
            for p in found
        )
    )


def placement_routes(operations: PlacementOperations | None) -> APIRouter:
    """The route. `operations` None: a controller that does not lead; it answers 503."""
    router = APIRouter(tags=["placements"])

    @router.post(
        "/placements",
        summary="Rank candidate placements of a new job",
        description="By the compatibility of the links that it would share with the present jobs (CASSINI, "
        "Algorithm 2). Nothing is changed.",
        responses=problems(_409="The fabric cannot have such a job.", _503="This controller does not lead."),
        dependencies=[requires(Role.JOB)],
    )
    async def rank(asked: Annotated[PlacementsIn, Body()]) -> PlacementsOut:
        if operations is None:
            raise OperationError(503, STANDBY)
        return placements_out(await operations.rank(asked.candidates, asked.loops))

    return router
