# SPDX-License-Identifier: Apache-2.0
"""REST routes that take links and switches out of use, for maintenance, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Body, Path, Response
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.etags import IfMatch, check_match, tag_of
from controller.northbound.problems import STANDBY, leading, problems
from controller.northbound.tokens import Role

_ERRORS = problems(
    _404="The fabric has no such link or switch.",
    _409="Flows of present jobs would have no path left.",
    _412="What is drained was changed meanwhile.",
    _503="This controller does not lead.",
)
Part = Literal["link", "switch"]
Name = Annotated[
    str,
    Path(
        max_length=500,
        description='A switch ("spine3"), the cable between two ("leaf1-spine3"), or one of several such '
        'cables ("leaf1:4-spine3:1").',
    ),
]


@dataclass(frozen=True, slots=True)
class DrainedPart:
    """A link or switch that is drained. `done`: tables and plan avoid it."""

    part: Part
    name: str
    done: bool


class DrainIn(schema.In):
    """How to drain."""

    cut_off: bool = Field(
        False,
        description="true: also if flows of present jobs have no path left; they keep the one that they "
        "have, by ECMP.",
    )


class DrainOut(schema.Out):
    """A link or switch that an operator has taken out of use."""

    part: Part
    name: str
    state: Literal["draining", "drained"] = Field(
        description="drained: the tables of all switches and the plan in force avoid it."
    )


class DrainsOut(schema.Out):
    """All that is drained. The ETag of the answer is that of the whole list."""

    drains: tuple[DrainOut, ...]


class DrainOperations(Protocol):
    """What the routes call. Every method may raise OperationError."""

    def drained(self) -> Sequence[DrainedPart]:
        """All links and switches that are drained, sorted by name."""

    async def drain(self, part: Part, name: str, cut_off: bool) -> DrainedPart:
        """Take a link or switch out of use."""

    def undrain(self, part: Part, name: str) -> None:
        """Take a link or switch back into use."""


def drain_routes(operations: DrainOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["fabric"])

    def tag() -> str:
        return _tag(leading(operations).drained())

    @router.get("/drains", summary="Links and switches out of use", responses=problems(_503=STANDBY))
    async def get_drains(response: Response) -> DrainsOut:
        found = leading(operations).drained()
        response.headers["ETag"] = _tag(found)
        return DrainsOut(drains=tuple(map(_out, found)))

    def add(part: Part, path: str, what: str) -> None:
        @router.put(
            path,
            summary=f"Drain a {what}",
            description=f"New plans and the tables of all switches avoid the {what}, and nothing that is on "
            "its way is lost. It stays so, also after a restart of a controller with a store, until DELETE. "
            "If-Match takes the ETag of `/drains`.",
            responses=_ERRORS,
            dependencies=[requires(Role.OPERATE)],
            name=f"drain_{part}",
        )
        async def drain(
            name: Name,
            response: Response,
            asked: Annotated[DrainIn | None, Body()] = None,
            if_match: IfMatch = None,
        ) -> DrainOut:
            check_match(if_match, tag())
            made = await leading(operations).drain(part, name, asked is not None and asked.cut_off)
            response.headers["ETag"] = tag()
            return _out(made)

        @router.delete(
            path,
            summary=f"Take a {what} back into use",
            responses=_ERRORS,
            status_code=204,
            dependencies=[requires(Role.OPERATE)],
            name=f"undrain_{part}",
        )
        async def undrain(name: Name, if_match: IfMatch = None) -> None:
            check_match(if_match, tag())
            leading(operations).undrain(part, name)

    add("switch", "/fabric/switches/{name}/drain", "switch")
    add("link", "/fabric/links/{name}/drain", "link")
    return router


def _out(found: DrainedPart) -> DrainOut:
    return DrainOut(part=found.part, name=found.name, state="drained" if found.done else "draining")


def _tag(found: Sequence[DrainedPart]) -> str:
    return tag_of([(part.part, part.name) for part in found])
