# SPDX-License-Identifier: Apache-2.0
"""The paths that plain ECMP gives to the flows of a plan, by the source ports that they draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from controller.model import Flow
from controller.planner.demand import Demands
from controller.routing.cable_links import CableLinks, Way
from controller.routing.ecmp import draw_port
from controller.routing.fabric import LeafDemand, TwoTier
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.numbering import numbering
from controller.routing.path_ports import usable
from controller.routing.paths import Path, path_of
from controller.routing.ports import choices_of_ports
from controller.routing.topology_cache import kept_by_part
from topo.graph import Topology

DRAWS = 8
"""How many draws of source ports and start offsets are averaged. Chosen."""
_MOST_KEPT = 20_000
"""Flows of jobs whose draws are kept: about 3 KB each. Chosen: twice the most flows that are evaluated."""


def drawn_ways(demands: Demands, flows: Sequence[str]) -> list[dict[str, Way]]:
    """The links of each of these elephants, cables of bundles too, as `drawn_paths` has the paths: for DRAWS
    seeds from that of the plan on."""
    x = demands.inputs
    failures = Failures(x.down_links, x.down_switches)
    elephant = demands.elephant
    found = {
        name: _draws_of_job(x.topology, demands.jobs[name].flows, failures, x.seed, x.elephant_bytes)
        for name in dict.fromkeys(elephant[flow].job for flow in flows)
    }
    owner = [(flow, found[elephant[flow].job]) for flow in flows]
    return [{flow: draws[k][flow] for flow, draws in owner} for k in range(DRAWS)]


def _draws(
    topology: Topology, flows: tuple[Flow, ...], failures: Failures, first_seed: int, elephant_bytes: int
) -> tuple[Mapping[str, Way], ...]:
    """The links of the elephants of a job, by draw."""
    elephants = [f for f in flows if f.bytes_per_iteration >= elephant_bytes and f.src != f.dst]
    cables = CableLinks(topology, forwarding(topology, failures.links, failures.switches))
    return tuple(
        {
            name: cables.way(path, draw_port(name, seed))
            for name, path in drawn_paths(topology, failures, elephants, seed).items()
        }
        for seed in range(first_seed, first_seed + DRAWS)
    )


_draws_of_job = kept_by_part(_draws, _MOST_KEPT)
"""The draws of a job are the same in every plan."""


def drawn_paths(
    topology: Topology, failures: Failures, flows: Sequence[Flow], seed: int
) -> Mapping[str, Path]:
    """The path of each of these flows, host to host, with the port of `draw_port` for this seed.

    Empty where the hash is unknown or no path is left.
    """
    ports = [draw_port(f.name, seed) for f in flows]
    fabric = fabric_of(topology, failures)
    # A host that is cut off is rare, and `path_of` knows all of its cases.
    cut = any(failures.cuts_off(h) for h in topology.hosts) if failures != Failures() else False
    if not isinstance(fabric, TwoTier) or not usable(topology) or cut:
        switches = forwarding(topology, failures.links, failures.switches)
        return {
            f.name: path_of(topology, switches, f.src, f.dst, port)
            for f, port in zip(flows, ports, strict=True)
        }
    numbers = numbering(topology)
    src = np.array([numbers.host[f.src] for f in flows], dtype=np.int32)
    dst = np.array([numbers.host[f.dst] for f in flows], dtype=np.int32)
    leaf = numbers.leaves_of(fabric)[numbers.leaf]
    demand = LeafDemand(leaf[src], leaf[dst])
    addresses = numbers.source[src], numbers.destination[dst]
    choice = choices_of_ports(topology, fabric, demand, *addresses, np.array(ports, dtype=np.int32))
    hops = numbers.hops_of_choices(fabric, demand, choice)
    switches_of, nodes = numbers.switches, dict[tuple[int, ...], Path]()
    result = {}
    for f, row in zip(flows, hops.tolist(), strict=True):
        way = nodes.get(key := tuple(row))
        if way is None:
            way = nodes[key] = tuple(switches_of[i] for i in row if i >= 0)
        result[f.name] = (f.src, *way, f.dst) if way else ()
    return result
