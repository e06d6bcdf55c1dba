# SPDX-License-Identifier: Apache-2.0
"""Paths that put those on one link who can take turns there: a cheap stand-in for the judge."""

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
    """Which pairs of jobs can take turns on a link that holds one of them; asked once for each pair."""

    instance: Instance
    slack: float = SLACK
    _known: dict[tuple[int, int], bool] = field(default_factory=dict)
    _scored: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Scored]] = field(default_factory=dict)

    def can_share(self, a: int, b: int) -> bool:
        """Whether the two fit on one link at the higher of their rates."""
        key = (a, b) if a < b else (b, a)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._ask(*key)
        return known

    def scored(self, path_choice: tuple[int, ...], jobs: tuple[int, ...], most: int) -> list[Scored]:
        """What other ways for flows of `jobs` change the cost by, the best first: up to `most` of each flow,
        and as many exchanges. Asked once for each set of paths."""
        if (path_choice, jobs) not in self._scored:
            costs = PathCosts(self.instance, path_choice, self)
            flows = self.instance.flows
            mine = [f for f in costs.hot() if flows[f][0] in jobs]
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
    """The load of every link by job, and what paths cost: over the links, how much of the time jobs would
    meet there, each pair weighed by TURNS if both can take turns."""

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
        """Sum over pairs of the part of the link's time in which both would want it beyond its rate."""
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
                # Pairs that fit matter only beside others: half as much.
                share = over - 1 if over > 1 + _SAME else beside * over
                weighed = share * busy[a] * busy[b]
                total += SEARCH_WEIGHT * weighed if can_share(a, b) else weighed
        # Beyond what the link can carry at all nothing helps.
        mean = sum(rate * busy[j] for j, rate in users) / capacity
        return total + 4 * max(0.0, mean - 1)

    def change(self, moves: Sequence[tuple[int, int]]) -> float:
        """What the cost would change by if these flows took these ways."""
        wanted: dict[int, dict[int, int]] = {}
        for f, way in moves:
            j, flow = self._flows[f]
            before, after = flow.candidate_paths[self.path_choice[f]], flow.candidate_paths[way]
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
        """Put flows on other ways."""
        links = self._touched(moves)
        for f, way in moves:
            j, flow = self._flows[f]
            for link in flow.candidate_paths[self.path_choice[f]]:
                self._on[link][j] -= self._rate[j]
                if self._on[link][j] <= 0:
                    del self._on[link][j]
                self._at[link].discard(f)
            for link in flow.candidate_paths[way]:
                self._on[link][j] += self._rate[j]
                self._at[link].add(f)
            self.path_choice[f] = way
        for link in links:
            self._cost[link] = self._price(link, self._on[link])

    def _touched(self, moves: Sequence[tuple[int, int]]) -> set[int]:
        links: set[int] = set()
        for f, way in moves:
            flow = self._flows[f][1]
            links |= set(flow.candidate_paths[self.path_choice[f]]) ^ set(flow.candidate_paths[way])
        return links

    def moves_of(self, f: int, most: int) -> list[tuple[tuple[int, int], ...]]:
        """Other ways for a flow, alone or in exchange with a flow that is on them: up to `most` of each."""
        j, flow = self._flows[f]
        now = set(flow.candidate_paths[self.path_choice[f]])
        found: list[tuple[tuple[int, int], ...]] = []
        for way, links in enumerate(flow.candidate_paths[: most + 1]):
            if way == self.path_choice[f]:
                continue
            found.append(((f, way),))
            gained, given = set(links) - now, now - set(links)
            for other in sorted({o for link in gained for o in self._at[link]})[:most]:
                if self._flows[other][0] == j:
                    continue
                for back, theirs in enumerate(self._flows[other][1].candidate_paths[: most + 1]):
                    if back != self.path_choice[other] and given & set(theirs) and not gained & set(theirs):
                        found.append(((f, way), (other, back)))
                        break
        return found

    def hot(self) -> list[int]:
        """Flows on links that cost something, those on the costliest first."""
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
    """Paths of a lower cost by moves and exchanges of flows, from the given ones; `work` moves are tried."""
    costs = PathCosts(instance, path_choice, time_sharing)
    rng = random.Random(seed)
    best, kept = costs.cost, tuple(costs.path_choice)
    while exchanges > 0 and costs.cost > _SAME:
        improved = False
        for f in costs.hot():
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
            # A few random moves out of the valley.
            hot = costs.hot()
            for f in rng.sample(hot, min(3, len(hot))):
                tried = costs.moves_of(f, 8)
                if tried:
                    costs.take(rng.choice(tried))
            exchanges -= 20
    return kept
