# SPDX-License-Identifier: Apache-2.0
"""Rotation search: the shifts that maximise the score of links shared by the same few jobs.

The excess is piecewise linear in the shifts, so some optimum is a vertex: every job has an edge of a
phase aligned with an edge of another's, along a spanning tree. Up to EXACT_JOBS jobs all such trees are
tried by branch and bound; beyond, coordinate descent, each step exact. Among the optimal rotations, the
one with the widest guard gaps is taken, for real phases jitter by milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.interleave.circle import Floats, Ints, SharedLink, score, sweep

EXACT_JOBS = 4
NODES = 400
_RESTARTS = 3
_SWEEPS = 30
_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class Rotation:
    """`shifts` in ns, the first job's is 0; `loss` is the sum over the links of 1 - score.

    `exact`: proven to be the least possible.
    """

    shifts: Mapping[str, int]
    loss: float
    exact: bool


class Search:
    """Rotations of one set of jobs against a set of links."""

    def __init__(self, links: Sequence[SharedLink], periods: Mapping[str, int], slack: float) -> None:
        # Links that ask the same question are asked once, with a weight.
        alike: dict[tuple[object, ...], list[SharedLink]] = {}
        for link in links:
            alike.setdefault((link.rate_bps, *sorted(link.demands.items())), []).append(link)
        self._links = tuple(same[0] for same in alike.values())
        self._weight = {same[0].name: len(same) for same in alike.values()}
        self._periods = periods
        self._slack = slack
        self.jobs = tuple(dict.fromkeys(job for link in links for job in link.demands))
        self._of = {job: [link for link in self._links if job in link.demands] for job in self.jobs}
        self.bound = sum(self._weight[link.name] * self._unavoidable(link) for link in self._links)

    def _mean(self, link: SharedLink, job: str) -> float:
        sent = sum(p.rate_bps * (p.end_ns - p.start_ns) for p in link.demands[job])
        return sent / self._periods[job] / link.rate_bps

    def _unavoidable(self, link: SharedLink) -> float:
        """Demand that no rotation can fit, as a part of the capacity (0 if the slack may absorb it)."""
        total = sum(self._mean(link, job) for job in link.demands)
        return total - 1 if total > 1 + self._slack else 0.0

    def loss(self, shifts: Mapping[str, int]) -> float:
        """Sum over the links of 1 - score."""
        return sum(self._link_loss(link, shifts) for link in self._links)

    def _link_loss(self, link: SharedLink, shifts: Mapping[str, int]) -> float:
        return self._weight[link.name] * (1 - score(link, self._periods, shifts, slack=self._slack))

    def _sweep(self, job: str, shifts: Mapping[str, int], tight: bool = False) -> tuple[Ints, Floats]:
        """The loss on the job's links at every corner of its shift, others fixed.

        With `tight` the threshold is the highest single demand: any overlap counts.
        """
        results = []
        for link in self._of[job]:
            peak = max(p.rate_bps for phases in link.demands.values() for p in phases) if tight else None
            slack = 0.0 if tight else self._slack
            at, value = sweep(link, job, self._periods, shifts, slack=slack, capacity=peak)
            results.append((at, value * self._weight[link.name]))
        if len(results) == 1:
            return results[0]
        corners = np.unique(np.concatenate([c for c, _ in results]))
        period = self._periods[job]
        total = np.zeros(len(corners))
        for at, value in results:
            total += np.interp(corners, at, value, period=period)
        return corners, total

    def descend(self, shifts: Mapping[str, int]) -> tuple[float, dict[str, int]]:
        """Coordinate descent from complete shifts; each step is exact, the first job stays."""
        current = dict(shifts)
        best = self.loss(current)
        for _ in range(_SWEEPS):
            before = best
            for job in self.jobs[1:]:
                corners, value = self._sweep(job, current)
                i = int(np.argmin(value))
                moved = current | {job: int(corners[i])}
                loss = self.loss(moved)
                if loss < best - _EPS:
                    current, best = moved, loss
            if best >= before - _EPS or best <= self.bound + _EPS:
                break
        return best, current

    def insert(self, order: Sequence[str]) -> dict[str, int]:
        """Shifts by adding one job after another where it hurts least."""
        shifts = {self.jobs[0]: 0}
        for job in order:
            corners, value = self._sweep(job, shifts)
            shifts[job] = int(corners[int(np.argmin(value))])
        return shifts

    def by_demand(self) -> list[str]:
        """All jobs but the first, the one with the largest demand first."""
        weight = {j: max((self._mean(link, j) for link in self._of[j]), default=0.0) for j in self.jobs}
        return sorted(self.jobs[1:], key=lambda j: -weight[j])

    def branch(self, best: float, shifts: dict[str, int], nodes: int) -> tuple[float, dict[str, int], bool]:
        """Branch and bound over alignment trees from an incumbent; False if `nodes` did not suffice.

        Adding a job never lessens the excess, so a partial loss bounds what follows.
        """
        seen: set[frozenset[tuple[str, int]]] = set()

        def extend(placed: dict[str, int]) -> None:
            nonlocal best, shifts, nodes
            state = frozenset(placed.items())
            if state in seen or best <= self.bound + _EPS:
                return
            seen.add(state)
            left = [j for j in self.jobs if j not in placed]
            for job in left:
                nodes -= 1
                if nodes < 0:
                    return
                corners, value = self._sweep(job, placed)
                elsewhere = sum(
                    self._link_loss(self._only(link, placed), placed)
                    for link in self._links
                    if job not in link.demands and any(j in placed for j in link.demands)
                )
                for i in np.argsort(value, kind="stable"):
                    loss = float(value[i]) + elsewhere
                    if loss >= best - _EPS:
                        break
                    following = placed | {job: int(corners[i])}
                    if len(left) == 1:
                        best, shifts = loss, following
                        break
                    extend(following)

        extend({self.jobs[0]: 0})
        return best, shifts, nodes >= 0

    @staticmethod
    def _only(link: SharedLink, placed: Mapping[str, int]) -> SharedLink:
        demands = {j: p for j, p in link.demands.items() if j in placed}
        return SharedLink(link.name, link.rate_bps, demands)

    def centre(self, shifts: Mapping[str, int]) -> dict[str, int]:
        """Move every job to the middle of its widest interval of equally good shifts, until all are at rest.

        Where a job fits everywhere, the places where it overlaps least come first.
        """
        current = dict(shifts)
        settled = min(self._periods[j] for j in self.jobs) // 500
        for _ in range(_SWEEPS):
            moved = 0
            for job in self.jobs[1:]:
                corners, value = self._sweep(job, current)
                tight_corners, tight = self._sweep(job, current, tight=True)
                period = self._periods[job]
                grid = np.union1d(corners, tight_corners)
                first = np.interp(grid, corners, value, period=period)
                second = np.interp(grid, tight_corners, tight, period=period)
                good = first <= first.min() + _EPS
                good &= second <= second[good].min() + _EPS
                middle = _widest(grid, good, period, current[job])
                gap = abs(middle - current[job])
                moved = max(moved, min(gap, period - gap))
                current[job] = middle
            if moved <= settled:
                break
        return current


def _widest(corners: Ints, good: NDArray[np.bool_], period: int, current: int) -> int:
    """The middle of the widest run of good corners around a circle; `current` if all are good."""
    if good.all():
        return current
    n = len(corners)
    best, middle = -1, current
    for i in np.flatnonzero(good & ~np.roll(good, 1)):
        k = int(i)
        while good[(k + 1) % n]:
            k += 1
        width = int(corners[k % n] - corners[i]) % period
        if width > best + 1:
            best, middle = width, int(corners[i] + width // 2) % period
    return middle


def rotate(
    links: Sequence[SharedLink],
    periods: Mapping[str, int],
    *,
    start: Mapping[str, int] | None = None,
    slack: float = 0.0,
    seed: int = 0,
    nodes: int = NODES,
) -> Rotation:
    """The shifts (ns) that lose least on `links` together; the first job's is 0.

    `start` is a first guess. Exact up to EXACT_JOBS jobs if `nodes` steps of the search suffice,
    coordinate descent from several starts beyond. Deterministic for a seed.
    """
    search = Search(links, periods, slack)
    if not search.jobs:
        return Rotation({}, 0.0, True)
    order = search.by_demand()
    best, shifts = search.descend(search.insert(order))
    if start is not None:
        loss, other = search.descend({j: start[j] for j in search.jobs})
        if loss < best - _EPS:
            best, shifts = loss, other
    exact = best <= search.bound + _EPS
    if not exact and len(search.jobs) <= EXACT_JOBS:
        best, shifts, exact = search.branch(best, shifts, nodes)
    elif not exact:
        rng = random.Random(seed)
        for _ in range(_RESTARTS):
            loss, other = search.descend(search.insert(rng.sample(order, len(order))))
            if loss < best - _EPS:
                best, shifts = loss, other
    centred = search.centre(shifts)
    if search.loss(centred) <= best + 1e-7:
        shifts = centred
    origin = shifts[search.jobs[0]]
    return Rotation({j: (shifts[j] - origin) % periods[j] for j in search.jobs}, search.loss(shifts), exact)
