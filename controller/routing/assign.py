# SPDX-License-Identifier: Apache-2.0
"""Assign a path and a UDP source port to each flow. A flow moves only where the move lowers congestion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller.routing.algorithms import Options, solve
from controller.routing.algorithms.optimal import optimal
from controller.routing.ecmp import draw_port
from controller.routing.fabric import Fabric, Ints, LeafDemand, TwoTier, UnsuitableError
from controller.routing.forwarding import pair
from controller.routing.from_topology import Failures, demand_of, fabric_of
from controller.routing.greedy import Commodity, Loads, Overlap, route
from controller.routing.incremental import rebalanced
from controller.routing.paths import Forwarding, Path, path_of, paths, port_for_path
from topo.graph import Topology

# Below this number of flows the plain Python loops finish before Numba would be imported.
SMALL = 256

UNKNOWN = "the switches' hash is unknown, and no port is known for the path"

Learned = Mapping[tuple[str, str], Mapping[Path, tuple[int, ...]]]
"""Source and destination host -> path -> ports that lead along it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The path of a flow and the source port whose hash leads along it.

    `kept` says that both are the same as before. A path with port None means that no free legal port is
    known to lead along the path.
    """

    path: Path | None
    source_port: int | None
    kept: bool
    why: str


def reachable(topology: Topology, host: str, down_links: frozenset[tuple[str, str]]) -> bool:
    """Whether the cable between a host and its leaf is up. `down_links` are sorted pairs of names."""
    return pair(host, topology.host[host].leaf) not in down_links


def assign_greedy(
    topology: Topology,
    forwarding: Forwarding,
    commodities: Sequence[Commodity],
    *,
    down_links: frozenset[tuple[str, str]] = frozenset(),
    previous: Mapping[str, tuple[Path, int]] | None = None,
    overlap: Overlap | None = None,
    failures: Failures | None = None,
    max_moves: int | None = None,
    learned: Learned | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Mapping[str, Assignment]:
    """`least_congested_paths` with a source port for each, in the order of the commodities (`with_ports`).

    `previous` holds the path and the port that a flow has now.
    """
    chosen = least_congested_paths(
        topology,
        forwarding,
        commodities,
        down_links=down_links,
        previous={name: path for name, (path, _) in (previous or {}).items()},
        overlap=overlap,
        failures=failures,
        max_moves=max_moves,
    )
    return with_ports(
        topology,
        forwarding,
        commodities,
        chosen,
        down_links=down_links,
        previous=previous,
        learned=learned,
        fixed=fixed,
    )


def least_congested_paths(
    topology: Topology,
    forwarding: Forwarding,
    commodities: Sequence[Commodity],
    *,
    down_links: frozenset[tuple[str, str]] = frozenset(),
    previous: Mapping[str, Path] | None = None,
    overlap: Overlap | None = None,
    failures: Failures | None = None,
    max_moves: int | None = None,
) -> Mapping[str, Path]:
    """Choose a path for each commodity that has a live one, in the order of the commodities.

    The function compares up to four sets of paths and takes the least congested one. Of two equally
    congested sets it takes the one that moves fewer flows.

    1. Every flow whose `previous` path is still alive stays there; the others are routed around it.
    2. All flows are routed again by the greedy algorithm.
    3. With `failures`, on a uniform leaf-spine: the previous paths, balanced by Kempe chains.
    4. With `failures`, on a uniform Clos: the exact optimum by edge colouring.

    A set that moves more than `max_moves` of the flows that could stay is not taken.

    `previous` maps a flow to its present path. `failures` is what is down.
    """
    alive = [
        c
        for c in commodities
        if reachable(topology, c.src, down_links) and reachable(topology, c.dst, down_links)
    ]
    held = {
        c.name: previous[c.name]
        for c in alive
        if previous and c.name in previous and previous[c.name] in paths(topology, forwarding, c.src, c.dst)
    }

    def moves(paths: Mapping[str, Path]) -> int:
        return sum(paths.get(name) != path for name, path in held.items())

    def legal(paths: Mapping[str, Path]) -> bool:
        return max_moves is None or moves(paths) <= max_moves

    chosen, congestion = route(topology, forwarding, alive, overlap=overlap, spread=True)
    if held:
        stable, with_held = route(topology, forwarding, alive, kept=held, overlap=overlap, spread=True)
        if with_held <= congestion or not legal(chosen):
            chosen, congestion = stable, with_held
    least = congestion.max_load, moves(chosen)
    if failures is not None:
        for ways in (
            balanced_paths(topology, alive, failures, held, max_moves),
            optimal_paths(topology, alive, failures),
        ):
            if ways is None or not legal(ways):
                continue
            cost = congested(topology, alive, ways, overlap), moves(ways)
            if cost < least:
                chosen, least = ways, cost
    return chosen


def with_ports(
    topology: Topology,
    forwarding: Forwarding,
    commodities: Sequence[Commodity],
    chosen: Mapping[str, Path],
    *,
    down_links: frozenset[tuple[str, str]] = frozenset(),
    previous: Mapping[str, tuple[Path, int]] | None = None,
    learned: Learned | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Mapping[str, Assignment]:
    """Find a source port for every chosen path, in the order of the commodities.

    `previous` maps a flow to its present path and port; on the same path a flow keeps its port. `fixed` maps
    a flow to the port that its NIC keeps, wherever that port leads. `learned` are the ports that INT probes
    found where the hash of the switches is unknown; a pair of hosts without an entry is still being probed
    and is left to ECMP. None: there are no probes. A commodity without a chosen path is left to ECMP.
    """
    standing = previous or {}
    alive = [
        c
        for c in commodities
        if reachable(topology, c.src, down_links) and reachable(topology, c.dst, down_links)
    ]
    used: dict[tuple[str, str], set[int]] = defaultdict(set)
    ports: dict[str, int] = {}
    fixed = fixed or {}
    for c in alive:
        if c.name in fixed:
            used[c.src, c.dst].add(fixed[c.name])
    for c in alive:
        if c.name not in standing or c.name not in chosen or c.name in fixed:
            continue
        path, port = standing[c.name]
        if chosen[c.name] != path:
            continue
        known = port in (learned or {}).get((c.src, c.dst), {}).get(path, ())
        leads = known or path == path_of(topology, forwarding, c.src, c.dst, port)
        if leads and port not in used[c.src, c.dst]:
            ports[c.name] = port
            used[c.src, c.dst].add(port)
    result: dict[str, Assignment] = {}
    for c in commodities:
        if c.name not in chosen:
            live = c in alive and paths(topology, forwarding, c.src, c.dst)
            why = "left to ECMP by the routing" if live else f"no live path from {c.src} to {c.dst}"
            result[c.name] = Assignment(None, None, False, why)
            continue
        path = chosen[c.name]
        if c.name in fixed:
            as_before = c.name in standing and standing[c.name][0] == path
            result[c.name] = Assignment(path, fixed[c.name], as_before, "")
            continue
        kept = c.name in ports
        taken = used[c.src, c.dst]
        found = ports.get(c.name)
        if found is None:
            found = free_port(topology, forwarding, path, taken, learned)
        waits = learned is not None and (c.src, c.dst) not in learned
        if found is None and waits and not topology.hash.known:
            result[c.name] = Assignment(None, None, False, f"{UNKNOWN}: ECMP")
            continue
        if found is None:
            as_before = c.name in standing and standing[c.name][0] == path
            result[c.name] = Assignment(path, None, as_before, "")
            continue
        used[c.src, c.dst].add(found)
        result[c.name] = Assignment(path, found, kept, "")
    return result


def balanced_paths(
    topology: Topology,
    commodities: Sequence[Commodity],
    failures: Failures,
    held: Mapping[str, Path],
    max_moves: int | None,
) -> Mapping[str, Path] | None:
    """Balance the present paths (`held`, by commodity name) by Kempe chains.

    Returns None if `held` is empty, or if the fabric or the weights are not uniform.
    """
    if not held:
        return None
    fabric = fabric_of(topology, failures)
    if not isinstance(fabric, TwoTier):
        return None
    far = [c for c in commodities if topology.host[c.src].leaf != topology.host[c.dst].leaf]
    demand = _demand(topology, fabric, far)
    number = {name: i for i, name in enumerate(fabric.spines)}
    before = np.array([number[held[c.name][2]] if c.name in held else -1 for c in far], dtype=np.int32)
    try:
        choice = rebalanced(fabric, demand, before, max_moves, plain=len(far) < SMALL)
    except UnsuitableError:
        return None
    inside = {
        c.name: (c.src, topology.host[c.src].leaf, c.dst)
        for c in commodities
        if topology.host[c.src].leaf == topology.host[c.dst].leaf
    }
    return {**inside, **_paths(fabric, demand, far, choice)}


def _demand(topology: Topology, fabric: Fabric, commodities: Sequence[Commodity]) -> LeafDemand:
    ends = [(topology.host[c.src], topology.host[c.dst]) for c in commodities]
    return demand_of(fabric, ends, np.array([c.weight for c in commodities], dtype=np.float64))


def _paths(
    fabric: Fabric, demand: LeafDemand, commodities: Sequence[Commodity], choice: Ints
) -> Mapping[str, Path]:
    """Paths by commodity name. A commodity with choice -1 has no path and is left out."""
    rows = zip(demand.src.tolist(), demand.dst.tolist(), choice.tolist(), strict=True)
    return {
        c.name: (c.src, *fabric.nodes(u, v, w), c.dst)
        for c, (u, v, w) in zip(commodities, rows, strict=True)
        if w >= 0
    }


def free_port(
    topology: Topology,
    forwarding: Forwarding,
    path: Path,
    taken: Collection[int],
    learned: Learned | None = None,
) -> int | None:
    """A source port that leads along `path` and is not in `taken`; None if no such port is known."""
    pair_of = path[0], path[-1]
    if learned and pair_of in learned:
        return next((port for port in learned[pair_of].get(path, ()) if port not in taken), None)
    return port_for_path(topology, forwarding, path, taken)


def optimal_paths(
    topology: Topology, commodities: Sequence[Commodity], failures: Failures
) -> Mapping[str, Path] | None:
    """The paths of `optimal` by commodity name; None where its conditions do not hold."""
    fabric = fabric_of(topology, failures)
    demand = _demand(topology, fabric, commodities)
    try:
        choice = solve(optimal, fabric, demand, Options(plain=len(commodities) < SMALL))
    except UnsuitableError:
        return None
    return _paths(fabric, demand, commodities, choice)


def congested(
    topology: Topology,
    commodities: Sequence[Commodity],
    chosen: Mapping[str, Path],
    overlap: Overlap | None,
) -> float:
    """The largest relative link load under the `chosen` paths (see `Congestion`)."""
    loads = Loads(topology, overlap)
    for c in commodities:
        if c.name in chosen:
            loads.add(chosen[c.name], c)
    return loads.congestion().max_load


def assign_ecmp(
    topology: Topology,
    forwarding: Forwarding,
    commodities: Sequence[Commodity],
    *,
    seed: int,
    down_links: frozenset[tuple[str, str]] = frozenset(),
    fixed: Mapping[str, int] | None = None,
) -> Mapping[str, Assignment]:
    """Draw a random source port for each flow and look up the path that its hash gives.

    The paths stay those of ECMP, but the planner then knows which links the flows share. `fixed` maps a
    flow to the port that its NIC keeps.
    """
    used: dict[tuple[str, str], set[int]] = defaultdict(set)
    result: dict[str, Assignment] = {}
    fixed = fixed or {}
    for c in commodities:
        kept = fixed.get(c.name)
        port = draw_port(c.name, seed, used[c.src, c.dst]) if kept is None else kept
        path = path_of(topology, forwarding, c.src, c.dst, port)
        if not topology.hash.known and not path:
            result[c.name] = Assignment(None, None, False, "the switches' hash is unknown: ECMP")
            continue
        up = reachable(topology, c.src, down_links) and reachable(topology, c.dst, down_links)
        if not path or not up:
            result[c.name] = Assignment(None, None, False, f"no live path from {c.src} to {c.dst}")
            continue
        used[c.src, c.dst].add(port)
        drawn = "source port drawn at random" if kept is None else f"its NIC keeps source port {kept}"
        result[c.name] = Assignment(path, port, False, f"{drawn}; the hash of the switches gives the path")
    return result
