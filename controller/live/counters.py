# SPDX-License-Identifier: Apache-2.0
"""Queue totals and link loads, from the counters of switches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from controller.model.view import QueueCounter, StrayCounter
from controller.southbound.codec import ECN_MARK_COUNTER, STRAY_COUNTER, CounterValue
from controller.southbound.host_guard import STRAY_REASONS
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class _PortTotal:
    time_ns: int
    bytes: int
    marks: int


class QueueTotals(Sequence[QueueCounter]):
    """The totals of all queues at one moment, by switch, port and qid, made when somebody looks."""

    def __init__(self, cells: Mapping[str, Mapping[tuple[int, int], Sequence[int]]]) -> None:
        """`cells`: packets, bytes and marks by switch and (port, qid)."""
        self._cells = cells

    @cached_property
    def _all(self) -> tuple[QueueCounter, ...]:
        return tuple(
            QueueCounter(switch, port, qid, packets, octets, marks)
            for switch, cells in sorted(self._cells.items())
            for (port, qid), (packets, octets, marks) in sorted(cells.items())
        )

    def __len__(self) -> int:
        return sum(map(len, self._cells.values()))

    def __iter__(self) -> Iterator[QueueCounter]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> QueueCounter: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[QueueCounter, ...]: ...

    def __getitem__(self, index: int | slice) -> QueueCounter | tuple[QueueCounter, ...]:
        return self._all[index]


class FabricCounters:
    """Totals of all queues, and link loads from the differences between two polls."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._last: dict[tuple[str, int], _PortTotal] = {}
        self._load: dict[tuple[str, int], tuple[float, int]] = {}
        self._cells: Mapping[str, Mapping[tuple[int, int], Sequence[int]]] = {}
        # The ports of the switches come first among the directions.
        self._figures = np.full((2, sum(map(len, topology.ports.values()))), np.nan)
        self.queues: Sequence[QueueCounter] = ()
        self.read_ns: int | None = None
        # Packets that each switch has dropped or remarked at its ports to hosts, for hosts may not send them.
        self.strays: dict[str, tuple[StrayCounter, ...]] = {}

    def read(self, now_ns: int, values: Mapping[str, Sequence[CounterValue]]) -> None:
        """Add the counters of one poll. A switch without values keeps its last totals, and has no loads."""
        for _ in self.steps(now_ns, values):
            pass

    def steps(self, now_ns: int, values: Mapping[str, Sequence[CounterValue]]) -> Iterator[None]:
        """Do what `read` does, switch by switch, so that the caller can do other work in between."""
        all_cells = dict(self._cells)
        for switch, cells in values.items():
            totals: dict[tuple[int, int], list[int]] = {}
            if cells:
                self.strays[switch] = tuple(
                    StrayCounter(c.port, STRAY_REASONS[c.qid], c.packets)
                    for c in cells
                    if c.counter == STRAY_COUNTER and c.packets and c.qid < len(STRAY_REASONS)
                )
            for cell in cells:
                if cell.counter == STRAY_COUNTER:
                    continue
                total = totals.setdefault((cell.port, cell.qid), [0, 0, 0])
                if cell.counter == ECN_MARK_COUNTER:
                    total[2] += cell.packets
                else:
                    total[0] += cell.packets
                    total[1] += cell.bytes
            if cells:
                all_cells[switch] = totals
            by_port: dict[int, _PortTotal] = {}
            for (port, _), (_, total_bytes, marks) in totals.items():
                before = by_port.get(port, _PortTotal(now_ns, 0, 0))
                by_port[port] = _PortTotal(now_ns, before.bytes + total_bytes, before.marks + marks)
            for port, peer in self._topology.ports[switch].items():
                self._take(now_ns, switch, port, peer.rate_bps, by_port.get(port))
            yield
        for switch in self._topology.ports.keys() - values.keys():
            for port in self._topology.ports[switch]:
                self._forget(switch, port)
        self.read_ns = now_ns
        self._cells, self.queues = all_cells, QueueTotals(all_cells)

    @property
    def figures(self) -> NDArray[np.float64]:
        """Busy fraction and ECN marks over the last poll interval, shape (2, ports of switches), by the order
        of `Topology.ports`. NaN: not measured."""
        return self._figures.copy()

    @property
    def loads(self) -> Mapping[tuple[str, int], tuple[float, int]]:
        """Busy fraction, 0 to 1, and ECN marks over the last poll interval by (switch, port). A port without
        an entry was not measured in it."""
        return dict(self._load)

    def _take(self, now_ns: int, switch: str, port: int, rate_bps: int, total: _PortTotal | None) -> None:
        last = self._last.get((switch, port))
        if last is not None and now_ns <= last.time_ns:
            return
        self._forget(switch, port)
        if total is None:
            return
        self._last[switch, port] = total
        # A new pipeline resets all totals to zero.
        if last is None or total.bytes < last.bytes:
            return
        busy = (total.bytes - last.bytes) * 8e9 / (rate_bps * (now_ns - last.time_ns))
        found = self._load[switch, port] = (min(1.0, busy), max(0, total.marks - last.marks))
        self._figures[:, self._topology.directions[switch, port]] = found

    def _forget(self, switch: str, port: int) -> None:
        if self._load.pop((switch, port), None) is not None:
            self._figures[:, self._topology.directions[switch, port]] = np.nan
