# SPDX-License-Identifier: Apache-2.0
"""Turn a topology and its failures into the arrays that the routing algorithms take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from controller.routing.fabric import Cable, Fabric, Floats, Ints, LeafDemand, TwoTier, two_tier
from controller.routing.forwarding import pair
from controller.routing.generic import GenericFabric
from controller.routing.three_tier import ThreeTier, three_tier
from controller.routing.topology_cache import cached_by_topology
from topo.graph import Host, Topology


@dataclass(frozen=True, slots=True)
class Failures:
    """The cables and switches that are down, by name (`Topology.cables`)."""

    links: frozenset[Cable] = frozenset()
    switches: frozenset[str] = frozenset()

    def cuts_off(self, host: Host) -> bool:
        """Whether the cable or the leaf of a host is down."""
        return host.leaf in self.switches or pair(host.name, host.leaf) in self.links


def parse_failures(topology: Topology, words: Sequence[str]) -> Failures:
    """Failures by name: a switch ("spine3"), the cables between two ("leaf1-spine3", either end first), or
    one of several such cables ("leaf1:4-spine3:1").

    Raises:
        ValueError: a word that names neither.
    """
    cables = topology.cables.keys() | topology.bundles.keys()
    links: set[Cable] = set()
    switches: set[str] = set()
    for word in words:
        if word in topology.switch:
            switches.add(word)
            continue
        splits = (pair(word[:i], word[i + 1 :]) for i, c in enumerate(word) if c == "-")
        cable = next((ends for ends in splits if ends in cables), None)
        if cable is None:
            raise ValueError(f"{word!r} is no switch, and no cable such as {'-'.join(min(cables))}")
        links.add(cable)
    return Failures(frozenset(links), frozenset(switches))


@cached_by_topology
def fabric_of(topology: Topology, failures: Failures = Failures(), shortest: int | None = None) -> Fabric:
    """The topology as arrays: `TwoTier` or `ThreeTier` where it is such a Clos, else `GenericFabric`.

    It is no such Clos while some of the cables between two switches are down, because every switch spreads
    its flows over all cables that it has left.

    With `shortest` = k the candidate paths are the k shortest ones, not those that the switches forward by.
    """
    down = failures.links, failures.switches
    if shortest is not None:
        return GenericFabric(topology, *down, shortest)
    if topology.split_bundles(failures.links):
        return GenericFabric(topology, *down)
    return two_tier(topology, *down) or three_tier(topology, *down) or GenericFabric(topology, *down)


def demand_of(
    fabric: Fabric, flows: Collection[tuple[Host, Host]], weight: Floats | None = None
) -> LeafDemand:
    """Turn flows between hosts into flows between leaves. Equal weights become `weight` None."""
    number = {name: i for i, name in enumerate(fabric.leaves)}
    src = np.fromiter((number[a.leaf] for a, _ in flows), dtype=np.int32, count=len(flows))
    dst = np.fromiter((number[b.leaf] for _, b in flows), dtype=np.int32, count=len(flows))
    if weight is not None and (not len(weight) or weight.min() == weight.max()):
        weight = None
    return LeafDemand(src, dst, weight)


def choices_of(fabric: Fabric, demand: LeafDemand, paths: Sequence[tuple[str, ...]]) -> Ints:
    """The choice for each path, given as switch names from leaf to leaf; -1 for a path that does not exist.

    Where several cables lead to a spine, the choice is the first. Inside a leaf it is 0.
    """
    choice = np.full(len(paths), -1, dtype=np.int32)
    if isinstance(fabric, TwoTier):
        column = {name: i for i, name in reversed(list(enumerate(fabric.spines)))}
    if isinstance(fabric, ThreeTier):
        place = {name: j for pod in fabric.spines for j, name in enumerate(pod)}
        core = {name: c for group in fabric.cores for c, name in enumerate(group)}
    for f, (u, v, path) in enumerate(zip(demand.src.tolist(), demand.dst.tolist(), paths, strict=True)):
        if u == v:
            choice[f] = 0
        elif isinstance(fabric, TwoTier):
            choice[f] = column.get(path[1], -1)
        elif isinstance(fabric, ThreeTier):
            group = fabric.over.shape[2]
            choice[f] = place[path[1]] * group + (core[path[2]] if len(path) == 5 else 0)
        elif isinstance(fabric, GenericFabric):
            ways = fabric.paths(u, v)
            choice[f] = ways.index(path) if path in ways else -1
    return choice


def nics_of(topology: Topology, flows: Collection[tuple[Host, Host]]) -> tuple[Ints, Ints, Floats]:
    """Source NIC and destination NIC of each flow as indices, and the rate of every NIC in bit/s."""
    number = {h.name: i for i, h in enumerate(topology.hosts)}
    src = np.fromiter((number[a.name] for a, _ in flows), dtype=np.int32, count=len(flows))
    dst = np.fromiter((number[b.name] for _, b in flows), dtype=np.int32, count=len(flows))
    return src, dst, np.array([h.rate_bps for h in topology.hosts], dtype=np.float64)
