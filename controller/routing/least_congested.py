# SPDX-License-Identifier: Apache-2.0
"""The planner's own choice of paths: greedy, stable from plan to plan, aware of owners that take turns.

Everything is arrays, and the loops are compiled. `controller/routing/greedy.py` is the same greedy choice in
plain Python, by the names of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms.base import Options, loads
from controller.routing.algorithms.greedy import CHUNK, chosen
from controller.routing.algorithms.optimal import optimal
from controller.routing.backend import backend
from controller.routing.cable_fabric import CableFabric
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand, TwoTier, UnsuitableError
from controller.routing.greedy import Congestion
from controller.routing.incremental import rebalanced
from controller.routing.relief import relieved


@dataclass(frozen=True)
class OwnedDemand:
    """Flows between different leaves, and whose they are.

    `demand` has a weight in bit/s for each flow. `owner` (flows,) counts from 0. `overlap` (owners, owners)
    is the part of the traffic of the second owner, 0 to 1, that meets traffic of the first in time, with
    ones on the diagonal; None: all traffic meets. `held` (flows,) is the choice of a flow that has a live
    path already, -1 for the others.
    """

    demand: LeafDemand
    owner: Ints
    held: Ints
    overlap: Floats | None = None

    def take(self, index: NDArray[np.intp]) -> OwnedDemand:
        """The flows at these indices."""
        return OwnedDemand(self.demand.take(index), self.owner[index], self.held[index], self.overlap)

    @property
    def unweighted(self) -> LeafDemand:
        """The flows with `weight` None where all weights are equal, as edge colouring wants them."""
        weight = self.demand.weights
        equal = not len(weight) or weight.min() == weight.max()
        return replace(self.demand, weight=None) if equal else self.demand


def least_congested(
    fabric: Fabric,
    flows: OwnedDemand,
    *,
    balance: bool = False,
    max_moves: int | None = None,
    plain: bool = False,
) -> Ints:
    """The choice of each flow, in order; -1 without a live path.

    The function compares several sets of choices and takes the least congested one. Of two equally congested
    sets it takes the one that moves fewer flows.

    1. Every held flow stays; the others are routed around it.
    2. All flows are routed again by the greedy algorithm ("Routing for Large ML Models", Algorithm 1).
    3. With `balance`, on a uniform leaf-spine: the held choices, balanced by Kempe chains; with parallel
       cables by a search that moves single flows.
    4. With `balance`, on a uniform Clos: the exact optimum by edge colouring.
    5. With `balance`, where links or flows are not alike: the best set so far after a search that moves
       single flows (`relieved`).

    A set that moves more than `max_moves` of the held flows is not taken.
    """
    held = flows.held >= 0

    def moves(choice: Ints) -> int:
        return int((choice[held] != flows.held[held]).sum())

    def legal(choice: Ints) -> bool:
        return max_moves is None or moves(choice) <= max_moves

    def load(choice: Ints) -> float:
        return congestion_of(fabric, flows, choice).max_load

    best = np.full(len(flows.demand), -1, dtype=np.int32)
    if held.any():
        least_load = lower_bound(fabric, flows.demand) if balance and flows.overlap is None else 0.0
        few = None
        if least_load > 0 and isinstance(fabric, TwoTier):
            few = _rebalanced(fabric, flows, max_moves, plain)
            if few is not None and not moves(few) and _even(fabric, flows.demand, few):
                # Nothing is less congested, and no other flow moves.
                return few
        best = greedy_around(fabric, flows, plain=plain)
        congestion = congestion_of(fabric, flows, best)
        if least_load > 0:
            # Where few moves reach the lower bound, no other way is tried.
            if congestion.max_load <= least_load:
                return best
            few = _rebalanced(fabric, flows, max_moves, plain) if few is None else few
            if few is not None and legal(few) and load(few) <= least_load:
                return few
        if not (held.all() and max_moves == 0):
            anew = greedy_around(fabric, replace(flows, held=np.full_like(flows.held, -1)), plain=plain)
            if legal(anew) and (found := congestion_of(fabric, flows, anew)) < congestion:
                best, congestion = anew, found
    else:
        best = greedy_around(fabric, flows, plain=plain)
        congestion = congestion_of(fabric, flows, best)
    if not balance:
        return best
    least = congestion.max_load, moves(best)
    alike = True
    for way in (_coloured, _rebalanced):
        choice = way(fabric, flows, max_moves, plain)
        if choice is None:
            alike = alike and way is not _coloured
            continue
        cost = load(choice), moves(choice)
        if legal(choice) and cost < least:
            best, least = choice, cost
        if way is _coloured and flows.overlap is None and least == (cost[0], 0):
            # Nothing is less congested than the optimum, and nothing moves less.
            break
    if not alike and max_moves != 0:
        choice = relieved(fabric, flows.demand, best, flows.owner, flows.overlap, plain=plain)
        if legal(choice) and load(choice) < least[0]:
            best = choice
    return best


def lower_bound(fabric: Fabric, demand: LeafDemand) -> float:
    """A largest relative link load that no choices are below, where all flows and all live links of a
    leaf-spine are alike; elsewhere 0, which says nothing."""
    weight, live = demand.weights, fabric.capacity[fabric.capacity > 0]
    if (
        not isinstance(fabric, TwoTier | CableFabric)
        or not len(weight)
        or not len(live)
        or weight.min() < weight.max()
        or live.min() < live.max()
    ):
        return 0.0
    return round(fabric.bound(demand) * float(weight[0] / live[0]), 9)


def _even(fabric: TwoTier, demand: LeafDemand, choice: Ints) -> bool:
    """Whether the numbers of flows on the live links of each leaf, out or in, differ by at most one."""
    count = loads(fabric, demand, choice).reshape(2, *fabric.up.shape)
    # Links that are down carry nothing.
    least = np.where(fabric.live, count, len(demand)).min(axis=2, initial=len(demand))
    return bool((count.max(axis=2, initial=0) <= least + 1).all())


def _coloured(fabric: Fabric, flows: OwnedDemand, max_moves: int | None, plain: bool) -> Ints | None:
    try:
        if isinstance(fabric, CableFabric):
            if fabric.matched is None:
                return None
            found = optimal(fabric.matched, flows.unweighted, Options(plain=plain))
            return fabric.of_columns(flows.demand, found)
        return optimal(fabric, flows.unweighted, Options(plain=plain))
    except UnsuitableError:
        return None


def _rebalanced(fabric: Fabric, flows: OwnedDemand, max_moves: int | None, plain: bool) -> Ints | None:
    if not (flows.held >= 0).any():
        return None
    if isinstance(fabric, CableFabric):
        held = greedy_around(fabric, flows, plain=plain)
        return relieved(fabric, flows.demand, held, flows.owner, flows.overlap, plain=plain)
    try:
        return rebalanced(fabric, flows.unweighted, flows.held, max_moves, plain=plain)
    except UnsuitableError:
        return None


def greedy_around(fabric: Fabric, flows: OwnedDemand, *, plain: bool = False) -> Ints:
    """Held flows stay; each of the others, in order, takes the path whose largest load is smallest.

    Loads are relative to capacity. A tie goes to the smaller sum of loads, then to the first path.
    """
    choice = flows.held.astype(np.int32)
    free = np.flatnonzero(choice < 0)
    overlap = np.ones((1, 1)) if flows.overlap is None else flows.overlap
    felt = np.ascontiguousarray(overlap @ _carried(fabric, flows, choice))
    owner = np.zeros_like(flows.owner) if flows.overlap is None else flows.owner
    for start in range(0, len(free), CHUNK):
        index = free[start : start + CHUNK]
        some = flows.demand.take(index)
        ways = fabric.candidates(some)
        row = np.empty(len(some), dtype=np.int32)
        backend(plain).greedy_by_owner(
            ways.pair,
            ways.first,
            ways.links,
            some.weights,
            owner[index],
            fabric.capacity,
            overlap,
            felt,
            row,
        )
        choice[index] = chosen(ways.first, ways.pair, ways.choice, row)
    return choice


def _carried(fabric: Fabric, flows: OwnedDemand, choice: Ints) -> Floats:
    """The load of every directed link in bit/s by owner, (owners, links); in one row without `overlap`."""
    if flows.overlap is None:
        return loads(fabric, flows.demand, choice, flows.demand.weights)[None]
    links = fabric.links(flows.demand, choice)
    flow, hop = np.nonzero(links >= 0)
    size, owners = len(fabric.capacity), len(flows.overlap)
    place = flows.owner[flow].astype(np.int64) * size + links[flow, hop]
    carried = np.bincount(place, flows.demand.weights[flow], owners * size).astype(np.float64)
    return carried.reshape(owners, size)


def congestion_of(fabric: Fabric, flows: OwnedDemand, choice: Ints) -> Congestion:
    """The congestion under these choices: each owner on a link feels what meets its own traffic in time."""
    carried = _carried(fabric, flows, choice)
    if flows.overlap is None:
        felt = carried[0]
    else:
        felt = np.where(carried > 0, flows.overlap @ carried, 0.0).max(axis=0, initial=0.0)
    relative = np.divide(felt, fabric.capacity, out=np.zeros_like(felt), where=fabric.capacity > 0)
    return Congestion(round(float(relative.max(initial=0.0)), 9), round(float(relative @ relative), 9))
