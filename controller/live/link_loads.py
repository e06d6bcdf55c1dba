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

import numpy as np
from numpy.typing import NDArray

from controller.model.view import LinkColumns, LinkLoad
from topo.graph import Host, Peer, Topology

End = tuple[str, int]


@dataclass(frozen=True)
class LinkLoads(Sequence[LinkLoad]):
    """One `LinkLoad` for each switch port as the sending end, then one for each host's NIC.

    `measured` maps (switch, port) to busy fraction and marks, `down` has the ports that are down, `uplinks`
    the rates of hosts in bit/s, `queues` packets at (switch, port). What is missing there is unknown.
    `figures` are those of `measured` as an array (`FabricCounters.figures`), where the caller has it.
    """

    topology: Topology
    measured: Mapping[End, tuple[float, int]] = field(default_factory=dict)
    down: frozenset[End] = frozenset()
    uplinks: Mapping[str, float] = field(default_factory=dict)
    queues: Mapping[End, int] = field(default_factory=dict)
    figures: NDArray[np.float64] | None = field(default=None, compare=False)

    def columns(self) -> LinkColumns:
        """The same as columns; see `ColumnarLinks`."""
        topology, number = self.topology, self.topology.directions
        count = len(number)
        figures, queues = np.full((2, count), np.nan), np.full(count, -1, np.int32)
        if self.figures is not None:
            figures[:, : self.figures.shape[1]] = self.figures
        elif self.measured:
            at = np.fromiter(map(number.__getitem__, self.measured), np.intp, len(self.measured))
            figures[:, at] = np.array(list(self.measured.values())).T
        for host in topology.hosts if self.uplinks else ():
            rate = self.uplinks.get(host.name)
            if rate is not None:
                figures[0, number[host.name, 0]] = min(1.0, rate / host.rate_bps)
        for end, packets in self.queues.items():
            queues[number[end]] = packets
        up = np.ones(count, np.bool_)
        for switch, port in self.down:
            peer = topology.ports.get(switch, {}).get(port)
            if peer is not None:
                up[[number[switch, port], number[peer.node, peer.port]]] = False
        return LinkColumns(figures[0], figures[1], queues, up)

    @cached_property
    def _all(self) -> tuple[LinkLoad, ...]:
        return tuple(self._made())

    def at(self, end: End) -> LinkLoad:
        """The direction from one sending end; see `ColumnarLinks`."""
        if end[0] in self.topology.host:
            return self._uplink(self.topology.host[end[0]])
        return self._port(end, self.topology.ports[end[0]][end[1]])

    def _made(self) -> Iterator[LinkLoad]:
        for switch, ports in self.topology.ports.items():
            for port, peer in ports.items():
                yield self._port((switch, port), peer)
        yield from map(self._uplink, self.topology.hosts)

    def _port(self, end: End, peer: Peer) -> LinkLoad:
        load, marks = self.measured.get(end, (None, None))
        rate_bps = None if load is None else round(load * peer.rate_bps)
        up = end not in self.down and (not peer.port or (peer.node, peer.port) not in self.down)
        return LinkLoad(*end, peer.node, peer.port, rate_bps, load, marks, up, self.queues.get(end))

    def _uplink(self, host: Host) -> LinkLoad:
        rate = self.uplinks.get(host.name)
        return LinkLoad(
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
