# SPDX-License-Identifier: Apache-2.0
"""Connects a core with its store: takes up what an earlier controller stored, and stores what changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from controller.live.core import Core
from controller.live.earlier_state import EarlierState, restore
from controller.live.history import Bucket
from controller.live.link_loads import LinkLoads
from controller.live.messages import AgentEffect
from controller.live.notices import Notice
from controller.live.saved_state import SavedState, plan_in_force, read_back
from controller.live.stored_history import StoredHistory
from controller.model.plan import Plan
from controller.process.state_writer import StateWriter
from controller.store.interface import Kind, LoadedState, StateStore, StoredPlan
from controller.store.stored_plans import plan_of


class DurableState:
    """The state of a core in a store. Use it on the event loop that is running when it is made.

    `boot` names the clock that the core's times count by; empty in the embedded fabric, of which only the
    plan numbers go on, because each of its runs is another fabric.
    """

    @classmethod
    async def open(cls, store: StateStore, core: Core, boot: str) -> DurableState:
        """Take up what the store has, before anything is served.

        Raises:
            StoreError: the store cannot be read.
            StoreRefusedError: a record is not readable.
        """
        loaded = await asyncio.to_thread(store.load)
        in_force = plan_in_force(loaded)
        stored: StoredPlan | None = None
        if in_force is not None and boot:
            stored = await asyncio.to_thread(store.plan, in_force.version)
        return cls(store, core, boot, loaded, stored)

    def __init__(
        self,
        store: StateStore,
        core: Core,
        boot: str,
        loaded: LoadedState,
        stored: StoredPlan | None,
    ) -> None:
        """Take up what was loaded; `stored` is the plan in force. Raises as `open`."""
        earlier = read_back(loaded, plan_of(stored) if stored is not None else None, boot)
        if not boot:
            earlier = EarlierState(last_number=earlier.last_number)
        restore(core, earlier)
        at = [(kind, key) for kind, found in loaded.records.items() for key in found]
        self._saved = SavedState(core, boot, at, earlier)
        self._history = StoredHistory(
            loaded.records.get(Kind.HISTORY, {}),
            core.now_ns,
            time.time_ns() - core.now_ns,
            len(LinkLoads(core.topology)),
            same_fabric=bool(boot),
        )
        self._loop = asyncio.get_running_loop()
        self._send: Callable[[AgentEffect], object] = lambda _: None
        self.writer = StateWriter(store, loaded, committed=self._committed)

    def connect(self, send: Callable[[AgentEffect], object]) -> None:
        """Set what sends an acknowledgement to an agent."""
        self._send = send

    @property
    def restored_history(self) -> Sequence[Bucket]:
        """What an earlier controller measured on this fabric in the last 24 hours."""
        return self._history.restored

    def save(
        self,
        plan: Plan | None,
        notices: Iterable[Notice] = (),
        answers: Iterable[AgentEffect] = (),
        measured: Iterable[Bucket] = (),
    ) -> None:
        """Store what has changed, and send the answers after the commit. `plan` is, or comes, into force.
        `measured` are finished buckets of the history.
        """
        change, answers = self._saved.change(plan, notices), tuple(answers)
        history = self._history.changes(measured)
        if history:
            change = replace(change, records={**change.records, **history})
        if change or answers:
            self.writer.save(change, answers)

    def close(self) -> None:
        """Commit what waits, and close the store."""
        self.writer.save(self._saved.at_end())
        self.writer.close()

    def _committed(self, answers: tuple[AgentEffect, ...]) -> None:
        if answers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answer, answers)

    def _answer(self, answers: tuple[AgentEffect, ...]) -> None:
        for answer in answers:
            self._send(answer)
