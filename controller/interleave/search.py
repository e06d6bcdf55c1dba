# SPDX-License-Identifier: Apache-2.0
"""The rotation search in plain NumPy: the reference of the kernels, and the choice for small problems."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.interleave.circle import Floats, Ints, SharedLink, perimeter, score, sweep
from controller.interleave.link_arrays import group_identical_links
from controller.interleave.pair_fft import best_pair_shift

EPS = 1e-9
"""Losses that differ by less are equal: more than the error of their sums."""
SWEEPS = 30
"""Rounds of a descent. Chosen: nearly every descent ends earlier."""
EXACT_JOBS = 4
"""Up to this many jobs the search is exact. Chosen: beyond, the number of alignment trees explodes."""
_RESTARTS = 3
"""Starts of the descent besides the first one. Chosen: bounds the time of the plain search."""
RANDOM_STARTS = 10
"""How many of the further starts (see `Search.explore`) are at random shifts. Chosen: as many as a plain
coordinate ascent would get."""
_DESCENT = 8
"""Rounds that a descent is counted as. Chosen: most end earlier."""
_WORK = 300_000_000
"""The positions (see `places`) that a search may visit. Chosen: some seconds of NumPy."""


def places(link: SharedLink, periods: Mapping[str, int]) -> int:
    """How many positions one plain sweep of each job on a link visits.

    Each lap of a job is compared with every edge of the others, phase by phase.
    """
    around = perimeter([periods[j] for j in link.demands]) if link.demands else 0
    laps = {j: around // periods[j] for j in link.demands}
    edges = {j: 2 * len(phases) * laps[j] for j, phases in link.demands.items()}
    total = sum(edges.values())
    return sum(
        (laps[j] + 2) * (total - edges[j]) * len(phases) + edges[j] for j, phases in link.demands.items()
    )


class Search:
    """Rotations of one set of jobs on a set of links."""

    def __init__(self, links: Sequence[SharedLink], periods: Mapping[str, int], slack: float) -> None:
        # Identical links are computed once, with a weight.
        alike = group_identical_links(links)
        self._links = tuple(same[0] for same in alike)
        self._weight = {same[0].name: len(same) for same in alike}
        self._periods = periods
        self._slack = slack
        self.jobs = tuple(dict.fromkeys(job for link in links for job in link.demands))
        self._of = {job: [link for link in self._links if job in link.demands] for job in self.jobs}
        # Circles with very many laps are searched less, so that the work is bounded.
        self._afford = _WORK // (1 + sum(places(link, periods) for link in self._links))
        self._rounds = max(2, min(SWEEPS, self._afford // 4))
        self.bound = sum(self._weight[link.name] * self._unavoidable(link) for link in self._links)

    def _mean(self, link: SharedLink, job: str) -> float:
        sent = sum(p.rate_bps * (p.end_ns - p.start_ns) for p in link.demands[job])
        return sent / self._periods[job] / link.rate_bps

    def _unavoidable(self, link: SharedLink) -> float:
        """The demand that no rotation can fit, as a part of the capacity (0 if the slack may absorb it)."""
        total = sum(self._mean(link, job) for job in link.demands)
        return total - 1 if total > 1 + self._slack else 0.0

    def solve(
        self, start: Mapping[str, int] | None, seed: int, nodes: int
    ) -> tuple[float, Mapping[str, int], bool]:
        """The least loss found, its shifts, and whether it is proven to be the least possible.

        Two jobs in short slots use the FFT. Up to EXACT_JOBS jobs the result is exact if `nodes` sweeps
        suffice. Beyond, it comes from coordinate descent from several starts, or from one descent if `nodes`
        is 0.
        """
        pair = self.pair()
        if pair is not None:
            return self.loss(pair), pair, True
        order = self.by_demand()
        best, shifts = self.descend(self.insert(order))
        if start is not None:
            loss, other = self.descend({j: start[j] for j in self.jobs})
            if loss < best - EPS:
                best, shifts = loss, other
        exact = best <= self.bound + EPS
        if exact or not nodes:
            return best, shifts, exact
        if len(self.jobs) <= EXACT_JOBS:
            return self.branch(best, shifts, min(nodes, self._afford))
        rng = random.Random(seed)
        for _ in range(_RESTARTS if self._rounds == SWEEPS else 0):
            loss, other = self.descend(self.insert(rng.sample(order, len(order))))
            if loss < best - EPS:
                best, shifts = loss, other
        return best, shifts, exact

    def explore(
        self, best: float, shifts: Mapping[str, int], starts: int, seed: int
    ) -> tuple[float, Mapping[str, int]]:
        """The least loss of `best` at `shifts` and of descents from up to `starts` further starts.

        The first RANDOM_STARTS are at random shifts. The others take some jobs out of the best shifts so far
        and add them again in random order. There are fewer starts where circles have very many edges.
        """
        rng = random.Random(f"{seed}/explore")
        for number in range(min(starts, self._afford // _DESCENT)):
            if best <= self.bound + EPS:
                break
            if number < RANDOM_STARTS:
                begin = {j: rng.randrange(self._periods[j]) for j in self.jobs}
            else:
                moved = rng.sample(self.jobs, rng.randint(2, max(2, len(self.jobs) - 1)))
                begin = {j: shift for j, shift in shifts.items() if j not in moved}
                begin = self.insert(moved, begin)
            loss, other = self.descend(begin)
            if loss < best - EPS:
                best, shifts = loss, other
        return best, shifts

    def pair(self) -> Mapping[str, int] | None:
        """The best shifts of two jobs in short slots on one link; None for everything else."""
        if len(self.jobs) != 2 or len(self._links) != 1:
            return None
        found = best_pair_shift(self._links[0], self._periods, self._slack)
        return None if found is None else {self.jobs[0]: 0, self.jobs[1]: found[1]}

    def loss(self, shifts: Mapping[str, int]) -> float:
        """The sum over the links of 1 - score."""
        return sum(self._link_loss(link, shifts) for link in self._links)

    def _link_loss(self, link: SharedLink, shifts: Mapping[str, int]) -> float:
        return self._weight[link.name] * (1 - score(link, self._periods, shifts, slack=self._slack))

    def _sweep(self, job: str, shifts: Mapping[str, int], tight: bool = False) -> tuple[Ints, Floats]:
        """The loss on the job's links at every corner of its shift, with the other jobs fixed.

        With `tight` the threshold is the highest demand of a single job, so any overlap counts.
        """
        results = []
        for link in self._of[job]:
            rates = [p.rate_bps for phases in link.demands.values() for p in phases]
            peak = max(rates, default=1) if tight else None
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
        """Coordinate descent from complete shifts. Each step is exact, and the first job stays."""
        current = dict(shifts)
        best = self.loss(current)
        for _ in range(self._rounds):
            before = best
            for job in self.jobs[1:]:
                corners, value = self._sweep(job, current)
                i = int(np.argmin(value))
                moved = current | {job: int(corners[i])}
                loss = self.loss(moved)
                if loss < best - EPS:
                    current, best = moved, loss
            if best >= before - EPS or best <= self.bound + EPS:
                break
        return best, current

    def insert(self, order: Sequence[str], placed: Mapping[str, int] | None = None) -> dict[str, int]:
        """Shifts by adding jobs in turn where each hurts least: to `placed`, or to the first job at 0."""
        shifts = dict(placed if placed is not None else {self.jobs[0]: 0})
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

        Adding a job never lessens the excess, so a partial loss bounds what follows. Without slack excess
        is convex in demand, and each job left adds at least the least that it would add now.
        """
        convex = self._slack == 0.0
        seen: set[frozenset[tuple[str, int]]] = set()

        def extend(placed: dict[str, int]) -> None:
            nonlocal best, shifts, nodes
            state = frozenset(placed.items())
            if state in seen or best <= self.bound + EPS or nodes < 0:
                return
            seen.add(state)
            left = [j for j in self.jobs if j not in placed]
            swept = {job: self._sweep(job, placed) for job in left}
            apart = {job: self._apart(job, placed) for job in left}
            so_far = self._apart("", placed) if convex else 0.0
            least = {
                j: max(0.0, float(swept[j][1].min()) + apart[j] - so_far) if convex else 0.0 for j in left
            }
            for job in left:
                nodes -= 1
                if nodes < 0:
                    return
                corners, value = swept[job]
                others = sum(least[j] for j in left if j != job)
                for i in np.argsort(value, kind="stable"):
                    loss = float(value[i]) + apart[job]
                    if loss + others >= best - EPS:
                        break
                    following = placed | {job: int(corners[i])}
                    if len(left) == 1:
                        best, shifts = loss, following
                        break
                    extend(following)

        extend({self.jobs[0]: 0})
        return best, shifts, nodes >= 0

    def _apart(self, job: str, placed: Mapping[str, int]) -> float:
        """The loss of the placed jobs on the links that `job` does not use."""
        return sum(
            self._link_loss(self._only(link, placed), placed)
            for link in self._links
            if job not in link.demands and any(j in placed for j in link.demands)
        )

    @staticmethod
    def _only(link: SharedLink, placed: Mapping[str, int]) -> SharedLink:
        demands = {j: p for j, p in link.demands.items() if j in placed}
        return SharedLink(link.name, link.rate_bps, demands)

    def centre(self, shifts: Mapping[str, int]) -> dict[str, int]:
        """Move every job to the middle of its widest interval of equally good shifts, until none moves any
        more.

        Where a job fits everywhere, positions with the least overlap are preferred.
        """
        current = dict(shifts)
        settled = min(self._periods[j] for j in self.jobs) // 500
        for _ in range(self._rounds):
            moved = 0
            for job in self.jobs[1:]:
                corners, value = self._sweep(job, current)
                tight_corners, tight = self._sweep(job, current, tight=True)
                period = self._periods[job]
                grid = np.union1d(corners, tight_corners)
                first = np.interp(grid, corners, value, period=period)
                second = np.interp(grid, tight_corners, tight, period=period)
                good = first <= first.min() + EPS
                good &= second <= second[good].min() + EPS
                middle = _widest(grid, good, period, current[job])
                gap = abs(middle - current[job])
                moved = max(moved, min(gap, period - gap))
                current[job] = middle
            if moved <= settled:
                break
        return current


def _widest(corners: Ints, good: NDArray[np.bool_], period: int, current: int) -> int:
    """The middle of the widest run of good corners around a circle; `current` if all corners are good."""
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
