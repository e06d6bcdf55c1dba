# SPDX-License-Identifier: Apache-2.0
"""Answers to single failures of a switch or cable: new paths and source ports for the flows they touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.routing.affine_hash import bases
from controller.routing.algorithms.base import Options, congestion, loads
from controller.routing.algorithms.greedy import add
from controller.routing.algorithms.optimal import optimal
from controller.routing.backend import plain_suffices
from controller.routing.fabric import Cable, Fabric, Floats, Ints, LeafDemand, TwoTier, UnsuitableError
from controller.routing.from_topology import Failures
from controller.routing.generic import GenericFabric
from controller.routing.link_loss import LinkLosses
from controller.routing.ports import leads, ports_for, stages, uplink_orders
from controller.routing.three_tier import ThreeTier
from topo.graph import Topology

Event = str | Cable
"""A switch by name, or a cable as its sorted pair of names."""


_WHOLE = Failures()


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The assignment in force: addresses of the flows, their leaves, choices and source ports.

    All arrays have the shape (flows,).
    """

    src: NDArray[np.uint32]
    dst: NDArray[np.uint32]
    demand: LeafDemand
    choice: Ints
    ports: Ints


@dataclass(frozen=True, slots=True)
class Reroute:
    """The answer to one failure.

    `flows` are the indices of the flows that change, `choice` their new choices on `fabric`, `ports` their
    new source ports. Both are -1 for a flow that has no path left. `stays` says of each whether its path
    stays and only its source port changes. `max_load` is the largest relative link load after the change.
    """

    flows: Ints
    choice: Ints
    ports: Ints
    stays: NDArray[np.bool_]
    max_load: float
    fabric: Fabric


def events(topology: Topology) -> Iterator[Event]:
    """Every switch, then every cable between switches by its name."""
    yield from (s.name for s in topology.switches)
    yield from dict.fromkeys(topology.cable_at[k.a, k.a_port] for k in topology.links)


def degraded(topology: Topology, failures: Failures, fabric: Fabric, event: Event) -> Fabric:
    """The fabric after the loss of one switch or one cable. `fabric` is the topology with `failures`."""
    if isinstance(event, tuple) and ":" in event[0] + event[1]:
        # One of several cables between two switches.
        return GenericFabric(topology, failures.links | {event}, failures.switches)
    if isinstance(fabric, GenericFabric):
        links = fabric.down_links | ({event} if isinstance(event, tuple) else set())
        switches = fabric.down_switches | ({event} if isinstance(event, str) else set())
        return GenericFabric(fabric.topology, frozenset(links), frozenset(switches), fabric.shortest)
    if not isinstance(fabric, TwoTier | ThreeTier):
        raise TypeError(f"no failures for a {type(fabric).__name__}")
    up = fabric.up.copy()
    leaf = {name: i for i, name in enumerate(fabric.leaves)}
    ends = (event,) if isinstance(event, str) else event
    if isinstance(fabric, TwoTier):
        rows = [leaf[n] for n in ends if n in leaf] or range(len(fabric.leaves))
        columns = [s for s, name in enumerate(fabric.spines) if name in ends] or range(len(fabric.spines))
        up[np.ix_(rows, columns)] = 0.0
        return replace(fabric, up=up)
    over = fabric.over.copy()
    place = {name: (p, j) for p, pod in enumerate(fabric.spines) for j, name in enumerate(pod)}
    core = {name: (j, c) for j, group in enumerate(fabric.cores) for c, name in enumerate(group)}
    p, j = next((place[n] for n in ends if n in place), (slice(None), slice(None)))
    cores = [core[n] for n in ends if n in core]
    leaves = [leaf[n] for n in ends if n in leaf]
    pod = slice(p * fabric.per_pod, (p + 1) * fabric.per_pod) if isinstance(p, int) else slice(None)
    if leaves:
        up[leaves[0], j] = 0.0
    elif cores:
        over[p, cores[0][0], cores[0][1]] = 0.0
    else:
        up[pod, j] = 0.0
        over[p, j] = 0.0
    return replace(fabric, up=up, over=over)


class Failover:
    """The answers to the single failures of a topology, for one assignment in force.

    What all answers need is computed once: the links and the loads of the assignment, and the hash of each
    flow. An answer then looks only at the flows that its failure can touch. `fabric` contains what is down
    already (`failures`), so after one failure the answers to the next are found in the same way.
    """

    def __init__(
        self,
        topology: Topology,
        fabric: Fabric,
        now: CurrentAssignment,
        failures: Failures = _WHOLE,
        *,
        plain: bool = False,
    ) -> None:
        self._topology = topology
        self._failures = failures
        self._events = frozenset(events(topology))
        self._fabric = fabric
        self._now = now
        self._plain = plain or plain_suffices(len(now.choice))
        self._far = now.demand.src != now.demand.dst
        self._links = fabric.links(now.demand, now.choice)
        self._loads = loads(fabric, now.demand, now.choice, now.demand.weights)
        self._orders = uplink_orders(topology, fabric) if isinstance(fabric, TwoTier) else None
        self._bases = bases(topology.hash, now.src, now.dst)

    def answer(self, event: Event) -> Reroute:
        """The answer to one failure.

        Flows that do not use the failed part keep their paths. The greedy algorithm routes the others around
        it. Where that loads a link more than needed after the loss of a leaf's link, Kempe chains move a few
        other flows too. After the loss of a spine or core, all flows are coloured again if that is possible
        and gives a smaller largest load. A lost link changes where the ECMP buckets of a switch lead, so a
        flow that keeps its path may need another source port.

        Raises:
            KeyError: the topology has no such switch or cable.
        """
        now = self._now
        if event not in self._events:
            raise KeyError(event)
        after = degraded(self._topology, self._failures, self._fabric, event)
        # Every flow counts on a fabric of any shape, whose choices are positions in lists of paths.
        some = not isinstance(after, GenericFabric)
        touched = np.flatnonzero(self._touched(event)) if some else np.arange(len(now.choice))
        demand = now.demand.take(touched)
        old, links = now.choice[touched], self._links[touched]
        far = self._far[touched]
        if isinstance(after, GenericFabric):
            old = np.where(far, _stands(self._fabric, after, demand, old), old).astype(np.int32)
            kept, before = old, loads(after, demand, old, demand.weights)
        else:
            # A row of -1 pads: it indexes the extra last element.
            broken = np.append(after.capacity == 0, False)[links].any(axis=1)
            kept = np.where(broken, -1, old).astype(np.int32)
            before = self._without(links[broken], demand.weights[broken])
        choice = kept.copy()
        lost = event if isinstance(event, str) and event in after.leaves else None
        free = far & (kept < 0)
        if lost is not None:
            number = after.leaves.index(lost)
            choice[(demand.src == number) | (demand.dst == number)] = -1
        elif free.any():
            moving = demand.take(free)
            choice[free] = add(after, moving, before.copy(), Options(plain=self._plain))
            before += loads(after, moving, choice[free], moving.weights)
        load = _largest(after, before)
        if isinstance(event, str) and lost is None and len(touched) == len(now.choice):
            choice, load = self._coloured(after, choice, load)
        anew = self._repaired(after, event, load)
        if anew is not None and (least := congestion(after, now.demand, anew)) < load * (1 - 1e-9):
            touched = np.flatnonzero(self._touched(event) | self._of_pairs(anew != now.choice))
            demand, old, choice, load = now.demand.take(touched), now.choice[touched], anew[touched], least
        ports = self._ports(after, touched, demand, choice)
        changed = np.flatnonzero((choice != old) | (ports != now.ports[touched]))
        return Reroute(
            touched[changed].astype(np.int32),
            choice[changed],
            ports[changed],
            ((choice == old) & (choice >= 0))[changed],
            load,
            after,
        )

    def _repaired(self, after: Fabric, event: Event, load: float) -> Ints | None:
        """The choices of all flows by Kempe chains, after the loss of a link between a leaf and a spine; None
        where they cannot be below `load`."""
        losses = self._losses
        if losses is None or not isinstance(event, tuple) or not isinstance(after, TwoTier):
            return None
        a, b = event if event[0] in after.leaves else event[::-1]
        leaf, spine = after.leaves.index(a), after.spines.index(b)
        if load <= losses.least_load(leaf) * (1 + 1e-9):
            return None
        return losses.choices(leaf, spine)

    @cached_property
    def _losses(self) -> LinkLosses | None:
        try:
            return LinkLosses(self._fabric, self._now.demand, self._now.choice, plain=self._plain)
        except UnsuitableError:
            return None

    def _touched(self, event: Event) -> NDArray[np.bool_]:
        """The flows whose path or source port an event may change, (flows,)."""
        demand, fabric = self._now.demand, self._fabric
        everything = np.ones(len(demand), dtype=np.bool_)
        ends = {event} if isinstance(event, str) else set(event)
        changes = np.array([name in ends for name in fabric.leaves])
        if isinstance(fabric, ThreeTier) and not changes.any():
            pods = [p for p, spines in enumerate(fabric.spines) if ends & set(spines)]
            changes = np.isin(np.arange(len(changes)) // fabric.per_pod, pods)
        if not changes.any():
            return everything
        either: NDArray[np.bool_] = changes[demand.src] | changes[demand.dst]
        return either

    def _of_pairs(self, flows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """All flows of the pairs of hosts that `flows` belong to, (flows,)."""
        pairs = _pairs(self._now.src, self._now.dst)
        return np.isin(pairs, pairs[flows])

    def _without(self, links: Ints, weights: Floats) -> Floats:
        """The loads of all links without some flows, whose links are given (flows, hops)."""
        flow, hop = np.nonzero(links >= 0)
        gone = np.bincount(links[flow, hop], weights[flow], minlength=len(self._loads))
        rest: Floats = np.maximum(self._loads - gone, 0.0)
        return rest

    def _coloured(self, after: Fabric, choice: Ints, load: float) -> tuple[Ints, float]:
        """The choices of all flows, coloured anew if that gives a smaller largest load; and this load."""
        anew = choice.copy()
        try:
            anew[self._far] = optimal(after, self._now.demand.take(self._far), Options(plain=self._plain))
        except UnsuitableError:
            return choice, load
        found = congestion(after, self._now.demand, anew)
        return (anew, found) if found < load * (1 - 1e-9) else (choice, load)

    def _ports(self, after: Fabric, touched: NDArray[np.intp], demand: LeafDemand, choice: Ints) -> Ints:
        """Source ports of the touched flows: the old port where it still leads along the path, else the
        lowest free port, -1 without a path. A port is free if no other flow of the same pair of hosts uses
        it. Either all flows of a pair of hosts are touched, or none.
        """
        now, spec = self._now, self._topology.hash
        src, dst, before = now.src[touched], now.dst[touched], now.ports[touched]
        base = self._bases[touched]
        wanted = stages(self._topology, after, demand, choice, orders=self._orders)
        good = leads(src, dst, before, wanted, spec=spec, base=base) & (choice >= 0)
        ports = np.where(good, before, -1).astype(np.int32)
        todo = np.flatnonzero(~good & (choice >= 0))
        pair_of = _pairs(src, dst).tolist()
        used: dict[int, set[int]] = {pair_of[f]: set() for f in todo.tolist()}
        for f in np.flatnonzero(good).tolist():
            if (taken := used.get(pair_of[f])) is not None:
                taken.add(int(ports[f]))
        skip = np.zeros(len(touched), dtype=np.int32)
        while len(todo):
            part = replace(wanted, stage=wanted.stage[todo], want=wanted.want[todo])
            found = ports_for(
                src[todo], dst[todo], part, skip=skip[todo], spec=spec, plain=self._plain, base=base[todo]
            )
            again = []
            for f, port in zip(todo.tolist(), found.tolist(), strict=True):
                taken = used[pair_of[f]]
                if port in taken and skip[f] < len(taken):
                    skip[f] += 1
                    again.append(f)
                    continue
                taken.add(port)
                ports[f] = port
            todo = np.array(again, dtype=np.intp)
        return ports


def _pairs(src: NDArray[np.uint32], dst: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A number for each flow, equal for flows of one pair of hosts."""
    found: NDArray[np.uint64] = src.astype(np.uint64) << np.uint64(32) | dst
    return found


def _largest(fabric: Fabric, carried: Floats) -> float:
    """The largest load of a live link relative to its capacity."""
    live = fabric.capacity > 0
    return float((carried[live] / fabric.capacity[live]).max(initial=0.0))


def _stands(before: Fabric, after: GenericFabric, demand: LeafDemand, choice: Ints) -> Ints:
    """The old path of each flow as a choice on the fabric after the failure; -1 if the path is gone."""
    result = np.full(len(choice), -1, dtype=np.int32)
    for f, (u, v, c) in enumerate(
        zip(demand.src.tolist(), demand.dst.tolist(), choice.tolist(), strict=True)
    ):
        if c >= 0 and u != v:
            path, ways = before.nodes(u, v, c), after.paths(u, v)
            result[f] = ways.index(path) if path in ways else -1
    return result
