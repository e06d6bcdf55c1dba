# SPDX-License-Identifier: Apache-2.0
"""The load of every direction of every cable at one moment, made when somebody looks.

A large fabric has tens of thousands of directions. The control loop only copies figures; whoever reads the
sequence makes the values, in another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

from controller.model.view import LinkLoad
from topo.graph import Topology

End = tuple[str, int]


@dataclass(frozen=True)
class LinkLoads(Sequence[LinkLoad]):
    """One `LinkLoad` for each switch port as the sending end, then one for each host's NIC.

    `measured` maps (switch, port) to busy fraction and marks, `down` has the ports that are down, `uplinks`
    the rates of hosts in bit/s, `queues` packets at (switch, port). What is missing there is unknown.
    """

    topology: Topology
    measured: Mapping[End, tuple[float, int]] = field(default_factory=dict)
    down: frozenset[End] = frozenset()
    uplinks: Mapping[str, float] = field(default_factory=dict)
    queues: Mapping[End, int] = field(default_factory=dict)

    @cached_property
    def _all(self) -> tuple[LinkLoad, ...]:
        return tuple(self._made())

    def _made(self) -> Iterator[LinkLoad]:
        for switch, ports in self.topology.ports.items():
            for port, peer in ports.items():
                end = switch, port
                load, marks = self.measured.get(end, (None, None))
                rate_bps = None if load is None else round(load * peer.rate_bps)
                up = end not in self.down and (not peer.port or (peer.node, peer.port) not in self.down)
                yield LinkLoad(*end, peer.node, peer.port, rate_bps, load, marks, up, self.queues.get(end))
        for host in self.topology.hosts:
            rate = self.uplinks.get(host.name)
            yield LinkLoad(
                host.name,
                0,
                host.leaf,
                host.leaf_port,
                None if rate is None else round(rate),
                None if rate is None else min(1.0, rate / host.rate_bps),
                None,
                (host.leaf, host.leaf_port) not in self.down,
            )

    def __len__(self) -> int:
        return sum(map(len, self.topology.ports.values())) + len(self.topology.hosts)

    def __iter__(self) -> Iterator[LinkLoad]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> LinkLoad: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[LinkLoad, ...]: ...

    def __getitem__(self, index: int | slice) -> LinkLoad | tuple[LinkLoad, ...]:
        return self._all[index]
