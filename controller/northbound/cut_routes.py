# SPDX-License-Identifier: Apache-2.0
"""REST routes that cut a cable of an emulated fabric, as if its light were lost, and mend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from fastapi import APIRouter, Path, Response
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.etags import Changes, IfMatch, tag_of
from controller.northbound.problems import STANDBY, leading, problems
from controller.northbound.tokens import Role

_ERRORS = problems(
    _404="The fabric has no such link, or it is not cut.",
    _409="The fabric is not the embedded one.",
    _412="What is cut was changed meanwhile.",
    _503="This controller does not lead, or the fabric's time stands still.",
)
Name = Annotated[
    str,
    Path(
        max_length=500,
        description='The cable between two switches ("leaf1-spine3"), or one of several such cables '
        '("leaf1:4-spine3:1").',
    ),
]


class CutLinkOut(schema.Out):
    """Cables that are cut now."""

    name: str = Field(examples=["leaf1-spine2"])
    cables: tuple[str, ...] = Field(
        description="All cables that the name means.", examples=[["leaf1-spine2"]]
    )


class CutOut(schema.Out):
    """A cable that an operator has cut."""

    name: str = Field(examples=["leaf1-spine2"])


class CutsOut(schema.Out):
    """All cables that operators have cut. Cables that failed by themselves are not among them. The ETag of
    the answer is that of the whole list."""

    cuts: tuple[CutOut, ...]


class CutOperations(Protocol):
    """What the routes call. Every method may raise OperationError."""

    def cuts(self) -> Sequence[str]:
        """The cables that are cut, sorted."""

    async def cut(self, name: str) -> CutLinkOut:
        """Cut the cables that a name means."""

    async def mend(self, name: str) -> None:
        """Mend those of the cables that are cut."""


def cut_routes(operations: CutOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["fabric"])
    changes = Changes()

    def tag() -> str:
        return tag_of(tuple(leading(operations).cuts()))

    @router.get("/fabric/cuts", summary="Cables that operators have cut", responses=problems(_503=STANDBY))
    async def get_cuts(response: Response) -> CutsOut:
        names = tuple(leading(operations).cuts())
        response.headers["ETag"] = tag_of(names)
        return CutsOut(cuts=tuple(CutOut(name=name) for name in names))

    @router.put(
        "/fabric/links/{name}/cut",
        summary="Cut a link of the embedded fabric",
        description="The ports at both ends lose their light, and packets on their way are lost. The "
        "controller learns of it from its switches only, so it moves the flows as it does after any failure. "
        "If-Match takes the ETag of `/fabric/cuts`.",
        responses=_ERRORS,
        dependencies=[requires(Role.OPERATE)],
    )
    async def cut_link(name: Name, response: Response, if_match: IfMatch = None) -> CutLinkOut:
        async with changes.checked(if_match, tag):
            made = await leading(operations).cut(name)
        response.headers["ETag"] = tag()
        return made

    @router.delete(
        "/fabric/links/{name}/cut",
        summary="Mend a link that was cut",
        responses=_ERRORS,
        status_code=204,
        dependencies=[requires(Role.OPERATE)],
    )
    async def mend_link(name: Name, if_match: IfMatch = None) -> None:
        async with changes.checked(if_match, tag):
            await leading(operations).mend(name)

    return router
