# SPDX-License-Identifier: Apache-2.0
"""The paths that plain ECMP gives to the flows of a plan, by the source ports that they draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controller.planner.demand import Demands
from controller.routing.cable_links import Way
from controller.routing.ecmp import draw_port
from controller.routing.fabric import LeafDemand, TwoTier
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.path_ports import usable
from controller.routing.paths import Path, path_of
from controller.routing.ports import choices_of_ports


def drawn_ways(demands: Demands, flows: Sequence[str], seed: int) -> Mapping[str, Way]:
    """The links of each of these elephants, cables of bundles too, as `drawn_paths` has the paths."""
    way = demands.cable_links.way
    found = drawn_paths(demands, flows, seed)
    return {name: way(path, draw_port(name, seed)) for name, path in found.items()}


def drawn_paths(demands: Demands, flows: Sequence[str], seed: int) -> Mapping[str, Path]:
    """The path of each of these elephants, host to host, with the port of `draw_port` for this seed.

    Empty where the hash is unknown or no path is left.
    """
    x = demands.inputs
    failures = Failures(x.down_links, x.down_switches)
    ends = [(demands.elephant[name].src, demands.elephant[name].dst) for name in flows]
    ports = [draw_port(name, seed) for name in flows]
    fabric = fabric_of(x.topology, failures)
    # A host that is cut off is rare, and `path_of` knows all of its cases.
    cut = any(failures.cuts_off(h) for h in x.topology.hosts) if failures != Failures() else False
    if not isinstance(fabric, TwoTier) or not usable(x.topology) or cut:
        found = [
            path_of(x.topology, demands.forwarding, src, dst, port)
            for (src, dst), port in zip(ends, ports, strict=True)
        ]
        return dict(zip(flows, found, strict=True))
    numbers = demands.columns.numbers
    src = np.array([numbers.host[a] for a, _ in ends], dtype=np.int32)
    dst = np.array([numbers.host[b] for _, b in ends], dtype=np.int32)
    leaf = numbers.leaves_of(fabric)[numbers.leaf]
    demand = LeafDemand(leaf[src], leaf[dst])
    addresses = numbers.source[src], numbers.destination[dst]
    choice = choices_of_ports(x.topology, fabric, demand, *addresses, np.array(ports, dtype=np.int32))
    hops = numbers.hops_of_choices(fabric, demand, choice)
    switches, nodes = numbers.switches, dict[tuple[int, ...], Path]()
    result = {}
    for name, (a, b), row in zip(flows, ends, hops.tolist(), strict=True):
        way = nodes.get(key := tuple(row))
        if way is None:
            way = nodes[key] = tuple(switches[i] for i in row if i >= 0)
        result[name] = (a, *way, b) if way else ()
    return result
