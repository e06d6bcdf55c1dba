# SPDX-License-Identifier: Apache-2.0
"""REST routes that declare jobs, describe them anew, and end them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Protocol
from urllib.parse import quote

from fastapi import APIRouter, Body, Path, Response
from pydantic import ConfigDict, Field

from controller.model.job import Job
from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.etags import Changes, IfMatch, tag_of
from controller.northbound.problems import leading, problems
from controller.northbound.repeats import IdempotencyKey, Repeats
from controller.northbound.tokens import Caller, Role
from controller.wire.job_name import LEGAL_JOB_NAME
from controller.wire.limits import MAX_FLOWS_OF_JOB, MAX_HOSTS_OF_JOB, MAX_PHASES_OF_JOB
from controller.wire.senders import Sender

_NS_PER_MS = 1_000_000
# Chosen: a day.
_MOST_MS = 86_400_000.0
_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Ms = Annotated[float, Field(ge=0, le=_MOST_MS, allow_inf_nan=False)]
_ERRORS = problems(
    _404="No such job.",
    _409="The fabric cannot have such a job, its agents have declared it, or the key is taken.",
    _412="The job was changed meanwhile.",
    _503="This controller does not lead, or is busy.",
)
Name = Annotated[str, Path(max_length=1_000, description="Name of a job.")]
_EXAMPLE: dict[str, Any] = {
    "name": "vgg19",
    "model": "VGG19",
    "gpus": 2,
    "hosts": ["h1", "h3"],
    "period_ms": 260,
    "phases": [{"start_ms": 0, "end_ms": 120, "rate_bps": 25_000_000_000}],
    "flows": [
        {"src": "h1", "dst": "h3", "bytes_per_iteration": 375_000_000},
        {"src": "h3", "dst": "h1", "bytes_per_iteration": 375_000_000},
    ],
}


class PhaseIn(schema.In):
    """An Up phase: the job sends in [start_ms, end_ms) of its period."""

    start_ms: _Ms
    end_ms: _Ms
    rate_bps: int = Field(ge=1, le=10**15, description="Rate of each flow in bit/s.")


class FlowIn(schema.In):
    """A flow from one host of the job to another."""

    src: _Text
    dst: _Text
    bytes_per_iteration: int = Field(ge=0, le=1 << 53)


class JobChangeIn(schema.In):
    """What to change of a job; what is missing stays."""

    model: _Text | None = None
    gpus: int | None = Field(None, ge=1, le=1_000_000, description="Of the whole job.")
    hosts: list[_Text] | None = Field(
        None,
        min_length=1,
        max_length=MAX_HOSTS_OF_JOB,
        description="Of each worker, in the order of the ranks.",
    )
    period_ms: _Ms | None = Field(None, description="Period of an iteration; 0: not known yet.")
    phases: list[PhaseIn] | None = Field(
        None,
        max_length=MAX_PHASES_OF_JOB,
        description="The profile, if it is known: sorted, without overlap.",
    )
    flops_per_iteration: float | None = Field(None, ge=0, le=1e30, allow_inf_nan=False)
    flows: list[FlowIn] | None = Field(
        None, max_length=MAX_FLOWS_OF_JOB, description="The queue pairs of the job."
    )
    traffic: dict[str, Any] | None = Field(
        None,
        description="Instead of `flows`: collectives and parallelism, as `traffic` of a job in agent.toml.",
    )
    sender: Sender | None = Field(None, description="Congestion control of its senders.")


class JobIn(JobChangeIn):
    """A job. Its workers need not announce it; it stays until DELETE."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    # Its rule is no JSON schema: `job_name_fault` holds it, and 409 is the answer to all that is against it.
    name: str = Field(description=LEGAL_JOB_NAME)
    model: _Text = "unknown"
    gpus: int = Field(ge=1, le=1_000_000, description="Of the whole job.")
    hosts: list[_Text] = Field(
        min_length=1, max_length=MAX_HOSTS_OF_JOB, description="Of each worker, in the order of the ranks."
    )
    period_ms: _Ms = Field(0, description="Period of an iteration; 0: not known yet.")
    phases: list[PhaseIn] = Field(
        default_factory=list,
        max_length=MAX_PHASES_OF_JOB,
        description="The profile, if it is known: sorted, without overlap.",
    )
    flops_per_iteration: float = Field(0, ge=0, le=1e30, allow_inf_nan=False)
    sender: Sender = Field("dcqcn", description="Congestion control of its senders.")


class DeclaredFlowOut(schema.Out):
    """A flow of a job as it was declared."""

    name: str
    src: str
    dst: str
    bytes_per_iteration: int


class DeclarationOut(schema.Out):
    """A job as a request, or its agents, have declared it. The ETag of the answer is that of this."""

    name: str
    requested: bool = Field(
        description="true: by a request, which may change it; false: by its agents. Both may be ended."
    )
    model: str
    gpus: int
    hosts: tuple[str, ...]
    period_ms: float
    phases: tuple[schema.PhaseOut, ...]
    flops_per_iteration: float
    sender: str
    flows: tuple[DeclaredFlowOut, ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A job as it was declared, and whether by a request."""

    job: Job
    requested: bool


class JobOperations(Protocol):
    """What the routes call. Every method may raise OperationError."""

    def declaration(self, name: str) -> Declaration:
        """A job as it was declared."""

    async def create(self, asked: Mapping[str, Any]) -> Declaration:
        """Declare a job; `asked` has the fields of JobIn."""

    async def change(self, name: str, asked: Mapping[str, Any]) -> Declaration:
        """Describe a requested job anew; `asked` has the fields of JobChangeIn that change."""

    async def end(self, name: str) -> None:
        """End a job."""


def job_routes(operations: JobOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["jobs"])
    repeats: Repeats[Declaration] = Repeats()
    changes = Changes()

    def tag(name: str) -> str:
        return tag_of(leading(operations).declaration(name).job)

    def shown(found: Declaration, response: Response) -> DeclarationOut:
        response.headers["ETag"] = tag_of(found.job)
        return _out(found)

    @router.post(
        "/jobs",
        summary="Declare a job",
        description="All its workers count as present at once. Workers that join by their agents must "
        "describe it alike.",
        status_code=201,
        responses=_ERRORS,
    )
    async def create(
        asked: Annotated[JobIn, Body()],
        response: Response,
        caller: Annotated[Caller, requires(Role.JOB)],
        key: IdempotencyKey = None,
    ) -> DeclarationOut:
        given = asked.model_dump()
        made = await repeats.once(caller.name, key, given, lambda: leading(operations).create(given))
        response.headers["Location"] = f"/api/v1/jobs/{quote(made.job.name, safe='')}"
        return shown(made, response)

    @router.get("/jobs/{name}/declaration", summary="A job as it was declared", responses=_ERRORS)
    async def get_declaration(name: Name, response: Response) -> DeclarationOut:
        return shown(leading(operations).declaration(name), response)

    @router.patch(
        "/jobs/{name}",
        summary="Describe a job anew",
        description="A job that a request has declared. Its figures begin anew. If-Match takes the ETag of "
        "its declaration.",
        responses=_ERRORS,
        dependencies=[requires(Role.JOB)],
    )
    async def change(
        name: Name, asked: Annotated[JobChangeIn, Body()], response: Response, if_match: IfMatch = None
    ) -> DeclarationOut:
        async with changes.checked(if_match, partial(tag, name)):
            made = await leading(operations).change(name, asked.model_dump(exclude_none=True))
        return shown(made, response)

    @router.delete(
        "/jobs/{name}",
        summary="End a job",
        description="Also one whose agents have declared it. They declare it again in their next session if "
        "it still runs.",
        status_code=204,
        responses=_ERRORS,
        dependencies=[requires(Role.JOB)],
    )
    async def end(name: Name, if_match: IfMatch = None) -> None:
        async with changes.checked(if_match, partial(tag, name)):
            await leading(operations).end(name)

    return router


def _out(found: Declaration) -> DeclarationOut:
    job = found.job
    return DeclarationOut(
        name=job.name,
        requested=found.requested,
        model=job.model,
        gpus=job.gpus,
        hosts=job.hosts,
        period_ms=job.profile.period_ns / _NS_PER_MS,
        phases=tuple(
            schema.PhaseOut(
                start_ms=p.start_ns / _NS_PER_MS, end_ms=p.end_ns / _NS_PER_MS, rate_bps=p.rate_bps
            )
            for p in job.profile.phases
        ),
        flops_per_iteration=job.flops_per_iteration,
        sender=job.sender,
        flows=tuple(
            DeclaredFlowOut(name=f.name, src=f.src, dst=f.dst, bytes_per_iteration=f.bytes_per_iteration)
            for f in job.flows
        ),
    )
