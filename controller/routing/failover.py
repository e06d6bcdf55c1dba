# SPDX-License-Identifier: Apache-2.0
"""Prepare the reroute for every single failure of a switch or cable before it happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms.base import Options, congestion
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.optimal import optimal
from controller.routing.assign import SMALL
from controller.routing.fabric import Cable, Fabric, Ints, LeafDemand, TwoTier, UnsuitableError
from controller.routing.forwarding import pair
from controller.routing.generic import GenericFabric
from controller.routing.ports import leads, ports_for, stages
from controller.routing.three_tier import ThreeTier
from topo.graph import Topology

Event = str | Cable
"""A switch by name, or a cable as its sorted pair of names."""


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
    new source ports. Both are -1 for a flow that has no path left. `max_load` is the largest relative link
    load after the change.
    """

    flows: Ints
    choice: Ints
    ports: Ints
    max_load: float
    fabric: Fabric


def events(topology: Topology) -> Iterator[Event]:
    """Every switch, then every pair of switches with a cable. Parallel cables count as one failure."""
    yield from (s.name for s in topology.switches)
    yield from dict.fromkeys(pair(k.a, k.b) for k in topology.links)


def degraded(fabric: Fabric, event: Event) -> Fabric:
    """The fabric after the loss of one switch or one cable."""
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


def reroute(topology: Topology, fabric: Fabric, now: CurrentAssignment, event: Event) -> Reroute:
    """Compute the answer to one failure.

    Flows that do not use the failed part keep their paths. The greedy algorithm routes the others around it.
    If edge colouring is possible and gives a smaller largest load, all flows are coloured again instead.
    A lost link changes where the ECMP buckets of a switch lead. So a flow that keeps its path may need
    another source port.
    """
    after = degraded(fabric, event)
    between = now.demand.src != now.demand.dst
    old = now.choice.copy()
    if isinstance(after, GenericFabric):
        old[between] = _stands(fabric, after, now)[between]
        kept = old
    else:
        links = after.links(now.demand, now.choice)
        # Choice -1 indexes the extra last element: a flow without links has no broken link.
        broken = np.append(after.capacity == 0, False)[links].any(axis=1)
        kept = np.where(broken, -1, old).astype(np.int32)
    free = now.demand.take(between)
    plain = len(now.choice) < SMALL
    choice = np.zeros(len(now.choice), dtype=np.int32)
    choice[between] = greedy(after, free, Options(kept=kept[between], plain=plain))
    load = congestion(after, now.demand, choice)
    try:
        anew = choice.copy()
        anew[between] = optimal(after, free, Options(plain=plain))
        if congestion(after, now.demand, anew) < load * (1 - 1e-9):
            choice, load = anew, congestion(after, now.demand, anew)
    except UnsuitableError:
        pass
    lost_leaf = event if isinstance(event, str) and event in after.leaves else None
    if lost_leaf is not None:
        number = after.leaves.index(lost_leaf)
        choice[(now.demand.src == number) | (now.demand.dst == number)] = -1
    ports = _ports(topology, after, now, choice)
    changed = np.flatnonzero((choice != old) | (ports != now.ports)).astype(np.int32)
    return Reroute(changed, choice[changed], ports[changed], load, after)


def _stands(before: Fabric, after: GenericFabric, now: CurrentAssignment) -> Ints:
    """The old path of each flow as a choice on the fabric after the failure; -1 if the path is gone."""
    result = np.full(len(now.choice), -1, dtype=np.int32)
    for f, (u, v, c) in enumerate(
        zip(now.demand.src.tolist(), now.demand.dst.tolist(), now.choice.tolist(), strict=True)
    ):
        if c >= 0 and u != v:
            path, ways = before.nodes(u, v, c), after.paths(u, v)
            result[f] = ways.index(path) if path in ways else -1
    return result


def _ports(topology: Topology, after: Fabric, now: CurrentAssignment, choice: Ints) -> Ints:
    """Source ports (flows,): the old port where it still leads along the path, else the lowest free port.

    A port is free if no other flow of the same pair of hosts uses it.
    """
    wanted = stages(topology, after, now.demand, choice)
    spec = topology.hash
    good = leads(now.src, now.dst, now.ports, wanted, spec=spec) & (choice >= 0)
    ports = np.where(good, now.ports, -1).astype(np.int32)
    open_flows = np.flatnonzero(~good & (choice >= 0))
    pair_of = now.src.astype(np.uint64) << np.uint64(32) | now.dst
    used: dict[int, set[int]] = {key: set() for key in pair_of[open_flows].tolist()}
    for f in np.flatnonzero(good & np.isin(pair_of, pair_of[open_flows])).tolist():
        used[int(pair_of[f])].add(int(ports[f]))
    skip = np.zeros(len(open_flows), dtype=np.int32)
    todo = np.arange(len(open_flows))
    while len(todo):
        flows = open_flows[todo]
        part = replace(wanted, stage=wanted.stage[flows], want=wanted.want[flows])
        found = ports_for(
            now.src[flows], now.dst[flows], part, skip=skip[todo], spec=spec, plain=len(now.choice) < SMALL
        )
        again = []
        for i, f, port in zip(todo.tolist(), flows.tolist(), found.tolist(), strict=True):
            taken = used[int(pair_of[f])]
            if port in taken and skip[i] < len(taken):
                skip[i] += 1
                again.append(i)
                continue
            taken.add(port)
            ports[f] = port
        todo = np.array(again, dtype=np.intp)
    return ports


class Failover:
    """The answers to all single failures of a topology, prepared in the background.

    `refresh` sets the assignment in force and drops the answers to the old one. `step` computes one more
    answer; `start` starts a thread that calls `step`. `plan` looks an answer up. The fabric contains what is
    already down, so after one failure the answers for the next are prepared in the same way.
    """

    def __init__(self, topology: Topology, fabric: Fabric, now: CurrentAssignment) -> None:
        self._topology = topology
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._now = (fabric, now)
        self._plans: dict[Event, Reroute] = {}
        self._todo = list(events(topology))[::-1]

    def refresh(self, fabric: Fabric, now: CurrentAssignment) -> None:
        """Set a new assignment in force and drop all answers."""
        # New objects: an answer that the thread is still computing goes into the old dictionary.
        self._now, self._plans, self._todo = (fabric, now), {}, list(events(self._topology))[::-1]
        self._wake.set()

    @property
    def missing(self) -> int:
        """How many failures have no answer yet."""
        return len(self._todo)

    def step(self) -> bool:
        """Compute one more answer. Returns False if all are computed."""
        (fabric, now), plans, todo = self._now, self._plans, self._todo
        if not todo:
            return False
        event = todo[-1]
        if event not in plans:
            plans[event] = reroute(self._topology, fabric, now, event)
        todo.pop()
        return True

    def plan(self, event: Event) -> Reroute:
        """The answer to a failure. It is computed now if it is not prepared yet.

        Raises:
            KeyError: the topology has no such switch or cable.
        """
        found = self._plans.get(event)
        if found is None:
            if event not in set(events(self._topology)):
                raise KeyError(event)
            fabric, now = self._now
            found = reroute(self._topology, fabric, now, event)
            self._plans[event] = found
        return found

    def start(self) -> None:
        """Start a thread that computes answers until `stop`."""
        self._thread = threading.Thread(target=self._work, name="failover", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._stopped:
            if not self.step():
                self._wake.wait()
                self._wake.clear()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
