# SPDX-License-Identifier: Apache-2.0
"""Commits changes of the state in a thread of its own: no disk, slow or full, holds up the controller."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controller.live.messages import AgentEffect
from controller.live.saved_state import StateChange
from controller.model.plan import Plan
from controller.store.interface import (
    Batch,
    Change,
    Event,
    Kind,
    LoadedState,
    StateStore,
    StoreError,
    StoreRefusedError,
)
from controller.store.records import encode
from controller.store.stored_plans import PlanEncoder

log = logging.getLogger(__name__)

# Chosen, in seconds of host time: the pause before a failed commit is tried again, and how long the end of
# the controller waits for the last commit.
RETRY_S = 2.0
CLOSE_TIMEOUT_S = 2.0
# Chosen: events, plans and acknowledgements that wait for the store; when there are more, the oldest are
# dropped. Records are never dropped: there are no more than the fabric has jobs and pairs of hosts.
MOST_WAITING = 10_000
MOST_PLANS_WAITING = 100
# Chosen: after so many commits the store is pruned.
PRUNE_EVERY = 500


@dataclass(slots=True)
class _Waiting:
    """What waits for the next commit. A plan is with the Unix time at which it came into force."""

    records: dict[tuple[Kind, str], object | None] = field(default_factory=dict)
    plans: dict[int, tuple[int, Plan]] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=deque)
    answers: dict[AgentEffect, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.records or self.plans or self.events or self.answers)

    def add(self, newer: _Waiting) -> int:
        """Add what came later; returns how many plans and events are dropped, because too many wait."""
        self.records.update(newer.records)
        self.plans.update(newer.plans)
        self.events.extend(newer.events)
        self.answers.update(newer.answers)
        dropped = 0
        while len(self.events) > MOST_WAITING:
            self.events.popleft()
            dropped += 1
        while len(self.plans) > MOST_PLANS_WAITING:
            del self.plans[min(self.plans)]
            dropped += 1
        while len(self.answers) > MOST_WAITING:
            del self.answers[next(iter(self.answers))]
        return dropped

    def batch(self, encoder: PlanEncoder) -> Batch:
        """All of it, encoded."""
        return Batch(
            [Change(*at, None if value is None else encode(value)) for at, value in self.records.items()],
            [encoder.stored(time_ns, plan) for time_ns, plan in self.plans.values()],
            tuple(self.events),
        )


class StateWriter:
    """Commits changes in their order. While the store fails, the controller goes on without it, the log says
    so, and the changes wait until the store works again.

    All changes that wait are one commit. After it, `committed` is called with the messages that acknowledge
    them, on the writer's own thread. `loaded` is what the store has at the start.
    """

    def __init__(
        self,
        store: StateStore,
        loaded: LoadedState,
        *,
        committed: Callable[[tuple[AgentEffect, ...]], None],
        retry_s: float = RETRY_S,
    ) -> None:
        self.failure = ""
        """Why the store is not written at present; empty while it is."""
        self._store = store
        self._committed = committed
        self._retry_s = retry_s
        # The records that the store may have: one that it never had need not be removed from it.
        self._stored = {(kind, key) for kind, found in loaded.records.items() for key in found}
        self._waiting = _Waiting()
        self._dropped = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)
        self._thread.start()

    def save(self, change: StateChange, answers: Iterable[AgentEffect] = ()) -> None:
        """Commit a change soon; then give `answers` to `committed`. Returns at once."""
        now_ns = time.time_ns()
        with self._changed:
            for at, value in change.records.items():
                if value is not None or at in self._stored:
                    self._waiting.records[at] = value
                else:
                    self._waiting.records.pop(at, None)
            self._dropped += self._waiting.add(
                _Waiting(
                    plans={plan.version: (now_ns, plan) for plan in change.plans},
                    events=deque(Event(now_ns, *event) for event in change.events),
                    answers=dict.fromkeys(answers),
                )
            )
            self._changed.notify()

    def close(self) -> None:
        """Commit what waits, and close the store. What cannot be committed within CLOSE_TIMEOUT_S is lost."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        commits, encoder = 0, PlanEncoder()
        while (taken := self._take()) is not None:
            try:
                batch = taken.batch(encoder)
                if batch.changes or batch.plans or batch.events:
                    self._store.commit(batch)
                    commits += 1
            except StoreRefusedError as error:
                self._fails(error, "it is not written any more")
                self._put_back(taken)
                break
            except StoreError as error:
                self._fails(
                    error, f"the controller goes on without it and tries again every {self._retry_s:g} s"
                )
                if not self._put_back(taken):
                    break
                continue
            with self._changed:
                self._stored -= {at for at, value in taken.records.items() if value is None}
            self._works()
            self._committed(tuple(taken.answers))
            if commits % PRUNE_EVERY == 1:
                self._prune()
        with self._changed:
            lost = len(self._waiting.records) + len(self._waiting.plans) + len(self._waiting.events)
            lost += self._dropped
        if lost:
            log.error("the stored state lacks the last %d changes", lost)
        self._store.close()

    def _take(self) -> _Waiting | None:
        """All that waits, once there is something; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            taken, self._waiting = self._waiting, _Waiting()
            # What is committed now must be removed if it goes meanwhile.
            self._stored |= taken.records.keys()
            return taken or None

    def _put_back(self, taken: _Waiting) -> bool:
        """Put back what could not be committed, and wait before the next attempt.

        False at the end, when there is no further attempt.
        """
        with self._changed:
            newer, self._waiting = self._waiting, taken
            self._dropped += taken.add(newer)
            return not self._changed.wait_for(lambda: self._closing, self._retry_s)

    def _prune(self) -> None:
        try:
            self._store.prune(time.time_ns())
        except StoreError as error:
            log.warning("old plans and events were not removed: %s; they are with a later commit", error)

    def _fails(self, error: StoreError, then: str) -> None:
        if not self.failure:
            log.error("the state is not stored: %s; %s", error, then)
        self.failure = str(error)

    def _works(self) -> None:
        if self.failure:
            self.failure = ""
            with self._changed:
                dropped, self._dropped = self._dropped, 0
            log.warning("the state is stored again; %d plans and events were dropped", dropped)
