# SPDX-License-Identifier: Apache-2.0
"""UDP source ports for many flows at once: a port for the path of each flow, or for all its paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.routing.affine_hash import bases, contributions
from controller.routing.backend import backend
from controller.routing.bucket_tables import BucketTables, Stages
from controller.routing.cable_choices import cable_stages
from controller.routing.cable_fabric import CableFabric
from controller.routing.fabric import Fabric, Ints, LeafDemand, TwoTier, grouped
from controller.routing.forwarding import BUCKETS, forwarding
from controller.routing.generic import GenericFabric
from controller.routing.hash import destination_number, source_number
from controller.routing.three_tier import ThreeTier
from controller.routing.topology_cache import cached_by_topology
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.graph import OUR_HASH, HashSpec, Topology


@dataclass(frozen=True, slots=True)
class UplinkOrders:
    """The orders in which the leaves of a leaf-spine number their uplinks.

    `of` (leaves,) is the number of each leaf's order. `orders` holds each order as columns of `TwoTier.up`.
    They depend on the wiring alone, so they hold for the fabric with any links down.
    """

    of: Ints
    orders: tuple[tuple[int, ...], ...]


def uplink_orders(topology: Topology, fabric: TwoTier) -> UplinkOrders:
    """The orders of all leaves. Many leaves share one."""
    return _uplink_orders(topology, fabric.leaves, fabric.spines)


@cached_by_topology
def _uplink_orders(topology: Topology, leaves: tuple[str, ...], spines: tuple[str, ...]) -> UplinkOrders:
    columns = _columns(spines)
    number: dict[tuple[int, ...], int] = {}
    of = []
    for leaf in leaves:
        unused = {name: iter(cables) for name, cables in columns.items()}
        order = tuple(next(unused[s], columns[s][-1]) for s in topology.upward[leaf])
        of.append(number.setdefault(order, len(number)))
    return UplinkOrders(np.array(of, dtype=np.int32), tuple(number))


def _columns(spines: Iterable[str]) -> dict[str, list[int]]:
    """The columns of `TwoTier.up` of each spine: one for each of its cables to a leaf."""
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(spines):
        columns.setdefault(name, []).append(i)
    return columns


def stages(
    topology: Topology,
    fabric: Fabric,
    demand: LeafDemand,
    choice: Ints,
    spec: HashSpec | None = None,
    orders: UplinkOrders | None = None,
) -> Stages:
    """What the hash of each switch must give so that every flow takes its choice.

    A flow with choice -1 needs nothing. `spec` is the hash of the switches; None means that of the topology.
    `orders` are those of a leaf-spine; None: find them.
    """
    tables = BucketTables(topology.hash if spec is None else spec)
    if isinstance(fabric, TwoTier):
        found = uplink_orders(topology, fabric) if orders is None else orders
        return _two(topology, fabric, demand, choice, tables, found)
    if isinstance(fabric, CableFabric):
        return cable_stages(fabric, demand, choice, tables)
    if isinstance(fabric, ThreeTier):
        return _three(topology, fabric, demand, choice, tables)
    if isinstance(fabric, GenericFabric):
        return _any(fabric, demand, choice, tables)
    raise TypeError(f"no bucket tables for a {type(fabric).__name__}")


def _two(
    topology: Topology,
    fabric: TwoTier,
    demand: LeafDemand,
    choice: Ints,
    tables: BucketTables,
    orders: UplinkOrders,
) -> Stages:
    """Leaf-spine. The table of a leaf depends on the order of its ports and on the spines that both leaves
    reach. A spine with several cables to the destination leaf makes a second choice among them."""
    columns = _columns(fabric.spines)
    stage = _leaf_stages(fabric, demand, tables, orders)
    stage[(choice < 0) | (demand.src == demand.dst)] = -1
    if all(len(cables) == 1 for cables in columns.values()):
        return tables.stages(stage[:, None], choice[:, None])
    down = _down_tables(topology, fabric, columns, tables)[demand.dst, choice]
    down[(choice < 0) | (demand.src == demand.dst)] = -1
    return tables.stages(np.stack((stage, down), axis=1), np.stack((choice, choice), axis=1))


def _leaf_stages(fabric: TwoTier, demand: LeafDemand, tables: BucketTables, orders: UplinkOrders) -> Ints:
    """The table by which the first leaf of each flow chooses, (flows,)."""
    if len(orders.orders) == 1 and fabric.live.all():
        # All leaves are alike, and reach all spines.
        return np.full(len(demand), tables.add(0, orders.orders[0]), dtype=np.int32)
    pair, src, dst = grouped(demand, len(fabric.leaves))
    both = fabric.live[src] & fabric.live[dst]
    # A few pairs of leaves, or thousands with few kinds: a dictionary is quicker than sorting the rows.
    known: dict[tuple[int, bytes], int] = {}
    table = np.empty(len(src), dtype=np.int32)
    for p, (order, live) in enumerate(zip(orders.of[src].tolist(), np.packbits(both, axis=1), strict=True)):
        kind = order, live.tobytes()
        if kind not in known:
            known[kind] = tables.add(0, [s for s in orders.orders[order] if both[p, s]])
        table[p] = known[kind]
    return table[pair]


def choices_of_ports(
    topology: Topology,
    fabric: TwoTier,
    demand: LeafDemand,
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    ports: Ints,
) -> Ints:
    """The choice that the hash of the first leaf makes for each flow, (flows,); -1 without a live path.

    `src` and `dst` (flows,) are addresses as `sources` and `destinations` give them, `ports` (flows,) source
    ports in 0xC000-0xFFFF. `paths.path_of` is the same by names. No spine may have several cables to a leaf.
    """
    if not fabric.spines:
        return np.where(demand.src == demand.dst, 0, -1).astype(np.int32)
    spec, tables = topology.hash, BucketTables(topology.hash)
    stage = _leaf_stages(fabric, demand, tables, uplink_orders(topology, fabric))
    known = tables.stages(stage[:, None], stage[:, None])
    both = fabric.live[demand.src] & fabric.live[demand.dst]
    # Where there is a single way, no table chooses.
    choice = np.where(both.any(axis=1), both.argmax(axis=1), -1).astype(np.int32)
    value = bases(spec, src, dst) ^ contributions(spec.algorithm)[ports - ROCE_SOURCE_PORTS.start]
    chooses = np.flatnonzero(stage >= 0)
    table = stage[chooses]
    bucket = (value[chooses] >> known.shifts[table].astype(np.uint32)) & np.uint32(255)
    choice[chooses] = known.tables[table, bucket]
    choice[demand.src == demand.dst] = 0
    return choice


def _down_tables(
    topology: Topology, fabric: TwoTier, columns: Mapping[str, list[int]], tables: BucketTables
) -> Ints:
    """The table by which a spine chooses among its cables to a leaf, (leaves, spines)."""
    result = np.full((len(fabric.leaves), len(fabric.spines)), -1, dtype=np.int32)
    for v, leaf in enumerate(fabric.leaves):
        far: dict[str, list[int]] = {}
        for peer in topology.ports[leaf].values():
            if peer.node in columns:
                far.setdefault(peer.node, []).append(peer.port)
        for spine, ports in far.items():
            cables = columns[spine]
            if len(ports) == len(cables) > 1:
                by_port = [cables[i] for i in sorted(range(len(ports)), key=ports.__getitem__)]
                result[v, cables] = tables.add(1, by_port)
    return result


def _three(
    topology: Topology, fabric: ThreeTier, demand: LeafDemand, choice: Ints, tables: BucketTables
) -> Stages:
    upward = topology.upward
    group, per_pod = fabric.over.shape[2], fabric.per_pod
    spine_at = [{n: j for j, n in enumerate(pod)} for pod in fabric.spines]
    core_at = [{n: c for c, n in enumerate(cores)} for cores in fabric.cores]
    up, over = fabric.up > 0, fabric.over > 0
    ways: dict[tuple[int, int, int], tuple[int, int]] = {}

    def pair(u: int, v: int, j: int) -> tuple[int, int]:
        if (u, v, j) not in ways:
            a, b = u // per_pod, v // per_pod
            both = up[u] & up[v]
            joined = over[a] & over[b]
            if a != b:
                both &= joined.any(axis=1)
            first = tables.add(0, [k for n in upward[fabric.leaves[u]] if both[k := spine_at[a][n]]])
            second = -1
            if a != b:
                cores = [core_at[j][n] for n in upward[fabric.spines[a][j]]]
                second = tables.add(1, [c for c in cores if joined[j, c]])
            ways[u, v, j] = first, second
        return ways[u, v, j]

    spine, core = choice // group, choice % group
    stage = np.full((len(demand), 2), -1, dtype=np.int32)
    for f, (u, v, j) in enumerate(zip(demand.src.tolist(), demand.dst.tolist(), spine.tolist(), strict=True)):
        if choice[f] >= 0 and u != v:
            stage[f] = pair(u, v, j)
    return tables.stages(stage, np.stack((spine, core), axis=1).astype(np.int32))


def _any(fabric: GenericFabric, demand: LeafDemand, choice: Ints, tables: BucketTables) -> Stages:
    """Any fabric, by its forwarding. A path that it does not allow needs a value that no table gives."""
    table = forwarding(fabric.topology, fabric.down_links, fabric.down_switches)
    names = {s.name: i for i, s in enumerate(fabric.topology.switches)}
    rows: list[list[tuple[int, int]]] = []
    for u, v, c in zip(demand.src.tolist(), demand.dst.tolist(), choice.tolist(), strict=True):
        row: list[tuple[int, int]] = []
        path = fabric.nodes(u, v, c) if c >= 0 else ()
        for here, following in pairwise(path):
            entry, ports = table[here], fabric.topology.ports[here]
            route = entry.routes.get(fabric.topology.prefixes[path[-1]])
            hops = (
                ()
                if route is None
                else entry.groups.get(route.id, ())
                if route.kind == "group"
                else (route.id,)
            )
            nodes = [names[ports[entry.next_hops[h].port].node] for h in hops]
            if names[following] not in nodes:
                row.append((tables.add(0, (-1, -2)), names[following]))
            elif route is not None and len(set(nodes)) > 1:
                row.append((tables.add(route.tier, nodes), names[following]))
        rows.append(row)
    width = max(map(len, rows), default=0)
    both = np.full((len(rows), max(width, 1), 2), -1, dtype=np.int32)
    for f, row in enumerate(rows):
        both[f, : len(row)] = row or both[f, : len(row)]
    return tables.stages(both[:, :, 0].copy(), both[:, :, 1].copy())


def sources(ips: Iterable[str], spec: HashSpec) -> NDArray[np.uint32]:
    """Source addresses of flows, of either family, as the 32 bits that stand for them in the hash."""
    return np.array([source_number(ip, _algorithm(spec)) for ip in ips], dtype=np.uint32)


def destinations(ips: Iterable[str], spec: HashSpec) -> NDArray[np.uint32]:
    """Destination addresses of flows, of either family, as the 32 bits that stand for them in the hash."""
    return np.array([destination_number(ip, _algorithm(spec)) for ip in ips], dtype=np.uint32)


def _algorithm(spec: HashSpec) -> str:
    # Where the hash is not known, nothing is computed from the numbers.
    return spec.algorithm if spec.known else OUR_HASH.algorithm


def repeats(*keys: NDArray[np.uint32] | NDArray[np.int64] | Ints) -> Ints:
    """How many earlier flows have the same keys. Flows of one host pair on one path need different ports."""
    order = np.lexsort(keys)
    same = np.arange(len(order)) > 0
    for key in keys:
        same[1:] &= np.diff(key[order].astype(np.int64)) == 0
    starts = np.flatnonzero(~same)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    result = np.empty(len(order), dtype=np.int32)
    result[order] = rank
    return result


def ports_for(
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    wanted: Stages,
    *,
    skip: Ints | None = None,
    spec: HashSpec = OUR_HASH,
    plain: bool = False,
    base: NDArray[np.uint32] | None = None,
) -> Ints:
    """The lowest source port in 0xC000-0xFFFF that leads each flow along its path; -1 if there is none.

    `src` and `dst` (flows,) are addresses as `sources` and `destinations` give them. The first `skip`
    (flows,) matching ports are passed over. `base` (flows,) are the flows' `bases`, where they are known.
    """
    index = backend(plain).find_ports(
        bases(spec, src, dst) if base is None else base,
        contributions(spec.algorithm),
        wanted.tables,
        wanted.shifts,
        wanted.stage,
        wanted.want,
        np.zeros(len(src), dtype=np.int32) if skip is None else skip,
    )
    return np.where(index >= 0, index + ROCE_SOURCE_PORTS.start, -1).astype(np.int32)


def leads(
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    ports: Ints,
    wanted: Stages,
    *,
    spec: HashSpec = OUR_HASH,
    base: NDArray[np.uint32] | None = None,
) -> NDArray[np.bool_]:
    """Whether the port of each flow leads along its path, (flows,). Port -1 leads nowhere. `base` as in
    `ports_for`."""
    index = np.maximum(ports - ROCE_SOURCE_PORTS.start, 0)
    value = (bases(spec, src, dst) if base is None else base) ^ contributions(spec.algorithm)[index]
    good = ports >= ROCE_SOURCE_PORTS.start
    for h in range(wanted.stage.shape[1]):
        chooses = np.flatnonzero(wanted.stage[:, h] >= 0)
        stage = wanted.stage[chooses, h]
        bucket = (value[chooses] >> wanted.shifts[stage].astype(np.uint32)) & np.uint32(255)
        good[chooses] &= wanted.tables[stage, bucket] == wanted.want[chooses, h]
    return good


def ports_of_all_paths(
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    table: Ints,
    *,
    tier: int = 0,
    spec: HashSpec = OUR_HASH,
) -> NDArray[np.uint16]:
    """The lowest legal port for every choice of one tier, (flows, choices); 0 where no port leads there.

    `table` (256,) maps buckets to choices. A flow's own hash only XORs the slice, so 256 rows hold the
    answers for all flows.
    """
    shift = np.uint32(spec.slices[tier])
    slices = (contributions(spec.algorithm) >> shift) & np.uint32(255)
    lowest = np.zeros(BUCKETS, dtype=np.int64)
    seen, where = np.unique(slices, return_index=True)
    lowest[seen] = ROCE_SOURCE_PORTS.start + where
    rows = np.full((BUCKETS, int(table.max()) + 1), 1 << 20, dtype=np.int64)
    buckets = np.arange(BUCKETS)
    for x in range(BUCKETS):
        ports = lowest[buckets ^ x]
        np.minimum.at(rows[x], table[ports > 0], ports[ports > 0])
    rows[rows == 1 << 20] = 0
    own = (bases(spec, src, dst) >> shift) & np.uint32(255)
    lowest_of: NDArray[np.uint16] = rows.astype(np.uint16)[own]
    return lowest_of
