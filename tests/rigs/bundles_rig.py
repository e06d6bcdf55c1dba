# SPDX-License-Identifier: Apache-2.0
"""Fabrics in which several cables join every two switches."""

from __future__ import annotations

from dataclasses import replace

from topo.graph import Topology


def bundled(topology: Topology, width: int) -> Topology:
    """The fabric with `width` cables instead of each one; the further ones are on the next free ports."""
    links = list(topology.links)
    last = {name: max(ports) for name, ports in topology.ports.items()}
    for _ in range(width - 1):
        for k in topology.links:
            last[k.a] += 1
            last[k.b] += 1
            links.append(replace(k, a_port=last[k.a], b_port=last[k.b]))
    return replace(topology, links=tuple(links))
