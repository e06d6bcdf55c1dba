# SPDX-License-Identifier: Apache-2.0
"""Queue totals and link loads, from the counters of switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.model.view import QueueCounter, StrayCounter
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
        self.read_ns: int | None = None
        # Packets that each switch has dropped or remarked at its ports to hosts, for hosts may not send them.
        self.strays: dict[str, tuple[StrayCounter, ...]] = {}

    def read(self, now_ns: int, values: Mapping[str, Sequence[CounterValue]]) -> None:
        """Add the counters of one poll. A switch without values keeps its last totals, and has no loads."""
        self.read_ns = now_ns
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
            by_port: dict[int, _PortTotal] = {}
            for (port, _), (_, total_bytes, marks) in totals.items():
                before = by_port.get(port, _PortTotal(now_ns, 0, 0))
                by_port[port] = _PortTotal(now_ns, before.bytes + total_bytes, before.marks + marks)
            for port, peer in self._topology.ports[switch].items():
                self._take(now_ns, switch, port, peer.rate_bps, by_port.get(port))
        for switch in self._topology.ports.keys() - values.keys():
            for port in self._topology.ports[switch]:
                self._load.pop((switch, port), None)
        kept = [q for q in self.queues if not values.get(q.switch)]
        self.queues = tuple(sorted(kept + fresh, key=lambda q: (q.switch, q.port, q.qid)))

    @property
    def loads(self) -> Mapping[tuple[str, int], tuple[float, int]]:
        """Busy fraction, 0 to 1, and ECN marks over the last poll interval by (switch, port). A port without
        an entry was not measured in it."""
        return dict(self._load)

    def _take(self, now_ns: int, switch: str, port: int, rate_bps: int, total: _PortTotal | None) -> None:
        last = self._last.get((switch, port))
        if last is not None and now_ns <= last.time_ns:
            return
        self._load.pop((switch, port), None)
        if total is None:
            return
        self._last[switch, port] = total
        # A new pipeline resets all totals to zero.
        if last is None or total.bytes < last.bytes:
            return
        busy = (total.bytes - last.bytes) * 8e9 / (rate_bps * (now_ns - last.time_ns))
        self._load[switch, port] = (min(1.0, busy), max(0, total.marks - last.marks))
