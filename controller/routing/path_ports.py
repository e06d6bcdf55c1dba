# SPDX-License-Identifier: Apache-2.0
"""Source ports for many host-to-host paths at once, given by the names of their nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.routing.bucket_tables import Stages
from controller.routing.fabric import Fabric, Ints
from controller.routing.from_topology import choices_of, demand_of
from controller.routing.paths import Path
from controller.routing.ports import destinations, leads, ports_for, repeats, sources, stages
from topo.graph import Topology


class PathPorts:
    """The hash of a fabric's switches. `fabric` is the topology as arrays, without what is down.

    Raises:
        ValueError: the hash is not known, or parallel cables make one path by names several paths.
    """

    def __init__(self, topology: Topology, fabric: Fabric, *, plain: bool = False) -> None:
        if not usable(topology):
            raise ValueError("paths by names do not tell which ports lead along them")
        self._topology = topology
        self._fabric = fabric
        self._plain = plain

    def lowest(self, paths: Sequence[Path]) -> Ints:
        """The lowest legal port that leads along each path, (paths,); -1 where none does.

        The second of two paths that are alike gets the second lowest port, and so on.
        """
        src, dst, wanted, known = self._stages(paths)
        alike: dict[Path, int] = {}
        path = np.array([alike.setdefault(p, len(alike)) for p in paths], dtype=np.int32)
        skip = repeats(path) if len(alike) < len(paths) else None
        ports = ports_for(src, dst, wanted, skip=skip, spec=self._topology.hash, plain=self._plain)
        return np.where(known, ports, -1).astype(np.int32)

    def leads(self, paths: Sequence[Path], ports: Sequence[int]) -> NDArray[np.bool_]:
        """Whether each port, 0xC000-0xFFFF, leads along its path, (paths,)."""
        src, dst, wanted, known = self._stages(paths)
        return known & leads(src, dst, np.array(ports, dtype=np.int32), wanted, spec=self._topology.hash)

    def _stages(
        self, paths: Sequence[Path]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], Stages, NDArray[np.bool_]]:
        host = self._topology.host
        ends = [(host[p[0]], host[p[-1]]) for p in paths]
        demand = demand_of(self._fabric, ends)
        choice = choices_of(self._fabric, demand, [p[1:-1] for p in paths])
        spec = self._topology.hash
        src, dst = sources((a.ip for a, _ in ends), spec), destinations((b.ip for _, b in ends), spec)
        return src, dst, stages(self._topology, self._fabric, demand, choice), choice >= 0


def usable(topology: Topology) -> bool:
    """Whether a path by names tells the decision of every switch on it."""
    return topology.hash.known and not topology.bundles
