# SPDX-License-Identifier: Apache-2.0
"""One shift for each job over all links that it shares: the affinity graph (CASSINI thesis, 4.4.1)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.interleave.circle import SharedLink, score
from controller.interleave.link_arrays import group_identical_links
from controller.interleave.rotate import NODES, rotate

LinkName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LinkFit:
    """The compatibility score of a link under the final shifts, and the best score of the link alone.

    `exact`: the best score is proven to be the best.
    """

    link: LinkName
    jobs: tuple[str, ...]
    score: float
    best_score: float
    exact: bool = False

    @property
    def loss(self) -> float:
        """What the link loses because its jobs share other links too; 0 without a loop in the graph."""
        return max(0.0, self.best_score - self.score)


@dataclass(frozen=True, slots=True)
class Loop:
    """A connected part of the affinity graph that is not a tree. Its shifts are a compromise between the
    links.
    """

    links: tuple[LinkName, ...]
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """`shifts` in ns by job; in every connected part the shift of the first job is 0."""

    shifts: Mapping[str, int]
    links: tuple[LinkFit, ...]
    loops: tuple[Loop, ...]


def traverse(shifts_on: Sequence[Mapping[str, int]], periods: Mapping[str, int]) -> Mapping[str, int]:
    """Algorithm 1 of the thesis: unique shifts (ns) from the shifts on each link, by breadth-first search.

    From a job to a link a shift counts negative, from a link to a job positive. On a graph without loops
    every link l has some c_l with t_j = t_j^l + c_l (mod T_j) for all its jobs. Equation 4.6 as printed,
    modulo the perimeter, fails where line 17 has reduced a shift by another period. With loops, the links
    that are found later are not respected. The first job of each connected part has shift 0.
    """
    links_of: dict[str, list[Mapping[str, int]]] = defaultdict(list)
    for link in shifts_on:
        for job in link:
            links_of[job].append(link)
    result: dict[str, int] = {}
    for root in links_of:
        if root in result:
            continue
        result[root] = 0
        queue = deque([root])
        while queue:
            job = queue.popleft()
            for link in links_of[job]:
                for other in link:
                    if other not in result:
                        result[other] = (result[job] - link[job] + link[other]) % periods[other]
                        queue.append(other)
    return result


def components(links: Sequence[SharedLink]) -> list[list[SharedLink]]:
    """The links of each connected part of the affinity graph."""
    parts: list[tuple[set[str], list[SharedLink]]] = []
    for link in links:
        jobs, members = set(link.demands), [link]
        apart = []
        for part in parts:
            if part[0] & jobs:
                jobs |= part[0]
                members = part[1] + members
            else:
                apart.append(part)
        parts = [*apart, (jobs, members)]
    return [members for _, members in parts]


def align(
    links: Sequence[SharedLink],
    periods: Mapping[str, int],
    *,
    slack: float = 0.0,
    seed: int = 0,
    nodes: int = NODES,
    fast: bool = False,
    starts: int = 0,
) -> Alignment:
    """The shifts of all jobs on `links`. Their `periods` (ns) must have a small common multiple.

    Links with equal capacity, jobs and demands are one vertex. Where the graph is a tree, each vertex gets
    its best rotation, and Algorithm 1 joins them. Where it has loops, the thesis discards the placement; this
    function uses the shifts that lose least over all links of the part. `nodes` limits each exact search;
    `starts` gives parts with loops further starts; `fast` uses the compiled kernels.
    """
    shifts: dict[str, int] = {}
    fits: dict[LinkName, LinkFit] = {}
    loops: list[Loop] = []
    for part in components(links):
        vertices = group_identical_links(part)
        alone = [
            rotate(alike[:1], periods, slack=slack, seed=seed, nodes=nodes, fast=fast) for alike in vertices
        ]
        joined = traverse([r.shifts for r in alone], periods)
        edges = sum(len(alike[0].demands) for alike in vertices)
        if edges >= len(joined) + len(vertices):
            loops.append(Loop(tuple(link.name for link in part), tuple(joined)))
            joined = rotate(
                part, periods, start=joined, slack=slack, seed=seed, nodes=nodes, fast=fast, starts=starts
            ).shifts
        shifts |= joined
        for alike, rotation in zip(vertices, alone, strict=True):
            got = score(alike[0], periods, joined, slack=slack)
            for link in alike:
                best = max(got, 1 - rotation.loss)
                fits[link.name] = LinkFit(link.name, tuple(link.demands), got, best, rotation.exact)
    return Alignment(shifts, tuple(fits[link.name] for link in links), tuple(loops))
