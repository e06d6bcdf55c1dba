# SPDX-License-Identifier: Apache-2.0
"""The built-in routings of policies, each with its own options."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms.annealing import annealing
from controller.routing.algorithms.base import ORDERS, Algorithm, Options, ordered
from controller.routing.algorithms.dispatch import auto, solve
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.ilp import ilp
from controller.routing.algorithms.optimal import optimal
from controller.routing.algorithms.published_annealing import published_annealing
from controller.routing.backend import plain_suffices
from controller.routing.cable_choices import cables_of_ports
from controller.routing.cable_fabric import CableFabric
from controller.routing.commodities import same_hops
from controller.routing.fabric import Fabric, Ints, LeafDemand, TwoTier
from controller.routing.least_congested import OwnedDemand, least_congested
from controller.routing.protocol import LEFT_TO_HASH, ArrayRoutes, LeftToHash, Routes, Routing, RoutingProblem
from controller.wire.rocev2 import ROCE_SOURCE_PORTS

FLOW_ORDERS = ("connections", "intensity", "distance")
"""The orders in which `LeastCongested` takes the flows."""


def check_cap_epsilon(value: float | None) -> None:
    """Raise ValueError for a rate-cap margin that is no number of 0 or more."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise ValueError(f"cap_epsilon must be 0 or more, not {value}")


class ArrayRouting(Routing):
    """A routing that is an array algorithm: `polyrhythm route --algorithm` runs it on a list of flows."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """The fabric's number of each flow's path, shape (flows,); 0 inside a leaf, -1 without a live path.

        Raises:
            UnsuitableError: the algorithm's conditions do not hold.
        """
        raise NotImplementedError

    def route(self, problem: RoutingProblem) -> Routes | LeftToHash:
        """The array answer as paths."""
        options = Options(seed=problem.seed, plain=plain_suffices(len(problem.flows)))
        return problem.routes(self.choices(problem.fabric, problem.demand, options))


@dataclass(frozen=True)
class Ecmp(ArrayRouting):
    """Leaves every flow to the switches' hash. As an array algorithm: a random live path for each flow."""

    cap_epsilon: float | None = None

    def __post_init__(self) -> None:
        check_cap_epsilon(self.cap_epsilon)

    @property
    def chooses_paths(self) -> bool:
        """No flow gets a path."""
        return False

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """Random live paths."""
        return solve(ecmp, fabric, demand, options)

    def route(self, problem: RoutingProblem) -> LeftToHash:
        """Left to the hash."""
        return LEFT_TO_HASH


@dataclass(frozen=True)
class LeastCongested(Routing):
    """The planner's own routing: greedy, stable from plan to plan, aware of jobs that share links in time.

    `order` says which flows choose first: "connections", those of the busiest leaves (the routing paper's
    published code); "intensity", those of the most intense job (CRUX, section 4.1); "distance", those of
    the job whose traffic goes farthest (TACCL* in CRUX, section 4.4). With `balance` the optimal colouring
    and Kempe chains are also tried where the fabric is a uniform Clos. With `spray`, switches spray packets
    where all NICs take them in any order and they then fill no link between switches.
    """

    order: str = "connections"
    balance: bool = False
    max_moves: int | None = None
    cap_epsilon: float | None = None
    lookahead: bool = False
    spray: bool = False

    def __post_init__(self) -> None:
        if self.order not in FLOW_ORDERS:
            raise ValueError(f"order {self.order!r} is not one of {', '.join(FLOW_ORDERS)}")
        if not isinstance(self.spray, bool):
            raise ValueError(f"spray is {self.spray!r}; legal: True or False")
        if self.max_moves is not None and self.max_moves < 0:
            raise ValueError(f"max_moves must not be negative, not {self.max_moves}")
        check_cap_epsilon(self.cap_epsilon)

    def route(self, problem: RoutingProblem) -> ArrayRoutes:
        """Each flow in turn to its least congested path; flows that can stay move only for a gain."""
        order, fabric = self._order(problem), problem.cables or bundled(problem.fabric)
        demand = LeafDemand(problem.demand.src, problem.demand.dst, problem.weights)
        far = order[(demand.src != demand.dst)[order] & ~problem.cut_off[order]]
        owner, overlap = problem.owners
        flows = OwnedDemand(demand.take(far), owner[far], held_choices(problem, fabric)[far], overlap)
        choice = np.zeros(len(demand), dtype=np.int32)
        choice[far] = least_congested(
            fabric, flows, balance=self.balance, max_moves=self.max_moves, plain=plain_suffices(len(far))
        )
        if isinstance(fabric, CableFabric):
            return problem.routes(choice, order, fabric)
        return problem.routes(first_cables(problem.fabric, fabric, choice), order)

    def _order(self, problem: RoutingProblem) -> NDArray[np.intp]:
        """The indices of the flows in the order in which they choose."""
        if self.order == "connections":
            return ordered(problem.demand, Options(order="connections"))
        first = problem.intensities() if self.order == "intensity" else problem.distances()
        rank = {n: i for i, n in enumerate(sorted(first, key=lambda n: (-first[n], n)))}
        flows = problem.columns
        of_owner = np.array([rank[name] for name in flows.owners], dtype=np.int64)
        return np.argsort(of_owner[flows.owner], kind="stable")


def bundled(fabric: Fabric) -> Fabric:
    """The fabric with all cables between two switches as one link, as a path by names has them."""
    if not isinstance(fabric, TwoTier) or len(set(fabric.spines)) == len(fabric.spines):
        return fabric
    spines = tuple(dict.fromkeys(fabric.spines))
    column = {name: i for i, name in enumerate(spines)}
    up = np.zeros((len(fabric.leaves), len(spines)))
    for i, name in enumerate(fabric.spines):
        up[:, column[name]] += fabric.up[:, i]
    return TwoTier(fabric.leaves, spines, up)


def first_cables(fabric: Fabric, bundle: Fabric, choice: Ints) -> Ints:
    """The choices (flows,) of `bundled(fabric)` as choices of the fabric: the first cable of each bundle."""
    if bundle is fabric or not isinstance(fabric, TwoTier) or not isinstance(bundle, TwoTier):
        return choice
    first = np.array([fabric.spines.index(name) for name in bundle.spines] or [0], dtype=np.int32)
    return np.where(choice >= 0, first[choice], -1).astype(np.int32)


def held_choices(problem: RoutingProblem, fabric: Fabric) -> Ints:
    """The choice of each flow whose previous path is alive, shape (flows,); -1 for the others."""
    if not problem.previous:
        return np.full(len(problem.flows), -1, dtype=np.int32)
    if isinstance(fabric, CableFabric):
        return _held_cables(problem, fabric)
    choice = problem.columns.numbers.choices_of_hops(fabric, problem.demand, problem.held.hops)
    if not len(fabric.capacity):
        return np.full_like(choice, -1)
    if fabric.capacity.min() > 0:
        return choice
    links = fabric.links(problem.demand, choice)
    alive = (fabric.capacity[links] > 0).all(where=links >= 0, axis=1)
    return np.where(alive, choice, -1).astype(np.int32)


def _held_cables(problem: RoutingProblem, fabric: CableFabric) -> Ints:
    """As `held_choices`: the two cables of each flow whose source port leads along its previous path."""
    flows, demand, hops = problem.columns, problem.demand, problem.held.hops
    ports = np.full(len(flows), -1, dtype=np.int32) if problem.ports is None else problem.ports
    there = (hops[:, 0] >= 0) & (ports >= ROCE_SOURCE_PORTS.start)
    numbers = flows.numbers
    ends = numbers.source[flows.src], numbers.destination[flows.dst]
    legal = np.where(there, ports, ROCE_SOURCE_PORTS.start).astype(np.int32)
    choice = cables_of_ports(fabric, demand, *ends, legal, problem.topology.hash)
    same = same_hops(numbers.hops_of_choices(fabric, demand, choice), hops)
    return np.where(there & same, choice, -1).astype(np.int32)


@dataclass(frozen=True)
class _Ordered(ArrayRouting):
    """An array algorithm that takes the flows in an order (`controller.routing.algorithms.base.ORDERS`)."""

    order: str = "given"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order {self.order!r} is not one of {', '.join(ORDERS)}")

    def _solved(
        self, algorithm: Algorithm, fabric: Fabric, demand: LeafDemand, options: Options | None
    ) -> Ints:
        return solve(algorithm, fabric, demand, replace(options or Options(), order=self.order))


@dataclass(frozen=True)
class Greedy(_Ordered):
    """Algorithm 1 of the routing paper: each flow, in order, to the path that is least congested so far."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """Greedy paths."""
        return self._solved(greedy, fabric, demand, options)


@dataclass(frozen=True)
class Auto(_Ordered):
    """`Optimal` where its conditions hold, `Greedy` elsewhere."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """Optimal or greedy paths."""
        return self._solved(auto, fabric, demand, options)


@dataclass(frozen=True)
class Optimal(ArrayRouting):
    """Bipartite edge colouring by Euler splits: the exact optimum on a uniform Clos with equal flows."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """Optimal paths."""
        return solve(optimal, fabric, demand, options)


@dataclass(frozen=True)
class Annealing(ArrayRouting):
    """Simulated annealing with our energy and moves, which keeps the best state."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """The best paths that the annealing has seen."""
        return solve(annealing, fabric, demand, options)


@dataclass(frozen=True)
class PublishedAnnealing(ArrayRouting):
    """Simulated annealing as in the code that the routing paper's authors published."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """The paths at the end of the annealing, which need not be the best that it has seen."""
        return solve(published_annealing, fabric, demand, options)


@dataclass(frozen=True)
class Ilp(ArrayRouting):
    """The exact optimum by HiGHS (the optional extra `ilp`), or the best found in `limit_s` seconds."""

    limit_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.limit_s <= 3600:
            raise ValueError(f"limit_s must lie between 0 and 3600 s, not {self.limit_s}")

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """The solver's paths."""
        return solve(ilp, fabric, demand, replace(options or Options(), limit_s=self.limit_s))
