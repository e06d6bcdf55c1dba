# SPDX-License-Identifier: Apache-2.0
"""Assign a UDP source port to each flow that has a path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from controller.routing.backend import plain_suffices
from controller.routing.cable_ports import CablePorts
from controller.routing.ecmp import draw_port
from controller.routing.fabric import Fabric
from controller.routing.forwarding import pair
from controller.routing.greedy import Commodity
from controller.routing.path_ports import PathPorts, usable
from controller.routing.paths import Forwarding, Path, path_of, paths, port_for_path
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.graph import Topology

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


def with_ports(
    topology: Topology,
    forwarding: Forwarding,
    commodities: Sequence[Commodity],
    chosen: Mapping[str, Path],
    *,
    fabric: Fabric,
    down_links: frozenset[tuple[str, str]] = frozenset(),
    previous: Mapping[str, tuple[Path, int]] | None = None,
    learned: Learned | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Mapping[str, Assignment]:
    """Find a source port for every chosen path, in the order of the commodities.

    `fabric` is the topology as arrays, without what is down. `previous` maps a flow to its present path and
    port; on the same path a flow keeps its port. Where several cables join two switches, the ports spread the
    flows over them. `fixed` maps a flow to the port that its NIC keeps, wherever
    that port leads. `learned` are the ports that INT probes found where the hash of the switches is unknown;
    a pair of hosts without an entry is still being probed and is left to ECMP. None: there are no probes. A
    commodity without a chosen path is left to ECMP.
    """
    fixed = fixed or {}
    used: dict[tuple[str, str], set[int]] = defaultdict(set)
    if fixed:
        for c in commodities:
            if c.name in fixed and _alive(topology, c, down_links):
                used[c.src, c.dst].add(fixed[c.name])
    known = PathPorts(topology, fabric, plain=plain_suffices(len(commodities))) if usable(topology) else None
    free = {c.name: chosen[c.name] for c in commodities if c.name in chosen and c.name not in fixed}
    standing = {n: p for n, p in (previous or {}).items() if free.get(n) == p[0]}
    kept = _kept(topology, forwarding, standing, known, learned or {}, commodities, used)
    lowest = _lowest({n: p for n, p in free.items() if n not in kept}, known if not learned else None)
    cables = CablePorts(topology, forwarding) if topology.bundles and topology.hash.known else None
    weight = {c.name: max(c.weight, 1.0) for c in commodities}
    if cables is not None:
        for name, held in kept.items():
            cables.add(chosen[name], held, weight[name])
    result: dict[str, Assignment] = {}
    for c in commodities:
        name = c.name
        path = chosen.get(name)
        if path is None:
            result[name] = Assignment(None, None, False, without_path(topology, forwarding, c, down_links))
            continue
        as_before = name in standing or (
            name in fixed and previous is not None and name in previous and previous[name][0] == path
        )
        if name in fixed:
            result[name] = Assignment(path, fixed[name], as_before, "")
            continue
        if name in kept:
            result[name] = Assignment(path, kept[name], True, "")
            continue
        taken = used[c.src, c.dst]
        port: int | None = lowest.get(name)
        if cables is not None:
            port = cables.port(path, taken, weight[name])
        elif port is None or port in taken:
            port = free_port(topology, forwarding, path, taken, learned)
        if port is None:
            waits = learned is not None and (c.src, c.dst) not in learned and not topology.hash.known
            result[name] = (
                Assignment(None, None, False, f"{UNKNOWN}: ECMP")
                if waits
                else Assignment(path, None, as_before, "")
            )
            continue
        taken.add(port)
        result[name] = Assignment(path, port, False, "")
    return result


def without_path(
    topology: Topology, forwarding: Forwarding, c: Commodity, down_links: frozenset[tuple[str, str]]
) -> str:
    """Why a routing gave a commodity no path."""
    live = _alive(topology, c, down_links) and paths(topology, forwarding, c.src, c.dst)
    return "left to ECMP by the routing" if live else f"no live path from {c.src} to {c.dst}"


def _alive(topology: Topology, c: Commodity, down_links: frozenset[tuple[str, str]]) -> bool:
    return reachable(topology, c.src, down_links) and reachable(topology, c.dst, down_links)


def _kept(
    topology: Topology,
    forwarding: Forwarding,
    standing: Mapping[str, tuple[Path, int]],
    known: PathPorts | None,
    learned: Learned,
    commodities: Sequence[Commodity],
    used: dict[tuple[str, str], set[int]],
) -> Mapping[str, int]:
    """The ports of the flows that stay on their path, as far as they still lead there. Marks them as used.

    `standing` has the path and port of these flows.
    """
    names = list(standing)
    if known is not None and names and all(port >= ROCE_SOURCE_PORTS.start for _, port in standing.values()):
        right = known.leads([standing[n][0] for n in names], [standing[n][1] for n in names]).tolist()
    else:
        right = [path == path_of(topology, forwarding, path[0], path[-1], p) for path, p in standing.values()]
    leading = dict(zip(names, right, strict=True))
    kept: dict[str, int] = {}
    for c in commodities if standing else ():
        if c.name not in standing:
            continue
        path, port = standing[c.name]
        taken = used[c.src, c.dst]
        leads_there = leading[c.name] or port in learned.get((c.src, c.dst), {}).get(path, ())
        if leads_there and port not in taken:
            kept[c.name] = port
            taken.add(port)
    return kept


def _lowest(wanted: Mapping[str, Path], known: PathPorts | None) -> Mapping[str, int]:
    """The lowest port along each path, by flow; without those that have none."""
    if known is None or not wanted:
        return {}
    found = known.lowest(list(wanted.values())).tolist()
    return {name: port for name, port in zip(wanted, found, strict=True) if port >= 0}


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
