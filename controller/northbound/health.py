# SPDX-License-Identifier: Apache-2.0
"""`/healthz` and `/readyz`: whether the controller lives, and what is missing for it to do all its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import Field

from controller.northbound.schema import Out

HEALTH_PATHS = ("/healthz", "/readyz")
# Chosen: what an answer names at most of each part; the counts are whole.
MOST_NAMED = 100

PartName = Literal["leader", "switch", "agent", "store", "plan"]
ControllerRole = Literal["alone", "leader", "standby"]


@dataclass(frozen=True, slots=True)
class NotReady:
    """A part that is not ready: the name of the leader, switch, host, store or plan, and why."""

    part: PartName
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """The place of this controller among several.

    `leader` and `leader_web` are the name and the REST address of the one that leads, empty if none is known.
    `election_id`: the first of this controller's P4Runtime election ids while it leads. `jobs` and `plan`:
    how many jobs, and which plan, a standby has read in the store; None if it has not.
    """

    role: ControllerRole = "alone"
    leader: str = ""
    leader_web: str = ""
    election_id: int = 0
    jobs: int | None = None
    plan: int | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """What is missing, and of how many. `agents_needed` of the `hosts` need an agent."""

    not_ready: Sequence[NotReady]
    switches: int
    hosts: int
    agents_needed: int
    place: Place = Place()


class StatusSource(Protocol):
    """The controller as its probes see it."""

    def stalled(self) -> str:
        """Why the controller makes no progress; empty: it does."""

    def readiness(self) -> Readiness:
        """What is not ready now."""


class HealthOut(Out):
    """The process lives: its event loop has answered, and its control loop makes progress."""

    status: Literal["ok", "stalled"]
    why: str = Field(description="Why the control loop makes no progress; empty with status ok.")


class NotReadyOut(Out):
    """A part that is not ready."""

    part: PartName
    name: str = Field(description="Of the leader, switch, host, store or plan.")
    why: str


class PartsOut(Out):
    """How many of a kind are ready."""

    ready: int
    needed: int
    of: int


class PlaceOut(Out):
    """The place of this controller among several."""

    role: ControllerRole
    leader: str = Field(description="Name of the controller that leads; empty if none is known.")
    leader_web: str = Field(description="Its REST address, as it listens.")
    election_id: str = Field(
        description="First P4Runtime election id of a leader. Decimal text, for it has more than 64 bits."
    )
    jobs: int | None = Field(description="Jobs that a standby has read in the store.")
    plan: int | None = Field(description="Version of the newest plan that a standby has read in the store.")


class ReadyOut(Out):
    """Whether everything is ready, and what is not."""

    ready: bool
    switches: PartsOut
    agents: PartsOut
    store: Literal["ready", "not ready"] = Field(description="Ready also if the controller has none.")
    controller: PlaceOut
    not_ready: tuple[NotReadyOut, ...] = Field(
        description=f"What is missing; at most {MOST_NAMED} of each part."
    )


def health(source: StatusSource) -> HealthOut:
    """The answer of /healthz."""
    why = source.stalled()
    return HealthOut(status="stalled" if why else "ok", why=why)


def ready(found: Readiness) -> ReadyOut:
    """The answer of /readyz."""
    lost = {part: sum(n.part == part for n in found.not_ready) for part in ("switch", "agent")}
    agents = found.hosts - lost["agent"]
    named: list[NotReadyOut] = []
    for part in ("leader", "store", "plan", "switch", "agent"):
        missing = [n for n in found.not_ready if n.part == part]
        if part != "agent" or agents < found.agents_needed:
            named += [NotReadyOut(part=n.part, name=n.name, why=n.why) for n in missing[:MOST_NAMED]]
    return ReadyOut(
        ready=not named,
        switches=PartsOut(ready=found.switches - lost["switch"], needed=found.switches, of=found.switches),
        agents=PartsOut(ready=agents, needed=found.agents_needed, of=found.hosts),
        store="not ready" if any(n.part == "store" for n in found.not_ready) else "ready",
        controller=PlaceOut(
            role=found.place.role,
            leader=found.place.leader,
            leader_web=found.place.leader_web,
            election_id=str(found.place.election_id or ""),
            jobs=found.place.jobs,
            plan=found.place.plan,
        ),
        not_ready=tuple(named),
    )


def health_routes(source: StatusSource) -> APIRouter:
    """The routes; they answer 200 or 503, with the same body."""
    router = APIRouter(tags=["health"])

    @router.get(
        "/healthz",
        summary="Whether the process lives and makes progress",
        response_model=HealthOut,
        responses={503: {"model": HealthOut, "description": "The control loop makes no progress."}},
    )
    async def get_health() -> JSONResponse:
        answer = health(source)
        return JSONResponse(answer.model_dump(), 200 if answer.status == "ok" else 503)

    @router.get(
        "/readyz",
        summary="Whether switches, agents and store are ready, and which are not",
        response_model=ReadyOut,
        responses={503: {"model": ReadyOut, "description": "Something is not ready."}},
    )
    async def get_ready() -> JSONResponse:
        answer = ready(source.readiness())
        return JSONResponse(answer.model_dump(), 200 if answer.ready else 503)

    return router
