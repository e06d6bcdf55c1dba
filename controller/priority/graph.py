# SPDX-License-Identifier: Apache-2.0
"""The communication contention DAG as arrays (CRUX, section 4.3)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs 0 to n-1 by priority, highest first.

    `superior[at[b]:at[b + 1]]` are the jobs above b that contend with it. `weight` is what is lost if the two
    share a level: the intensity of the upper job.
    """

    at: NDArray[np.int64]
    superior: NDArray[np.int64]
    weight: NDArray[np.float64]

    @property
    def size(self) -> int:
        """The number of jobs."""
        return len(self.at) - 1

    @property
    def inferior(self) -> NDArray[np.int64]:
        """The lower job of every edge, shape (edges,)."""
        return np.repeat(np.arange(self.size), np.diff(self.at))

    def cut(self, level: NDArray[np.int64]) -> float:
        """The weight of the edges whose ends are on different levels."""
        return float(self.weight[level[self.superior] != level[self.inferior]].sum())


def graph_of_edges(order: Sequence[str], edges: Mapping[tuple[str, str], float]) -> Graph:
    """The DAG of (higher, lower) -> weight; `order` holds the jobs, highest first.

    Raises ValueError for an edge against the order, and for a weight that is negative or not finite.
    """
    place = {name: i for i, name in enumerate(order)}
    rows = []
    for (high, low), weight in edges.items():
        if place[high] >= place[low]:
            raise ValueError(f"edge {high} -> {low} goes against the priority order")
        if not 0 <= weight < np.inf:
            raise ValueError(f"edge {high} -> {low}: the weight must be at least 0 and finite, not {weight}")
        rows.append((place[low], place[high], weight))
    rows.sort()
    counts = np.bincount(np.array([r[0] for r in rows], dtype=np.int64), minlength=len(order))
    return Graph(
        at=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        superior=np.array([r[1] for r in rows], dtype=np.int64),
        weight=np.array([r[2] for r in rows], dtype=np.float64),
    )


def graph_of_links(
    links_of: Sequence[Iterable[Hashable]], intensity: Sequence[float] | NDArray[np.float64]
) -> Graph:
    """The DAG of jobs that share a link: one edge for each pair, with the intensity of the upper job as
    weight.

    `links_of[i]` are the links that job i sends on. The jobs are in order of priority, highest first.
    """
    members: dict[Hashable, list[int]] = {}
    for job, links in enumerate(links_of):
        for link in set(links):
            members.setdefault(link, []).append(job)
    size = len(links_of)
    sharing = np.zeros((size, size), dtype=np.bool_)
    for jobs in members.values():
        sharing[np.ix_(jobs, jobs)] = True
    low, high = np.nonzero(np.tril(sharing, -1))
    counts = np.bincount(low, minlength=size)
    return Graph(
        at=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        superior=high.astype(np.int64),
        weight=np.asarray(intensity, dtype=np.float64)[high],
    )


@dataclass(frozen=True, slots=True, eq=False)
class Edges(Mapping[tuple[str, str], float]):
    """The edges of a graph by the names of the jobs: (higher, lower) -> weight.

    `names` are in the order of the graph. Millions of edges stay in arrays.
    """

    graph: Graph
    names: Sequence[str]

    def __getitem__(self, edge: tuple[str, str]) -> float:
        high, low = (self.names.index(name) if name in self.names else -1 for name in edge)
        if min(high, low) >= 0:
            for at in range(*self.graph.at[low : low + 2].tolist()):
                if self.graph.superior[at] == high:
                    return float(self.graph.weight[at])
        raise KeyError(edge)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for high, low in zip(self.graph.superior.tolist(), self.graph.inferior.tolist(), strict=True):
            yield self.names[high], self.names[low]

    def __len__(self) -> int:
        return len(self.graph.weight)
