# SPDX-License-Identifier: Apache-2.0
"""Rotation search: the shifts that maximise the scores of the links that a few jobs share.

The excess is piecewise linear in the shifts. So some optimum is a vertex: every job has an edge of a phase
aligned with an edge of another job's, along a spanning tree. Up to EXACT_JOBS jobs, branch and bound tries
all such trees. Beyond, the search is coordinate descent, in which each step is exact. Among the optimal
rotations the one with the widest gaps is used, because real phases jitter by milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from controller.interleave.circle import SharedLink
from controller.interleave.search import EXACT_JOBS, Search
from controller.kernel import available

NODES = 400
"""The sweeps of the plain exact search. Chosen: some seconds at most."""
FAST_NODES = 200_000
"""The sweeps of the compiled exact search. Chosen: it takes as long as the plain one."""
KERNELS = Path(__file__).parent / "kernels"
"""The folder of the compiled search."""
__all__ = ["EXACT_JOBS", "FAST_NODES", "NODES", "Rotation", "rotate"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """`shifts` in ns, where that of the first job is 0; `loss` is the sum over the links of 1 - score.

    `exact`: the loss is proven to be the least possible.
    """

    shifts: Mapping[str, int]
    loss: float
    exact: bool


def rotate(
    links: Sequence[SharedLink],
    periods: Mapping[str, int],
    *,
    start: Mapping[str, int] | None = None,
    slack: float = 0.0,
    seed: int = 0,
    nodes: int = NODES,
    fast: bool = False,
    widen: bool = True,
    starts: int = 0,
) -> Rotation:
    """The shifts (ns) that lose least on `links` together; the shift of the first job is 0.

    `start` is a first guess. The result is exact for up to EXACT_JOBS jobs if `nodes` steps of the search
    suffice, and comes from coordinate descent from several starts otherwise. `fast` uses the kernels where
    Numba is installed. They pay off from some dozens of links on, and their first use compiles them. `widen`
    moves the jobs to the middle of their gaps. `starts`: how many further starts a result that is not proven
    gets. Deterministic for a seed.
    """
    search = searcher(fast)(links, periods, slack)
    if not search.jobs:
        return Rotation({}, 0.0, True)
    best, shifts, exact = search.solve(start, seed, nodes)
    if not exact:
        best, shifts = search.explore(best, shifts, starts, seed)
    if widen:
        centred = search.centre(shifts)
        if search.loss(centred) <= best + 1e-7:
            shifts = centred
    origin = shifts[search.jobs[0]]
    turned = {j: (shifts[j] - origin) % periods[j] for j in search.jobs}
    return Rotation(turned, search.loss(turned), exact)


def searcher(fast: bool) -> type[Search]:
    """The compiled search if `fast` and Numba is installed, else the plain one."""
    if not fast or not available():
        return Search
    found: type[Search] = import_module("controller.interleave.compiled_search").CompiledSearch
    return found
