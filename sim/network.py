# SPDX-License-Identifier: Apache-2.0
"""The directed links that flows share: cables of the fabric, NICs, and inside a host PCIe and NVLink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.task_graph import Channel
from topo.graph import Topology

NodePath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostInternals:
    """Rates inside a host in bit/s; 0 means that they never limit.

    `pcie_bps` is each way between the GPUs and the NIC of the host. `nvlink_bps` is between its GPUs, all
    together.
    """

    pcie_bps: int = 0
    nvlink_bps: int = 0


@dataclass(frozen=True)
class Network:
    """A topology as numbered directed links. Parallel cables between two switches are one link of their joint
    rate.
    """

    topology: Topology
    inside: HostInternals = field(default_factory=HostInternals)

    @cached_property
    def number(self) -> Mapping[tuple[str, str], int]:
        """(from, to) -> link number. A host's PCIe is ("h", "h.nic") and back, its NVLink ("h", "h")."""
        return {name: i for i, name in enumerate(self._rates)}

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The links by number."""
        return tuple(self._rates)

    @cached_property
    def capacity(self) -> NDArray[np.float64]:
        """bit/s by number, all alive."""
        return np.array(list(self._rates.values()), dtype=np.float64)

    @cached_property
    def marks(self) -> NDArray[np.int8]:
        """1 where a switch sends, and so may mark ECN, by number."""
        switches = self.topology.switch
        return np.array([a in switches for a, _ in self._rates], dtype=np.int8)

    @cached_property
    def fabric(self) -> NDArray[np.int64]:
        """The numbers of the links between switches."""
        switches = self.topology.switch
        return np.array([i for i, (a, b) in enumerate(self._rates) if a in switches and b in switches])

    def links(self, path: NodePath) -> tuple[int, ...]:
        """The links of a path from host to host; NVLink's, if any, for a flow that stays in its host."""
        src, dst = path[0], path[-1]
        if src == dst:
            return (self.number[src, src],) if self.inside.nvlink_bps else ()
        hops = list(pairwise(path))
        if self.inside.pcie_bps:
            hops = [(src, f"{src}.nic"), *hops, (f"{dst}.nic", dst)]
        return tuple(self.number[hop] for hop in hops)

    def spread(self, portions: Mapping[tuple[str, str], float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The links between two hosts whose packets are sprayed, and the portion of the packets on each.

        `portions` are those of the fabric's links, in the order of the hops; empty: there is no way.
        """
        if not portions:
            return (), ()
        names = dict(portions)
        if self.inside.pcie_bps:
            src, dst = next(iter(names))[0], next(reversed(names))[1]
            names = {(src, f"{src}.nic"): 1.0, **names, (f"{dst}.nic", dst): 1.0}
        return tuple(self.number[name] for name in names), tuple(names.values())

    def without(
        self, down_links: frozenset[tuple[str, str]], down_switches: frozenset[str]
    ) -> NDArray[np.float64]:
        """Capacities by number with what is down at 0. `down_links` are sorted name pairs."""
        capacity = self.capacity.copy()
        for (a, b), i in self.number.items():
            if tuple(sorted((a, b))) in down_links or a in down_switches or b in down_switches:
                capacity[i] = 0.0
        return capacity

    @cached_property
    def _rates(self) -> dict[tuple[str, str], int]:
        rates: dict[tuple[str, str], int] = {}
        for link in self.topology.links:
            for name in ((link.a, link.b), (link.b, link.a)):
                rates[name] = rates.get(name, 0) + link.rate_bps
        for host in self.topology.hosts:
            rates[host.name, host.leaf] = rates[host.leaf, host.name] = host.rate_bps
            if self.inside.pcie_bps:
                rates[host.name, f"{host.name}.nic"] = rates[f"{host.name}.nic", host.name] = (
                    self.inside.pcie_bps
                )
            if self.inside.nvlink_bps:
                rates[host.name, host.name] = self.inside.nvlink_bps
        return rates

    def edges(self, channel: Channel) -> tuple[int, ...]:
        """The links of a channel that no path avoids: its NICs and their PCIe, or NVLink within a host."""
        src, dst = channel.src, channel.dst
        if src == dst:
            return self.links((src,))
        host = self.topology.host
        ways = [(src, host[src].leaf), (host[dst].leaf, dst)]
        if self.inside.pcie_bps:
            ways = [(src, f"{src}.nic"), *ways, (f"{dst}.nic", dst)]
        return tuple(self.number[way] for way in ways)
