# SPDX-License-Identifier: Apache-2.0
"""The rotation search by compiled kernels: the same steps as `Search`, on flat arrays."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from controller.interleave.circle import Floats, Ints, SharedLink
from controller.interleave.kernels import search as kernels
from controller.interleave.kernels.sweep import sweep, total_loss
from controller.interleave.link_arrays import LinkArrays, pack
from controller.interleave.search import EPS, EXACT_JOBS, SWEEPS, Search

_NOWHERE = np.zeros(0, dtype=np.int64)
_RESTARTS = 12
"""Starts of the descent besides the first one. Chosen: more hardly improve random instances."""
_BRANCHED = 6
"""Branch and bound is tried up to this many jobs. Chosen: beyond, it hardly ever ends within its limit."""
_WORK = 10_000_000
"""The edges that a search may sort. Chosen: some tenths of a second."""


class CompiledSearch(Search):
    """`Search` with compiled steps, for circles below 2^62 ns.

    The work is bounded by the number of edges that the search sorts, not by time: circles with many edges get
    fewer starts and nodes.
    """

    def __init__(self, links: Sequence[SharedLink], periods: Mapping[str, int], slack: float) -> None:
        super().__init__(links, periods, slack)
        self._weights = [self._weight[link.name] for link in self._links]
        self._arrays = pack(self._links, self._weights, self.jobs, periods, slack)
        self._tight: LinkArrays | None = None
        self._everyone = np.ones(len(self.jobs), dtype=np.bool_)
        edges = 2 * np.diff(self._arrays.phase) * self._arrays.events[self._arrays.link]
        self._round = 1 + int(edges.sum())

    def solve(
        self, start: Mapping[str, int] | None, seed: int, nodes: int
    ) -> tuple[float, Mapping[str, int], bool]:
        """See `Search.solve`. Here 5 and 6 jobs are branched too, which may or may not prove the result."""
        pair = self.pair()
        if pair is not None:
            return self.loss(pair), pair, True
        rng = random.Random(seed)
        number = {job: i for i, job in enumerate(self.jobs)}
        order = [number[job] for job in self.by_demand()]
        small = not nodes or len(order) < EXACT_JOBS
        starts = 1 if small else max(1, min(1 + _RESTARTS, _WORK // (8 * self._round)))
        orders = [[0, *(order if not i else rng.sample(order, len(order)))] for i in range(starts)]
        first = _NOWHERE if start is None else self._array(start)
        shifts = np.zeros(len(self.jobs), dtype=np.int64)
        rounds = max(1, min(SWEEPS, _WORK // self._round))
        best = kernels.restarts(self._arrays, np.array(orders), first, shifts, self.bound, rounds)
        exact = bool(best <= self.bound + EPS)
        if not exact and nodes and len(self.jobs) <= _BRANCHED:
            budget = max(1, min(nodes, 4 * _WORK * len(self.jobs) // self._round))
            if len(self.jobs) > EXACT_JOBS:
                budget //= 4 * _BRANCHED
            convex = self._slack == 0.0
            best, exact = kernels.branch(self._arrays, 0, shifts, best, self.bound, budget, convex)
        return float(best), self._named(shifts), exact

    def loss(self, shifts: Mapping[str, int]) -> float:
        """The sum over the links of 1 - score."""
        return float(total_loss(self._arrays, self._everyone, self._array(shifts)))

    def centre(self, shifts: Mapping[str, int]) -> dict[str, int]:
        """See `Search.centre`. Circles with too many edges are left as they are."""
        if self._round > _WORK // SWEEPS:
            return dict(shifts)
        return super().centre(shifts)

    def _sweep(self, job: str, shifts: Mapping[str, int], tight: bool = False) -> tuple[Ints, Floats]:
        placed = np.array([j in shifts for j in self.jobs])
        packed = self._peaks() if tight else self._arrays
        count, at, loss = sweep(packed, self.jobs.index(job), placed, self._array(shifts))
        return at[:count], loss[:count]

    def _peaks(self) -> LinkArrays:
        """The links, with the highest demand of a single job as their capacity."""
        if self._tight is None:
            peaks = [max((p.rate_bps for d in k.demands.values() for p in d), default=1) for k in self._links]
            at = np.array(peaks, dtype=np.int64)
            weight = self._arrays.weight * at / self._arrays.capacity
            self._tight = self._arrays._replace(capacity=at, limit=at, weight=weight)
        return self._tight

    def _array(self, shifts: Mapping[str, int]) -> Ints:
        return np.array([shifts.get(job, 0) for job in self.jobs], dtype=np.int64)

    def _named(self, shifts: Ints) -> dict[str, int]:
        return dict(zip(self.jobs, shifts.tolist(), strict=True))
