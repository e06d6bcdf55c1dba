# SPDX-License-Identifier: Apache-2.0
"""Source ports that spread flows over the cables between two switches, where several cables join them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from controller.routing.paths import Forwarding, Path, ports_along
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.graph import Topology

_SAME = 1e-9
"""Loads that differ by less than this part count as equal."""


class CablePorts:
    """The load of every cable, and source ports that lead along the least loaded cables of a path.

    A path names switches. The hash decides at each of them also between the cables to the next one.
    """

    def __init__(self, topology: Topology, forwarding: Forwarding) -> None:
        self._topology, self._forwarding = topology, forwarding
        # Bit/s over the cable's rate, by switch and egress port.
        self._load: dict[tuple[str, int], float] = defaultdict(float)

    def add(self, path: Path, port: int, weight: float) -> None:
        """Count a flow of `weight` bit/s with this source port on its cables."""
        found = ports_along(self._topology, self._forwarding, path)
        index = port - ROCE_SOURCE_PORTS.start
        if found is None or not 0 <= index < len(found[0]):
            return
        for switch, egress in found[1]:
            out = int(egress[index])
            self._load[switch, out] += weight / self._topology.ports[switch][out].rate_bps

    def port(self, path: Path, taken: Collection[int], weight: float) -> int | None:
        """The source port that leads along `path`, is not in `taken` and makes the largest load of its cables
        smallest, then their sum, and counts the flow; of equal ones the lowest. None if there is none."""
        found = ports_along(self._topology, self._forwarding, path)
        if found is None:
            return None
        good, hops = found
        used = np.fromiter(taken, np.int64, len(taken)) - ROCE_SOURCE_PORTS.start
        good[used[(used >= 0) & (used < len(good))]] = False
        if not good.any():
            return None
        worst, total = np.zeros(len(good)), np.zeros(len(good))
        for switch, egress in hops:
            after = np.zeros(int(egress.max()) + 1)
            for out in np.unique(egress[good]).tolist():
                after[out] = self._load[switch, out] + weight / self._topology.ports[switch][out].rate_bps
            np.maximum(worst, after[egress], out=worst)
            total += after[egress]
        best = good & (worst <= worst[good].min() * (1 + _SAME))
        port = ROCE_SOURCE_PORTS.start + int(np.argmin(np.where(best, total, np.inf)))
        self.add(path, port, weight)
        return port
