# SPDX-License-Identifier: Apache-2.0
"""Flowlets in plain Python: what `sim/kernels/flowlets.py` computes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from controller.routing.spreading import PACKET_BITS
from sim.jobrun import FlowletRule, JobRun, Ways
from sim.units import PS_PER_S

_BYTE = 8.0


class ReferenceFlowlets:
    """The loads of all links at `now`, and the way of each queue pair."""

    def __init__(self, rule: FlowletRule, runs: Sequence[JobRun], now: int) -> None:
        self._rule = rule
        self._runs = runs
        self._now = now
        self._load: dict[int, float] = {}
        self._rates: Mapping[int, float] = {}
        self._least: dict[int, int] = {}
        self._sending: dict[tuple[int, int], int] = {}

    def set_rates(self, now: int, rates: Mapping[int, float]) -> None:
        """From `now` on links send at these rates in bit/s."""
        left = 2.0 ** (-(now - self._now) / self._rule.half_life)
        for link in {*self._load, *self._rates}:
            self._load[link] = self._load.get(link, 0.0) * left + self._steady(link) * (1 - left)
        self._now, self._rates = now, rates

    def settle(self) -> None:
        """All links have sent at these rates for long."""
        self._load = {link: self._steady(link) for link in self._rates}

    def begin(self, flows: Sequence[tuple[int, int]], now: int, *, running: bool = False) -> None:
        """Flows (job, channel) begin now; with `running` they were under way already."""
        self.set_rates(now, self._rates)
        for j, _ in flows:
            assert self._runs[j].flowlets is not None
        for j, channel in flows:
            owner = j, int(self._runs[j].program.queue_pair[channel])
            self._sending[owner] = self._sending.get(owner, 0) + 1
        for j, channel in sorted(flows):
            run = self._runs[j]
            assert run.flowlets is not None
            pair = int(run.program.queue_pair[channel])
            paused = self._sending[j, pair] == 1 and now - run.flowlets.since[pair] >= self._rule.gap
            if run.flowlets.way[pair] < 0 or (paused and not running):
                run.flowlets.way[pair] = self._choice(run.ways[channel])

    def end(self, j: int, channel: int, now: int) -> None:
        """A flow ends."""
        run = self._runs[j]
        assert run.flowlets is not None
        pair = int(run.program.queue_pair[channel])
        self._sending[j, pair] -= 1
        run.flowlets.since[pair] = now

    def _steady(self, link: int) -> float:
        return self._rates.get(link, 0.0) * self._rule.half_life / PS_PER_S / math.log(2)

    def _choice(self, ways: Ways) -> int:
        left = list(range(len(ways)))
        for hop in range(len(ways[0])):
            group = ways[left[0]][hop]
            last = [w for w in left if ways[w][hop] == self._least.get(group, -1)]
            start = left.index(last[0]) if last else 0
            found, *others = left[start:] + left[:start]
            for way in others:
                if self._load.get(ways[way][hop], 0.0) < self._load.get(ways[found][hop], 0.0) - _BYTE:
                    found = way
            link = self._least[group] = ways[found][hop]
            self._load[link] = self._load.get(link, 0.0) + PACKET_BITS
            left = [w for w in left if ways[w][hop] == link]
        return left[0]
