# SPDX-License-Identifier: Apache-2.0
"""Flows and their paths as columns: what a routing gets and answers, without a value per flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand
from controller.routing.greedy import Commodity
from controller.routing.numbering import Numbering, numbering
from controller.routing.paths import Path
from topo.graph import Topology


@dataclass(frozen=True, eq=False)
class Commodities(Sequence[Commodity]):
    """Flows by columns of shape (flows,): `src` and `dst` are numbers of hosts, `weight` is in bit/s, and
    `owner` is an index into `owners`. A `Commodity` is made when somebody asks for one."""

    numbers: Numbering
    flows: Sequence[str]
    src: Ints
    dst: Ints
    weight: Floats
    owner: Ints
    owners: tuple[str, ...]

    @classmethod
    def of(cls, topology: Topology, given: Sequence[Commodity]) -> Commodities:
        """The columns of these flows."""
        if isinstance(given, Commodities):
            return given
        numbers, owners = numbering(topology), dict[str, int]()
        owner = [owners.setdefault(c.owner, len(owners)) for c in given]
        return cls(
            numbers,
            [c.name for c in given],
            np.array([numbers.host[c.src] for c in given], dtype=np.int32),
            np.array([numbers.host[c.dst] for c in given], dtype=np.int32),
            np.array([c.weight for c in given], dtype=np.float64),
            np.array(owner, dtype=np.int32),
            tuple(owners),
        )

    def __len__(self) -> int:
        return len(self.src)

    @overload
    def __getitem__(self, index: int) -> Commodity: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Commodity]: ...
    def __getitem__(self, index: int | slice) -> Commodity | Sequence[Commodity]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        host = self.numbers.hosts
        return Commodity(
            self.flows[index],
            host[self.src[index]],
            host[self.dst[index]],
            float(self.weight[index]),
            self.owners[self.owner[index]],
        )

    def demand(self, fabric: Fabric) -> LeafDemand:
        """The flows as the array algorithms take them; equal weights become None."""
        leaf = self.numbers.leaves_of(fabric)[self.numbers.leaf]
        equal = not len(self) or self.weight.min() == self.weight.max()
        return LeafDemand(leaf[self.src], leaf[self.dst], None if equal else self.weight)

    @cached_property
    def row(self) -> Mapping[str, int]:
        """The index of each flow by name."""
        return {name: i for i, name in enumerate(self.flows)}


@dataclass(frozen=True, eq=False)
class FlowPaths(Mapping[str, Path]):
    """The paths of some `flows`, host to host, by name. `hops` has a row for each of the flows, in their
    order; -1: the flow has no path. `order` are the indices of the flows, in the order of the mapping."""

    flows: Commodities
    hops: Ints
    order: NDArray[np.intp]

    @classmethod
    def of(cls, flows: Commodities, given: Mapping[str, Path]) -> FlowPaths:
        """The columns of paths by name. A path that does not join the hosts of its flow is left out."""
        if isinstance(given, FlowPaths) and given.flows is flows:
            return given
        paths: list[tuple[str, ...]] = []
        switches, hosts = flows.numbers.switches, flows.numbers.hosts
        leaf = flows.numbers.leaf
        for i, name in enumerate(flows.flows):
            path = given.get(name, ())
            src, dst = flows.src[i], flows.dst[i]
            joins = (
                len(path) > 2
                and (path[0], path[-1]) == (hosts[src], hosts[dst])
                and (path[1], path[-2]) == (switches[leaf[src]], switches[leaf[dst]])
            )
            paths.append(path[1:-1] if joins else ())
        return cls(flows, flows.numbers.hops_of_paths(paths), np.arange(len(paths)))

    def __getitem__(self, name: str) -> Path:
        return self.path(self.flows.row[name])

    def path(self, index: int) -> Path:
        """The path of the flow of this index. Raises KeyError if it has none."""
        row = self.hops[index]
        if row[0] < 0:
            raise KeyError(self.flows.flows[index])
        flows, host = self.flows, self.flows.numbers.hosts
        return host[flows.src[index]], *flows.numbers.names(row.tolist()), host[flows.dst[index]]

    @cached_property
    def _there(self) -> NDArray[np.intp]:
        there: NDArray[np.intp] = self.order[self.hops[self.order, 0] >= 0]
        return there

    def __iter__(self) -> Iterator[str]:
        return (self.flows.flows[i] for i in self._there.tolist())

    def __len__(self) -> int:
        return len(self._there)


def same_hops(a: Ints, b: Ints) -> NDArray[np.bool_]:
    """Whether the rows of hops are alike, (flows,), whatever their padding."""
    width = min(a.shape[1], b.shape[1])
    same: NDArray[np.bool_] = (a[:, :width] == b[:, :width]).all(axis=1)
    for longer in (a, b):
        if longer.shape[1] > width:
            same &= (longer[:, width:] < 0).all(axis=1)
    return same
