# SPDX-License-Identifier: Apache-2.0
"""Which links jobs contend for, and whether these links join the jobs in a loop. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Link = tuple[str, str]
"""A directed link: the nodes at its ends."""


@dataclass(frozen=True, slots=True)
class RoutedFlow:
    """A flow of a job on its path, from host to host. `gbps` is the rate at which it sends alone."""

    job: str
    path: tuple[str, ...]
    gbps: float

    @property
    def links(self) -> Iterable[Link]:
        """The directed links of the path."""
        return zip(self.path, self.path[1:], strict=False)


def contended_links(flows: Sequence[RoutedFlow], gbps: Mapping[Link, float]) -> dict[Link, frozenset[str]]:
    """The links that flows of two jobs or more would fill, with these jobs.

    `gbps` is the rate of each directed link. A link is full if the flows on it send more than it carries.
    """
    demand: dict[Link, float] = {}
    jobs: dict[Link, set[str]] = {}
    for flow in flows:
        for link in flow.links:
            demand[link] = demand.get(link, 0.0) + flow.gbps
            jobs.setdefault(link, set()).add(flow.job)
    return {
        link: frozenset(names) for link, names in jobs.items() if len(names) > 1 and demand[link] > gbps[link]
    }


def has_loop(links: Iterable[frozenset[str]]) -> bool:
    """Whether the affinity graph has a loop (CASSINI thesis, 4.4.1).

    Its vertices are the jobs and the contended links, an edge joins a job to a link that it uses. Links with
    the same jobs are one vertex, because one time-shift serves them all.
    """
    parent: dict[object, object] = {}

    def root(vertex: object) -> object:
        parent.setdefault(vertex, vertex)
        while parent[vertex] != vertex:
            vertex = parent[vertex]
        return vertex

    for jobs in sorted(set(links), key=sorted):
        for job in sorted(jobs):
            a, b = root(job), root(jobs)
            if a == b:
                return True
            parent[a] = b
    return False
