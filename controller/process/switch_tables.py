# SPDX-License-Identifier: Apache-2.0
"""The table entries of switches that the REST API shows, on a running controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from controller.live.core import Core
from controller.northbound.problems import OperationError
from controller.northbound.table_routes import EntryOut, TableOut, TablesOut, TableState
from controller.process.worker_process import WorkerProcess
from controller.southbound.fleet import RunnerError, SwitchFleet
from controller.southbound.raw_calls import SessionError
from controller.southbound.table_rows import EntryRow, entry_rows, table_sizes

# Chosen, host time: a switch is not read again for the pages of one list, nor waited for longer.
READ_AGAIN_S = 2.0
READ_LIMIT_S = 5.0

_Read = tuple[int, tuple[bytes, ...]]


class RunningTables:
    """The `TableOperations` of a running controller. Use it on the controller's event loop."""

    def __init__(self, core: Core, fleet: SwitchFleet, worker: WorkerProcess) -> None:
        self._core = core
        self._fleet = fleet
        self._worker = worker
        # The switch that was read last, when in host time, and what came.
        self._last: tuple[str, float, _Read | None] | None = None

    async def tables(self, switch: str) -> TablesOut:
        """The tables of a switch. Raises OperationError."""
        read = await self._read(switch)
        try:
            sizes = await self._worker.run(table_sizes, switch, self._core.desired, read and read[1])
        except RunnerError as error:
            raise OperationError(503, f"the entries are not known: {error}") from None
        tables = tuple(TableOut(name=n, desired=d, actual=a) for n, (d, a) in sorted(sizes.items()))
        return TablesOut(switch=switch, read_ns=read and read[0], tables=tables)

    async def entries(
        self, switch: str, table: str, state: TableState
    ) -> tuple[int | None, Sequence[EntryOut]]:
        """When the switch was read, and the entries of one of its tables. Raises OperationError."""
        read = await self._read(switch)
        if read is None and state != "desired":
            raise OperationError(503, f"switch {switch} does not answer; legal: state=desired")
        try:
            rows = await self._worker.run(entry_rows, switch, self._core.desired, read and read[1], table)
        except RunnerError as error:
            raise OperationError(503, f"the entries are not known: {error}") from None
        if rows is None:
            known = ", ".join(t.name for t in (await self.tables(switch)).tables)
            raise OperationError(404, f"no table {table!r}; legal: {known}")
        return (read and read[0]), [_shown(row) for row in rows if _in(row, state)]

    async def _read(self, switch: str) -> _Read | None:
        """The entries that a switch has, and the fabric time; None: it does not answer."""
        if switch not in self._fleet.clients:
            raise OperationError(404, f"no switch {switch!r}; legal: a switch, as {min(self._fleet.clients)}")
        last = self._last
        if last is not None and last[0] == switch and time.monotonic() - last[1] < READ_AGAIN_S:
            return last[2]
        read: _Read | None = None
        try:
            async with asyncio.timeout(READ_LIMIT_S):
                read = self._core.now_ns, await self._fleet.read_tables(switch)
        except (TimeoutError, SessionError):
            pass
        self._last = switch, time.monotonic(), read
        return read


def _in(row: EntryRow, state: TableState) -> bool:
    if state == "desired":
        return row.wanted
    return bool(row.held) if state == "actual" else row.differs


def _shown(row: EntryRow) -> EntryOut:
    return EntryOut(
        match=dict(row.match),
        action=row.action,
        params=dict(row.params),
        priority=row.priority,
        missing=row.wanted if row.differs else None,
    )
