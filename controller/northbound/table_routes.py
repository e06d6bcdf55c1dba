# SPDX-License-Identifier: Apache-2.0
"""REST routes of the switches' table entries, as they should be and as they were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Path, Query
from pydantic import Field

from controller.northbound import schema
from controller.northbound.fabric_routes import Name
from controller.northbound.paging import USUAL, Most, Start, page
from controller.northbound.problems import leading, problems

_ERRORS = problems(
    _404="No such switch, table or cursor.",
    _503="The controller has not connected to its fabric, or does not lead.",
)
Table = Annotated[str, Path(max_length=200, description="A table of the P4 program, as next_hop.")]
TableState = Literal["desired", "actual", "difference"]
_Read = Annotated[
    int | None,
    Field(description="Fabric time when the tables were read, in ns; null: the switch did not answer."),
]


class TableOut(schema.Out):
    """How many entries a table has."""

    name: str
    desired: int = Field(description="Entries that it should have.")
    actual: int | None = Field(description="Entries that were read; null: the switch did not answer.")


class TablesOut(schema.Out):
    """The tables of a switch."""

    switch: str
    read_ns: _Read
    tables: tuple[TableOut, ...]


class EntryOut(schema.Out):
    """A table entry in words."""

    match: dict[str, str] = Field(description="By field; empty: the default action.")
    action: str
    params: dict[str, str]
    priority: int
    missing: bool | None = Field(
        description="true: it should be there and is not; false: it is there and should not; null: neither."
    )


class EntriesOut(schema.Out):
    """A page of the entries of one table of a switch."""

    switch: str
    table: str
    state: TableState
    read_ns: _Read
    entries: tuple[EntryOut, ...]
    next: str | None = Field(description="Cursor of the next page; null: this is the last.")


class TableOperations(Protocol):
    """What the routes call. Every method raises OperationError."""

    async def tables(self, switch: str) -> TablesOut:
        """The tables of a switch."""

    async def entries(
        self, switch: str, table: str, state: TableState
    ) -> tuple[int | None, Sequence[EntryOut]]:
        """When the switch was read, and the entries of one of its tables, in a fixed order."""


def table_routes(operations: TableOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["fabric"])

    @router.get("/fabric/switches/{name}/tables", summary="The tables of a switch", responses=_ERRORS)
    async def get_tables(name: Name) -> TablesOut:
        return await leading(operations).tables(name)

    @router.get(
        "/fabric/switches/{name}/tables/{table}",
        summary="The entries of a table, as they should be or as they are",
        responses=_ERRORS,
    )
    async def get_entries(
        name: Name,
        table: Table,
        start: Start,
        state: Annotated[
            TableState,
            Query(description="desired; actual: read from the switch now; difference: what differs."),
        ] = "desired",
        most: Most = USUAL,
    ) -> EntriesOut:
        read_ns, found = await leading(operations).entries(name, table, state)
        # The order is fixed as long as the entries stay.
        rows = {f"{number:08}": entry for number, entry in enumerate(found)}
        names, after = page(list(rows), start, most)
        entries = tuple(rows[key] for key in names)
        return EntriesOut(switch=name, table=table, state=state, read_ns=read_ns, entries=entries, next=after)

    return router
