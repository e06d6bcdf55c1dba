# SPDX-License-Identifier: Apache-2.0
"""The protocol of a policy's routing: flows on a fabric in, a path per flow out, or "left to the hash"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from controller.routing.cable_fabric import CableFabric, cable_fabric
from controller.routing.commodities import Commodities, FlowPaths
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.greedy import Commodity, Overlap
from controller.routing.paths import Forwarding, Path
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class LeftToHash:
    """The answer of a routing that chooses no path: ECMP's hash spreads the flows."""


LEFT_TO_HASH = LeftToHash()


@dataclass(frozen=True, slots=True)
class Routes:
    """The path of each flow by name, host to host. Source ports are given in this order. A flow that is
    missing here gets no path: the switches' hash decides where it goes."""

    paths: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class ArrayRoutes(Routes):
    """Paths that `RoutingProblem.routes` made from `choice`, the fabric's number of each flow's path, shape
    (flows,); -1: none. With `alive` every choice is a live path of `fabric`."""

    paths: FlowPaths
    choice: Ints
    fabric: Fabric
    alive: bool = False


@dataclass(frozen=True)
class RoutingProblem:
    """The flows to route and the fabric that they cross, as names and (`fabric`, `demand`) as arrays.

    `flows` are the elephants whose source port the plan may choose or knows; `weight` of a flow is the
    highest rate of its job's profile, in bit/s, and `owner` the job. `forwarding` holds the switches'
    entries under `failures`. `previous` holds the paths in force by flow. `overlap(a, b)` says how much two
    jobs on one link slow each other down, from 0 to 1, the same for (b, a); None: fully, whenever they share
    a link.
    `intensities()` gives CRUX's intensity by job, from the traffic at the jobs' hosts (CRUX, section 4.1);
    `distances()` gives by job the hops of its farthest flow: 2 inside a leaf, 4 below a common spine, else 6.
    `ports` (flows,) are the source ports in force, -1: none; None: not known.
    """

    topology: Topology
    forwarding: Forwarding
    flows: Sequence[Commodity]
    failures: Failures
    previous: Mapping[str, Path]
    overlap: Overlap | None
    intensities: Callable[[], Mapping[str, float]]
    distances: Callable[[], Mapping[str, float]]
    seed: int
    ports: Ints | None = None

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric as arrays, without what is down."""
        return fabric_of(self.topology, self.failures)

    @cached_property
    def cables(self) -> CableFabric | None:
        """The fabric with each cable as a link of its own, where several join two switches of a leaf-spine
        whose hash is known; else None."""
        if not self.topology.bundles or not self.topology.hash.known:
            return None
        return cable_fabric(self.topology, self.failures.links, self.failures.switches)

    @cached_property
    def columns(self) -> Commodities:
        """The flows as columns."""
        return Commodities.of(self.topology, self.flows)

    @cached_property
    def demand(self) -> LeafDemand:
        """The flows as arrays, in the order of `flows`: source leaf, destination leaf and weight."""
        return self.columns.demand(self.fabric)

    @cached_property
    def held(self) -> FlowPaths:
        """The paths in force that join the hosts of their flows, as columns."""
        return FlowPaths.of(self.columns, self.previous)

    def routes(
        self, choice: Ints, order: NDArray[np.intp] | None = None, fabric: Fabric | None = None
    ) -> ArrayRoutes:
        """Turn an array answer, shape (flows,), into paths. A choice is the fabric's number of a path
        (`Fabric.candidates`); -1 stands for a flow without a path. `order` (flows,) is the order of the
        paths, by default that of the flows. `fabric` numbers the paths; None: that of the problem."""
        fabric = self.fabric if fabric is None else fabric
        chosen = np.where(self.cut_off, -1, choice).astype(np.int32)
        numbers = self.columns.numbers
        hops = numbers.hops_of_choices(fabric, self.demand, chosen)
        paths = FlowPaths(self.columns, hops, np.arange(len(chosen)) if order is None else order)
        return ArrayRoutes(paths, chosen, fabric, self.live(chosen, fabric))

    @property
    def weights(self) -> Floats:
        """The weight of each flow in bit/s, (flows,)."""
        return self.columns.weight

    @cached_property
    def owners(self) -> tuple[Ints, Floats | None]:
        """The number of each flow's owner, (flows,), and `overlap` between owners, (owners, owners), with
        ones on the diagonal; None where all traffic meets."""
        owner, names = self.columns.owner, self.columns.owners
        if self.overlap is None:
            return owner, None
        part = np.ones((len(names), len(names)))
        for i, a in enumerate(names):
            for j, b in enumerate(names[:i]):
                part[i, j] = part[j, i] = self.overlap(a, b)
        return owner, part

    def live(self, choice: Ints, fabric: Fabric) -> bool:
        """Whether every choice is -1 or the fabric's number of a live path."""
        far = (choice >= 0) & (self.demand.src != self.demand.dst)
        try:
            links = fabric.links(self.demand.take(far), choice[far])
        except IndexError:
            return False
        return bool((fabric.capacity[links] > 0).all(where=links >= 0, axis=None))

    @cached_property
    def cut_off(self) -> NDArray[np.bool_]:
        """Which flows start or end at a host without a live cable or leaf, (flows,)."""
        if not self.failures.links and not self.failures.switches:
            return np.zeros(len(self.flows), dtype=np.bool_)
        dead = np.array([self.failures.cuts_off(h) for h in self.topology.hosts], dtype=np.bool_)
        cut: NDArray[np.bool_] = dead[self.columns.src] | dead[self.columns.dst]
        return cut


@runtime_checkable
class Routing(Protocol):
    """Where each flow goes. Subclass it as a frozen dataclass whose fields are the routing's options.

    The properties have defaults, which a subclass overrides by a field or a property of the same name.
    """

    def route(self, problem: RoutingProblem) -> Routes | LeftToHash:
        """Choose the path of each flow.

        Raises:
            UnsuitableError: the routing cannot handle this fabric or these flows; the message says why.
        """

    @property
    def chooses_paths(self) -> bool:
        """False for a routing that always answers LEFT_TO_HASH."""
        return True

    @property
    def max_moves(self) -> int | None:
        """How many flows that could stay on their path a new plan may move; None: any number."""
        return None

    @property
    def cap_epsilon(self) -> float | None:
        """Agents hold each flow to (1 + cap_epsilon) times its max-min fair share; None: no rate caps."""
        return None

    @property
    def lookahead(self) -> bool:
        """Whether the live controller assigns paths anew before each foreseen start or end of a phase."""
        return False
