# SPDX-License-Identifier: Apache-2.0
"""The engines of a simulation: one engine with a clock of its own for each component."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sim.components import components
from sim.engine import EngineFactory, FlowEngine
from sim.state import SimulationState
from sim.units import NEVER


class EnginePool:
    """Moves the clocks of the engines conservatively.

    It always advances the component in which a job may end next, and never beyond the time at which a job of
    another component may end. So nothing has to be undone, and a component that no event touches costs almost
    nothing.
    """

    def __init__(
        self, memory: SimulationState, factory: EngineFactory, marks: NDArray[np.int8], log: bool
    ) -> None:
        self.capacity = np.zeros(0)
        self._memory = memory
        self._factory = factory
        self._marks = marks
        self._log = log
        self._engines: dict[tuple[str, ...], FlowEngine] = {}
        # When a job of an engine may end first, for engines that have not moved since it was computed.
        self._bounds: dict[tuple[str, ...], int] = {}
        self._changed: set[str] = set()
        self._stale = True
        self._ended: list[str] = []

    def changed(self, jobs: Iterable[str]) -> None:
        """The decisions or links of these jobs have changed, or the jobs have arrived or left."""
        self._changed |= set(jobs)
        self._stale = True

    def dissolve(self, jobs: Iterable[str]) -> None:
        """Advance the engines of these jobs to now and write their state back."""
        names = set(jobs)
        for key in [k for k in self._engines if not names.isdisjoint(k)]:
            self._close(key)
        self._stale = True

    def tidy(self) -> None:
        """Write all states back. All engines are created anew afterwards."""
        self.dissolve([name for key in self._engines for name in key])

    def advance(self, until: int) -> list[str]:
        """Let the engines run up to `until` (ps); stops where jobs end and returns which, if any."""
        self._reform()
        if self._ended:
            ended, self._ended = self._ended, []
            return ended
        m = self._memory
        bounds = [(self._bound(key), i, key) for i, key in enumerate(self._engines)]
        heapq.heapify(bounds)
        while bounds and bounds[0][0] <= until:
            _, order, key = heapq.heappop(bounds)
            engine = self._engines[key]
            limit = min(until, bounds[0][0]) if bounds else until
            if limit == NEVER and engine.next_event() == NEVER:
                continue
            del self._bounds[key]
            ended = engine.advance(limit)
            if ended:
                m.now = engine.now
                self._close(key)
                return ended
            if limit < until:
                heapq.heappush(bounds, (self._bound(key), order, key))
        return []

    def _bound(self, key: tuple[str, ...]) -> int:
        if key not in self._bounds:
            shortest = [self._memory.running[n].shortest_ps for n in key]
            self._bounds[key] = self._engines[key].earliest_end(shortest)
        return self._bounds[key]

    def _reform(self) -> None:
        """Give every component an engine. A component without a change keeps its engine."""
        if not self._stale:
            return
        running = self._memory.running
        groups = components({name: r.load for name, r in running.items()}, self.capacity)
        wanted = set(groups)
        for key in list(self._engines):
            if key not in wanted or not self._changed.isdisjoint(key):
                self._close(key)
        for key in groups:
            if key not in self._engines:
                runs = [running[name].run for name in key]
                for name, run in zip(key, runs, strict=True):
                    request = running[name].request
                    contended = len(key) > 1 and not run.schedule.period
                    part = request.contended_jitter if contended else request.jitter
                    run.jitter = round(part * 1e6)
                self._engines[key] = self._factory(
                    self.capacity, self._marks, runs, self._memory.now, log=self._log
                )
        self._changed.clear()
        self._stale = False

    def _close(self, key: tuple[str, ...]) -> None:
        engine = self._engines.pop(key)
        self._bounds.pop(key, None)
        if engine.now < self._memory.now:
            # A job may end at this very moment, as another that has been reported.
            self._ended += engine.advance(self._memory.now)
        engine.export()
        self._memory.events += engine.events
        self._memory.skipped += engine.skipped
