# SPDX-License-Identifier: Apache-2.0
"""The built-in routings of policies, each with its own options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.routing.algorithms.annealing import annealing
from controller.routing.algorithms.base import ORDERS, Algorithm, Options
from controller.routing.algorithms.dispatch import auto, solve
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.ilp import ilp
from controller.routing.algorithms.optimal import optimal
from controller.routing.assign import SMALL, least_congested_paths
from controller.routing.fabric import Fabric, Ints, LeafDemand
from controller.routing.greedy import Commodity, connection_order
from controller.routing.protocol import LEFT_TO_HASH, LeftToHash, Routes, Routing, RoutingProblem

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
        options = Options(seed=problem.seed, plain=len(problem.flows) < SMALL)
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
    and Kempe chains are also tried where the fabric is a uniform Clos.
    """

    order: str = "connections"
    balance: bool = False
    max_moves: int | None = None
    cap_epsilon: float | None = None
    lookahead: bool = False

    def __post_init__(self) -> None:
        if self.order not in FLOW_ORDERS:
            raise ValueError(f"order {self.order!r} is not one of {', '.join(FLOW_ORDERS)}")
        if self.max_moves is not None and self.max_moves < 0:
            raise ValueError(f"max_moves must not be negative, not {self.max_moves}")
        check_cap_epsilon(self.cap_epsilon)

    def route(self, problem: RoutingProblem) -> Routes:
        """Each flow in turn to its least congested path; flows that can stay move only for a gain."""
        chosen = least_congested_paths(
            problem.topology,
            problem.forwarding,
            self._ordered(problem),
            down_links=problem.failures.links,
            previous=problem.previous,
            overlap=problem.overlap,
            failures=problem.failures if self.balance else None,
            max_moves=self.max_moves,
        )
        order = [c.name for c in self._ordered(problem)]
        return Routes({name: chosen[name] for name in order if name in chosen})

    def _ordered(self, problem: RoutingProblem) -> Sequence[Commodity]:
        if self.order == "connections":
            return connection_order(problem.topology, problem.flows)
        first = problem.intensities() if self.order == "intensity" else problem.distances()
        return sorted(problem.flows, key=lambda c: (-first[c.owner], c.owner))


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
    """Hedera's simulated annealing, as the routing paper compares to it."""

    def choices(self, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
        """The best paths that the annealing has seen."""
        return solve(annealing, fabric, demand, options)


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
