# SPDX-License-Identifier: Apache-2.0
"""Priority compression: many priorities on few levels, with the least loss (CRUX, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.kernel import KernelsUnavailableError
from controller.priority import reference
from controller.priority.graph import Graph, graph_of_edges

ORDERS = 10
"""The number of topological orders that are tried: m of CRUX, section 4.3."""
HYSTERESIS = 0.05
"""What a job must gain to leave its previous level, as a part of all the contention of the job. Chosen."""
KERNELS = Path(__file__).with_name("kernels.py")
"""The source file of the kernel; its first call compiles or loads the machine code."""
_PLAIN_JOBS = 128
"""Up to this many jobs plain Python runs. Chosen: it is faster there than importing Numba."""
_MOST_KEPT = 64
"""How many results are kept, those used last. Chosen: a plan asks for about seven, and one takes some KiB."""


@dataclass(frozen=True, slots=True)
class Compression:
    """`level` of each job, 0 the highest.

    `cut` is the weight of the contention between different levels, `lost` that within one level.
    """

    level: Mapping[str, int]
    cut: float
    lost: float


def compress(
    order: Sequence[str],
    edges: Mapping[tuple[str, str], float],
    levels: int,
    *,
    orders: int = ORDERS,
    seed: int = 0,
    previous: Mapping[str, int] | None = None,
    hysteresis: float = HYSTERESIS,
) -> Compression:
    """Algorithm 1: the best K-cut of the contention DAG over a sample of its topological orders.

    `order` holds the jobs, highest priority first; `edges` maps (higher, lower) to a weight. The first of the
    `orders` sampled orders is `order` itself. Parts of the DAG that are not connected are cut separately,
    each on as few levels as its best cut needs, counted from 0: a job without contention gets level 0.

    `previous` holds the levels of some jobs. Such a job leaves its level only where that gains more than
    `hysteresis` of all the contention of the job, so a new job changes few levels. Levels are then not
    counted from 0 in each part.

    Raises ValueError for levels or orders below 1, an edge against `order`, or a `hysteresis` outside [0, 1].
    """
    graph = graph_of_edges(order, edges)
    was = None if previous is None else tuple(previous.get(name, -1) for name in order)
    columns = graph.at.tobytes(), graph.superior.tobytes(), graph.weight.tobytes()
    found = _known_levels(columns, levels, orders, seed, was, hysteresis)
    level = dict(zip(order, found, strict=True))
    cut = sum(w for (a, b), w in edges.items() if level[a] < level[b])
    return Compression(level, cut, sum(edges.values()) - cut)


@lru_cache(_MOST_KEPT)
def _known_levels(
    columns: tuple[bytes, bytes, bytes],
    levels: int,
    orders: int,
    seed: int,
    previous: tuple[int, ...] | None,
    hysteresis: float,
) -> tuple[int, ...]:
    """`compress_graph` of the graph with these arrays. Most jobs that come to a cluster, or leave it, contend
    with no other one, and then the plan before has asked for the same."""
    at, superior = (np.frombuffer(column, dtype=np.int64) for column in columns[:2])
    graph = Graph(at, superior, np.frombuffer(columns[2], dtype=np.float64))
    found = compress_graph(graph, levels, orders=orders, seed=seed, previous=previous, hysteresis=hysteresis)
    return tuple(found.tolist())


def compress_graph(
    graph: Graph,
    levels: int,
    *,
    orders: int = ORDERS,
    seed: int = 0,
    previous: Sequence[int] | None = None,
    hysteresis: float = HYSTERESIS,
    plain: bool | None = None,
) -> NDArray[np.int64]:
    """`compress` on arrays: the level of each job, shape (jobs,). `previous` is -1 for a new job.

    `plain` selects the reference (True) or the kernel (False). By default the number of jobs decides, and the
    reference runs where Numba is missing. Both give the same levels, because the sums are of whole numbers.
    """
    if levels < 1:
        raise ValueError(f"levels must be at least 1, not {levels}")
    if orders < 1:
        raise ValueError(f"orders must be at least 1, not {orders}")
    if not 0 <= hysteresis <= 1:
        raise ValueError(f"hysteresis must be in [0, 1], not {hysteresis}")
    n = graph.size
    whole = _whole(graph.weight)
    was = np.full(n, -1, dtype=np.int64) if previous is None else np.array(previous, dtype=np.int64)
    bonus = np.zeros(n, dtype=np.int64)
    if previous is not None:
        around = np.bincount(graph.inferior, weights=whole, minlength=n)
        around += np.bincount(graph.superior, weights=whole, minlength=n)
        # The extra 1 keeps a job on its level where leaving gains exactly nothing.
        bonus = 1 + (hysteresis * around).astype(np.int64)
    draws = np.random.default_rng(seed).random((orders, n))
    solve = reference.best_levels
    if not (n <= _PLAIN_JOBS if plain is None else plain):
        try:
            from controller.priority import kernels

            solve = kernels.best_levels
        except KernelsUnavailableError:
            if plain is not None:
                raise
    return solve(graph.at, graph.superior, whole, levels, draws, was, bonus)


def _whole(weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """Weights scaled to whole numbers such that all their sums, bonuses included, stay below 2^62.

    Sums are then exact, so ties are ties in whatever order the weights are added.
    """
    top = float(weight.max(initial=0.0))
    if top == 0:
        return np.zeros(len(weight), dtype=np.int64)
    bits = 58 - len(weight).bit_length()
    return np.rint(weight / top * 2.0**bits).astype(np.int64)
