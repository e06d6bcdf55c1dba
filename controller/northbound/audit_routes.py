# SPDX-License-Identifier: Apache-2.0
"""The REST route of the audit log: who asked to change something."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import Field

from controller.northbound import schema
from controller.northbound.access import requires
from controller.northbound.audit import AuditLog
from controller.northbound.paging import USUAL, Most, Start
from controller.northbound.problems import problems
from controller.northbound.tokens import Role


class AuditRecordOut(schema.Out):
    """A request that would change something, also a refused one."""

    number: int = Field(description="Requests are numbered from 1 since this process started.")
    time: str = Field(description="When it was answered: UTC, ISO 8601.")
    caller: str = Field(description="The name of its token; empty: nobody was recognised.")
    role: str
    peer: str = Field(description="The address that it came from.")
    method: str
    path: str
    status: int = Field(description="The status of the answer.")


class AuditOut(schema.Out):
    """A page of the audit log, the newest record first."""

    records: tuple[AuditRecordOut, ...]
    next: str | None = Field(description="Cursor of the next page; null: this is the last.")


def audit_routes(audit: AuditLog) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.get(
        "/audit",
        summary="Requests that would change something, the newest first",
        description="The last 1,000 since this process started.",
        responses=problems(
            _403="The role operate is needed.",
            _404="No such cursor.",
            _503="Too many requests are open.",
        ),
        tags=["operations"],
        dependencies=[requires(Role.OPERATE)],
    )
    async def get_audit(start: Start, most: Most = USUAL) -> AuditOut:
        before = start.number()
        numbered, last = audit.newest(most, before)
        return AuditOut(
            records=tuple(AuditRecordOut(number=number, **asdict(record)) for number, record in numbered),
            next=None if last is None else start.cursor_after(str(last)),
        )

    return router
