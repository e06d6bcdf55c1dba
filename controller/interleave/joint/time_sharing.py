# SPDX-License-Identifier: Apache-2.0
"""Choose paths so that jobs share links only where they can share them in time.

This is a quick estimate, which needs no evaluation of a plan.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.interleave.joint.instance import Instance
from controller.interleave.joint.timings import phases_of
from controller.interleave.link_sharing import SEARCH_WEIGHT, SLACK, pair_fits

_SAME = 1e-9
_NOBODY: Mapping[int, int] = {}

Scored = tuple[float, tuple[tuple[int, int], ...]]
"""What a move of flows, each (flow, way), changes the cost by, and the move."""


@dataclass
class TimeSharing:
    """Which pairs of jobs can share one link in time. Each pair is computed once."""

    instance: Instance
    slack: float = SLACK
    _known: dict[tuple[int, int], bool] = field(default_factory=dict)
    _scored: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Scored]] = field(default_factory=dict)

    def can_share(self, a: int, b: int) -> bool:
        """Whether jobs `a` and `b` can share a link in time that is as fast as the higher of their rates."""
        key = (a, b) if a < b else (b, a)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._ask(*key)
        return known

    def scored(self, path_choice: tuple[int, ...], jobs: tuple[int, ...], most: int) -> list[Scored]:
        """How other paths for the flows of `jobs` change the cost, best first. Computed once for each choice
        of paths.

        For each flow up to `most` moves to another path are listed, and as many exchanges with another flow.
        """
        if (path_choice, jobs) not in self._scored:
            costs = PathCosts(self.instance, path_choice, self)
            flows = self.instance.flows
            mine = [f for f in costs.flows_by_cost() if flows[f][0] in jobs]
            found = [(costs.change(m), m) for f in mine for m in costs.moves_of(f, most)]
            self._scored[path_choice, jobs] = sorted(found)
        return self._scored[path_choice, jobs]

    def _ask(self, a: int, b: int) -> bool:
        pair = [self.instance.jobs[j] for j in (a, b)]
        peak = max(s.rate_bps for p in pair for s in p.steps)
        return pair_fits(
            {p.name: phases_of(p, 1.0, peak) for p in pair}, {p.name: p.alone_ns for p in pair}, self.slack
        )


class PathCosts:
    """The load of every link by job, and the cost of the chosen paths.

    The cost is summed over the links: the part of the time in which two jobs would exceed the link together,
    multiplied by SEARCH_WEIGHT for jobs that can share a link in time.
    """

    def __init__(self, instance: Instance, path_choice: Sequence[int], time_sharing: TimeSharing) -> None:
        self._instance = instance
        self._turns = time_sharing
        self.path_choice = list(path_choice)
        self._flows = instance.flows
        self._rate = [max((s.rate_bps for s in p.steps), default=0) for p in instance.jobs]
        self._busy = [p.up_ns / max(1, p.alone_ns) for p in instance.jobs]
        self._on: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._at: dict[int, set[int]] = defaultdict(set)
        for f, (j, flow) in enumerate(self._flows):
            for link in flow.candidate_paths[self.path_choice[f]]:
                self._on[link][j] += self._rate[j]
                self._at[link].add(f)
        self._cost = {link: self._price(link, wanted) for link, wanted in self._on.items()}

    @property
    def cost(self) -> float:
        """The sum over the links."""
        return sum(self._cost.values())

    def _price(self, link: int, wanted: Mapping[int, int]) -> float:
        """The sum over pairs of jobs of the part of the time in which both would exceed the link's rate."""
        capacity = self._instance.capacity_bps[link]
        peak = sum(wanted.values())
        if peak <= capacity * (1 + _SAME):
            return 0.0
        busy, can_share = self._busy, self._turns.can_share
        users = [user for user in wanted.items() if user[1] > 0]
        beside = 0.5 * (peak / capacity - 1)
        total = 0.0
        for i, (a, first) in enumerate(users):
            if first > capacity:
                total += (first / capacity - 1) * busy[a]
            for b, second in users[i + 1 :]:
                over = (first + second) / capacity
                # A pair that fits matters only where a third job is present. It then counts half.
                share = over - 1 if over > 1 + _SAME else beside * over
                weighed = share * busy[a] * busy[b]
                total += SEARCH_WEIGHT * weighed if can_share(a, b) else weighed
        # No schedule helps against a mean demand above the capacity.
        mean = sum(rate * busy[j] for j, rate in users) / capacity
        return total + 4 * max(0.0, mean - 1)

    def change(self, moves: Sequence[tuple[int, int]]) -> float:
        """How the cost changes if these flows take these paths. Each move is (flow, number of its path)."""
        wanted: dict[int, dict[int, int]] = {}
        for f, path in moves:
            j, flow = self._flows[f]
            before, after = flow.candidate_paths[self.path_choice[f]], flow.candidate_paths[path]
            for links, others, sign in ((before, after, -1), (after, before, 1)):
                for link in links:
                    if link in others:
                        continue
                    if link not in wanted:
                        wanted[link] = dict(self._on.get(link, _NOBODY))
                    rates = wanted[link]
                    rates[j] = rates.get(j, 0) + sign * self._rate[j]
                    if rates[j] <= 0:
                        del rates[j]
        return sum(self._price(k, rates) - self._cost.get(k, 0.0) for k, rates in wanted.items())

    def take(self, moves: Sequence[tuple[int, int]]) -> None:
        """Move flows to other paths."""
        links = self._touched(moves)
        for f, path in moves:
            j, flow = self._flows[f]
            for link in flow.candidate_paths[self.path_choice[f]]:
                self._on[link][j] -= self._rate[j]
                if self._on[link][j] <= 0:
                    del self._on[link][j]
                self._at[link].discard(f)
            for link in flow.candidate_paths[path]:
                self._on[link][j] += self._rate[j]
                self._at[link].add(f)
            self.path_choice[f] = path
        for link in links:
            self._cost[link] = self._price(link, self._on[link])

    def _touched(self, moves: Sequence[tuple[int, int]]) -> set[int]:
        links: set[int] = set()
        for f, path in moves:
            flow = self._flows[f][1]
            links |= set(flow.candidate_paths[self.path_choice[f]]) ^ set(flow.candidate_paths[path])
        return links

    def moves_of(self, f: int, most: int) -> list[tuple[tuple[int, int], ...]]:
        """Moves of a flow to other paths, alone or in exchange with another: up to `most` of each kind."""
        j, flow = self._flows[f]
        now = set(flow.candidate_paths[self.path_choice[f]])
        found: list[tuple[tuple[int, int], ...]] = []
        for path, links in enumerate(flow.candidate_paths[: most + 1]):
            if path == self.path_choice[f]:
                continue
            found.append(((f, path),))
            gained, given = set(links) - now, now - set(links)
            for other in sorted({o for link in gained for o in self._at[link]})[:most]:
                if self._flows[other][0] == j:
                    continue
                for back, theirs in enumerate(self._flows[other][1].candidate_paths[: most + 1]):
                    if back != self.path_choice[other] and given & set(theirs) and not gained & set(theirs):
                        found.append(((f, path), (other, back)))
                        break
        return found

    def flows_by_cost(self) -> list[int]:
        """The flows on links that have a cost, those on the most expensive link first."""
        links = sorted((k for k, cost in self._cost.items() if cost > _SAME), key=lambda k: -self._cost[k])
        return list(dict.fromkeys(f for link in links for f in sorted(self._at[link])))


def arrange_paths(
    instance: Instance,
    path_choice: Sequence[int],
    time_sharing: TimeSharing,
    *,
    seed: int = 0,
    exchanges: int = 4_000,
) -> tuple[int, ...]:
    """Improve paths by moving and exchanging flows until their cost is low; at most `exchanges` moves are
    tried.
    """
    costs = PathCosts(instance, path_choice, time_sharing)
    rng = random.Random(seed)
    best, kept = costs.cost, tuple(costs.path_choice)
    while exchanges > 0 and costs.cost > _SAME:
        improved = False
        for f in costs.flows_by_cost():
            tried = costs.moves_of(f, 8)
            exchanges -= len(tried)
            scored = [(costs.change(m), i) for i, m in enumerate(tried)]
            gain, i = min(scored, default=(0.0, 0))
            if gain < -_SAME:
                costs.take(tried[i])
                improved = True
            if exchanges <= 0:
                break
        if costs.cost < best - _SAME:
            best, kept = costs.cost, tuple(costs.path_choice)
        elif not improved:
            # A few random moves lead out of the local optimum.
            flows_by_cost = costs.flows_by_cost()
            for f in rng.sample(flows_by_cost, min(3, len(flows_by_cost))):
                tried = costs.moves_of(f, 8)
                if tried:
                    costs.take(rng.choice(tried))
            exchanges -= 20
    return kept
