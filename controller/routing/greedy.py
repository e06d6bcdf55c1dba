# SPDX-License-Identifier: Apache-2.0
"""Greedy max-min routing: each commodity takes the path that is least congested so far.

"Routing for Large ML Models", Algorithm 1, in plain Python, on any fabric. The forwarding of
the switches gives the candidate paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from controller.routing.fabric import capacities
from controller.routing.paths import Forwarding, Path, paths
from topo.graph import Topology

Overlap = Callable[[str, str], float]
DirectedLink = tuple[str, str]
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Commodity:
    """Traffic from host `src` to host `dst`: `weight` bit/s, which belong to the job `owner`."""

    name: str
    src: str
    dst: str
    weight: float
    owner: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Congestion:
    """How congested a set of paths is; smaller is better.

    `max_load` is the largest load of a fabric link, as demand over capacity. `squares`, the sum of the
    squares of all loads, breaks ties.
    """

    max_load: float
    squares: float


class Loads:
    """The load of every directed fabric link, by job.

    `overlap(a, b)` is the part of the traffic of job b, 0 to 1, that meets traffic of job a in time. Jobs
    that never send at the same time may share a link. Without `overlap` all traffic counts in full.
    """

    def __init__(self, topology: Topology, overlap: Overlap | None = None) -> None:
        self._capacity = capacities(topology)
        self._load: dict[DirectedLink, dict[str, float]] = defaultdict(dict)
        self._overlap = overlap

    def add(self, path: Path, commodity: Commodity) -> None:
        """Put a commodity on a path."""
        for link in fabric_links(path):
            by_owner = self._load[link]
            by_owner[commodity.owner] = by_owner.get(commodity.owner, 0.0) + commodity.weight

    def _felt(self, link: DirectedLink, owner: str) -> float:
        felt = 0.0
        for other, load in self._load[link].items():
            hurts = 1.0 if self._overlap is None or other == owner else self._overlap(owner, other)
            felt += hurts * load
        return felt

    def cost(self, path: Path, commodity: Commodity) -> tuple[float, float]:
        """(largest load, sum of loads) on the links of the path, with the commodity's own weight included."""
        loads = [
            (self._felt(link, commodity.owner) + commodity.weight) / self._capacity[link]
            for link in fabric_links(path)
        ]
        return max(loads, default=0.0), sum(loads)

    def congestion(self) -> Congestion:
        """The congestion of all commodities added so far."""
        loads = [
            max((self._felt(link, owner) for owner in owners), default=0.0) / self._capacity[link]
            for link, owners in self._load.items()
        ]
        return Congestion(round(max(loads, default=0.0), 9), round(sum(x * x for x in loads), 9))


def fabric_links(path: Path) -> Iterable[DirectedLink]:
    """The directed switch-to-switch links of a host-to-host path."""
    return pairwise(path[1:-1])


def connection_order(topology: Topology, commodities: Iterable[Commodity]) -> tuple[Commodity, ...]:
    """Sort commodities by the number of commodities at their source leaf, then at their destination leaf.

    Both descend; ties keep the given order. The paper leaves the order open; its authors' code sorts so.
    """
    given = tuple(commodities)
    ends = [(topology.host[c.src].leaf, topology.host[c.dst].leaf) for c in given]
    out: dict[str, int] = defaultdict(int)
    into: dict[str, int] = defaultdict(int)
    for source, destination in ends:
        out[source] += 1
        into[destination] += 1
    order = sorted(range(len(given)), key=lambda i: (-out[ends[i][0]], -into[ends[i][1]]))
    return tuple(given[i] for i in order)


def route(
    topology: Topology,
    forwarding: Forwarding,
    commodities: Sequence[Commodity],
    *,
    kept: Mapping[str, Path] | None = None,
    overlap: Overlap | None = None,
    spread: bool = False,
) -> tuple[Mapping[str, Path], Congestion]:
    """Algorithm 1: each commodity, in the given order, takes the path whose largest load is smallest.

    The candidates are the paths that `forwarding` allows, so no path uses a failed link or switch. Loads are
    relative to capacity. A tie goes to the lowest spine, as in the paper; with `spread`, first to the smaller
    sum of loads. Commodities with a path in `kept` keep it and are placed first. A commodity without a path
    is left out of the result. Traffic inside a leaf loads no fabric link.
    """
    loads = Loads(topology, overlap)
    chosen: dict[str, Path] = {}
    for c in commodities:
        if kept and c.name in kept:
            chosen[c.name] = kept[c.name]
            loads.add(kept[c.name], c)
    candidates: dict[tuple[str, str], tuple[Path, ...]] = {}
    for c in commodities:
        if c.name in chosen:
            continue
        if (c.src, c.dst) not in candidates:
            candidates[c.src, c.dst] = paths(topology, forwarding, c.src, c.dst)
        best: Path | None = None
        lowest = (float("inf"), float("inf"))
        for path in candidates[c.src, c.dst]:
            cost = loads.cost(path, c)
            less = cost[0] < lowest[0] - _SAME
            if spread and not less:
                less = cost[0] < lowest[0] + _SAME and cost[1] < lowest[1] - _SAME
            if less:
                best, lowest = path, cost
        if best is not None:
            chosen[c.name] = best
            loads.add(best, c)
    return chosen, loads.congestion()
