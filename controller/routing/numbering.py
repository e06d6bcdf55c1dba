# SPDX-License-Identifier: Apache-2.0
"""Numbers for the hosts, switches and links of a topology, so that flows and their paths can be arrays.

The hops of a path are the numbers of its switches from leaf to leaf, shape (flows, hops); -1 pads a row, and
fills that of a flow without a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.routing.affine_hash import bases
from controller.routing.cable_fabric import CableFabric
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, TwoTier, capacities
from controller.routing.from_topology import choices_of
from controller.routing.paths import Path
from controller.routing.ports import destinations, sources
from controller.routing.topology_cache import cached_by_topology
from topo.addresses import is_ipv6
from topo.graph import Topology

DirectedLink = tuple[str, str]
MOST_IN_TABLE = 2_048
"""With more switches, links are searched for. Chosen: a table for so many takes 16 MiB."""


@dataclass(frozen=True, eq=False)
class LinkNumbers:
    """Directed links by number. `rate` (links,) is in bit/s. A link from switch a to switch b has the key
    a * switches + b; `keys` (links between switches,) are sorted, and `at` has the number of the link of each
    key. `table` (switches + 1, switches + 1) has the number of the link from each switch to each, with -1 in
    the last row and column, those of switch -1; None where it would be large.
    """

    names: tuple[DirectedLink, ...]
    rate: Floats
    switches: int
    keys: NDArray[np.int64]
    at: Ints
    table: Ints | None

    def of(self, a: Ints, b: Ints) -> Ints:
        """The numbers of the links from switches `a` to switches `b`, in their shape; -1: there is none."""
        if self.table is not None:
            found: Ints = self.table[a, b]
            return found
        key = a.astype(np.int64) * self.switches + b
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        known = (a >= 0) & (b >= 0) & (self.keys[place] == key)
        return np.where(known, self.at[place], -1).astype(np.int32)

    @cached_property
    def number(self) -> Mapping[DirectedLink, int]:
        """The number of each link."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def rank(self) -> Ints:
        """The place of each link in the order of the names, (links,)."""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        found = np.empty(len(order), dtype=np.int32)
        found[order] = np.arange(len(order), dtype=np.int32)
        return found

    def extended(self, rates: Mapping[DirectedLink, int]) -> LinkNumbers:
        """With further links, which `of` does not find."""
        new = {name: rate for name, rate in rates.items() if name not in self.number}
        rate = np.append(self.rate, np.array(list(new.values()), dtype=np.float64))
        return replace(self, names=(*self.names, *new), rate=rate)


@dataclass(frozen=True, eq=False)
class Numbering:
    """The switches of a topology, numbered from 0 in its order, and its hosts, likewise.

    `leaf` (hosts,) is the switch of each host. `source` and `destination` (hosts,) stand for its address in
    the hash of a flow (`ports.sources`).
    """

    topology: Topology
    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    switch: Mapping[str, int]
    host: Mapping[str, int]
    leaf: Ints
    source: NDArray[np.uint32]
    destination: NDArray[np.uint32]

    @cached_property
    def links(self) -> LinkNumbers:
        """All cables each way, also those of hosts. Parallel cables are one link."""
        rates = dict(capacities(self.topology))
        size, number = len(self.switches), self.switch
        key = np.array([number[a] * size + number[b] for a, b in rates], dtype=np.int64)
        at = np.argsort(key).astype(np.int32)
        for h in self.topology.hosts:
            rates[h.name, h.leaf] = rates[h.leaf, h.name] = h.rate_bps
        rate = np.array(list(rates.values()), dtype=np.float64)
        table = None
        if size <= MOST_IN_TABLE:
            table = np.full((size + 1, size + 1), -1, dtype=np.int32)
            table[np.divmod(key[at], max(size, 1))] = at
        return LinkNumbers(tuple(rates), rate, size, key[at], at, table)

    @cached_property
    def access_links(self) -> Ints:
        """The links of the cable of each host, from it and to it, (hosts, 2)."""
        number = self.links.number
        cables = [((h.name, h.leaf), (h.leaf, h.name)) for h in self.topology.hosts]
        found = [(number[up], number[down]) for up, down in cables]
        return np.array(found, dtype=np.int32).reshape(-1, 2)

    @cached_property
    def host_bps(self) -> Floats:
        """The bit/s of the cable of each host, (hosts,)."""
        return np.array([h.rate_bps for h in self.topology.hosts], dtype=np.float64)

    @cached_property
    def ipv6(self) -> NDArray[np.bool_]:
        """Whether the address of each host is of IPv6, (hosts,)."""
        return np.array([is_ipv6(h.ip) for h in self.topology.hosts], dtype=np.bool_)

    @cached_property
    def base_parts(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """What each host contributes as a source and as a destination to the hash of a flow, (hosts,) each:
        XORed, they are the flow's `bases`."""
        spec, none = self.topology.hash, np.zeros(1, dtype=np.uint32)
        of_destination = bases(spec, none, self.destination) ^ bases(spec, none, none)
        return bases(spec, self.source, none), of_destination

    @cached_property
    def host_rank(self) -> Ints:
        """The place of each host in the order of the names, (hosts,)."""
        order = sorted(range(len(self.hosts)), key=self.hosts.__getitem__)
        found = np.empty(len(order), dtype=np.int32)
        found[order] = np.arange(len(order), dtype=np.int32)
        return found

    def leaves_of(self, fabric: Fabric) -> Ints:
        """The index in `fabric.leaves` of each switch, (switches,); -1 for one that is no leaf."""
        found = np.full(len(self.switches), -1, dtype=np.int32)
        found[[self.switch[name] for name in fabric.leaves]] = np.arange(len(fabric.leaves), dtype=np.int32)
        return found

    def hops_of_choices(self, fabric: Fabric, demand: LeafDemand, choice: Ints) -> Ints:
        """The hops of flows whose choices, (flows,), are the fabric's numbers of paths; -1: no path."""
        if isinstance(fabric, TwoTier | CableFabric):
            leaves = np.array([self.switch[name] for name in fabric.leaves], dtype=np.int32)
            spines = np.array([self.switch[name] for name in fabric.spines] or [-1], dtype=np.int32)
            spine = fabric.spines_of(demand, choice) if isinstance(fabric, CableFabric) else choice
            found = np.stack((leaves[demand.src], spines[spine], leaves[demand.dst]), axis=1)
            found[demand.src == demand.dst, 1:] = -1
            found[choice < 0] = -1
            return found
        rows = zip(demand.src.tolist(), demand.dst.tolist(), choice.tolist(), strict=True)
        return self.hops_of_paths([fabric.nodes(u, v, c) if c >= 0 else () for u, v, c in rows])

    def hops_of_paths(self, paths: Sequence[Sequence[str]]) -> Ints:
        """The hops of paths given as switch names; a path over a switch that does not exist is none."""
        found = np.full((len(paths), max(map(len, paths), default=1) or 1), -1, dtype=np.int32)
        for row, path in zip(found, paths, strict=True):
            if all(name in self.switch for name in path):
                row[: len(path)] = [self.switch[name] for name in path]
        return found

    def choices_of_hops(self, fabric: Fabric, demand: LeafDemand, hops: Ints) -> Ints:
        """The fabric's numbers of paths given as hops, (flows,), as `choices_of`; -1 without hops.

        The paths must begin and end at the leaves of their flows.
        """
        known = hops[:, 0] >= 0
        if isinstance(fabric, TwoTier):
            column = np.full(len(self.switches) + 1, -1, dtype=np.int32)
            for i, name in reversed(list(enumerate(fabric.spines))):
                column[self.switch[name]] = i
            through = hops[:, 1] if hops.shape[1] > 1 else np.full(len(hops), -1, dtype=np.int32)
            choice = np.where(demand.src == demand.dst, 0, column[through])
            return np.where(known, choice, -1).astype(np.int32)
        found = np.full(len(hops), -1, dtype=np.int32)
        index = np.flatnonzero(known)
        if len(index):
            found[index] = choices_of(fabric, demand.take(index), [self.names(row) for row in hops[index]])
        return found

    def names(self, row: Iterable[int]) -> Path:
        """The names of the switches of one row of hops."""
        return tuple(self.switches[i] for i in row if i >= 0)


@cached_by_topology
def numbering(topology: Topology) -> Numbering:
    """The numbers of a topology, without regard to what is down."""
    switch = {s.name: i for i, s in enumerate(topology.switches)}
    host = {h.name: i for i, h in enumerate(topology.hosts)}
    leaf = np.array([switch[h.leaf] for h in topology.hosts], dtype=np.int32)
    source = sources((h.ip for h in topology.hosts), topology.hash)
    destination = destinations((h.ip for h in topology.hosts), topology.hash)
    return Numbering(topology, tuple(switch), tuple(host), switch, host, leaf, source, destination)
