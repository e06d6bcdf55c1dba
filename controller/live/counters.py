# SPDX-License-Identifier: Apache-2.0
"""Queue totals and link loads, from the counters of switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.model.view import LinkLoad, QueueCounter, StrayCounter
from controller.southbound.codec import ECN_MARK_COUNTER, STRAY_COUNTER, CounterValue
from controller.southbound.host_guard import STRAY_REASONS
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class _PortTotal:
    time_ns: int
    bytes: int
    marks: int


class FabricCounters:
    """Totals of all queues, and link loads from the differences between two polls."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._last: dict[tuple[str, int], _PortTotal] = {}
        self._load: dict[tuple[str, int], tuple[float, int]] = {}
        self.queues: tuple[QueueCounter, ...] = ()
        # Packets that each switch has dropped or remarked at its ports to hosts, for hosts may not send them.
        self.strays: dict[str, tuple[StrayCounter, ...]] = {}

    def read(self, now_ns: int, values: Mapping[str, Sequence[CounterValue]]) -> None:
        """Add the counters of one poll. A switch without values in it keeps its last figures."""
        fresh: list[QueueCounter] = []
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
            fresh += [
                QueueCounter(switch, port, qid, *total) for (port, qid), total in sorted(totals.items())
            ]
            for port, peer in self._topology.ports[switch].items():
                self._take(now_ns, switch, port, peer.rate_bps, totals)
        kept = [q for q in self.queues if not values.get(q.switch)]
        self.queues = tuple(sorted(kept + fresh, key=lambda q: (q.switch, q.port, q.qid)))

    def links(self, up: Mapping[tuple[str, int], bool]) -> tuple[LinkLoad, ...]:
        """The load of every link, one for each switch port as its sending end; links to hosts included."""
        loads = []
        for switch, ports in self._topology.ports.items():
            for port, peer in ports.items():
                load, marks = self._load.get((switch, port), (0.0, 0))
                rate_bps = round(load * peer.rate_bps)
                loads.append(LinkLoad(switch, peer.node, rate_bps, load, marks, up[switch, port]))
        return tuple(loads)

    def _take(
        self, now_ns: int, switch: str, port: int, rate_bps: int, totals: Mapping[tuple[int, int], list[int]]
    ) -> None:
        mine = [total for (p, _), total in totals.items() if p == port]
        if not mine:
            return
        total = _PortTotal(now_ns, sum(t[1] for t in mine), sum(t[2] for t in mine))
        last = self._last.get((switch, port))
        self._last[switch, port] = total
        # A new pipeline resets all totals to zero.
        if last is None or now_ns <= last.time_ns or total.bytes < last.bytes:
            return
        busy = (total.bytes - last.bytes) * 8e9 / (rate_bps * (now_ns - last.time_ns))
        self._load[switch, port] = (min(1.0, busy), max(0, total.marks - last.marks))
