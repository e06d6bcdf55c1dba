# SPDX-License-Identifier: Apache-2.0
"""The protocol of a policy's routing: flows on a fabric in, a path per flow out, or "left to the hash"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand
from controller.routing.from_topology import Failures, demand_of, fabric_of
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
    """Paths that `RoutingProblem.routes` made from choices, shape (flows,). With `alive` every choice is a
    live path of the fabric."""

    alive: bool = False


@dataclass(frozen=True)
class RoutingProblem:
    """The flows to route and the fabric that they cross, as names and (`fabric`, `demand`) as arrays.

    `flows` are the elephants whose source port the plan may choose or knows; `weight` of a flow is the
    highest rate of its job's profile, in bit/s, and `owner` the job. `forwarding` holds the switches'
    entries under `failures`. `previous` holds the paths in force by flow. `overlap(a, b)` says how much two
    jobs on one link slow each other down, from 0 to 1; None: fully, whenever they share a link.
    `intensities()` gives CRUX's intensity by job, from the traffic at the jobs' hosts (CRUX, section 4.1);
    `distances()` gives by job the hops of its farthest flow: 2 inside a leaf, 4 below a common spine, else 6.
    """

    topology: Topology
    forwarding: Forwarding
    flows: tuple[Commodity, ...]
    failures: Failures
    previous: Mapping[str, Path]
    overlap: Overlap | None
    intensities: Callable[[], Mapping[str, float]]
    distances: Callable[[], Mapping[str, float]]
    seed: int

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric as arrays, without what is down."""
        return fabric_of(self.topology, self.failures)

    @cached_property
    def demand(self) -> LeafDemand:
        """The flows as arrays, in the order of `flows`: source leaf, destination leaf and weight."""
        host = self.topology.host
        ends = [(host[f.src], host[f.dst]) for f in self.flows]
        return demand_of(self.fabric, ends, self.weights)

    def routes(self, choice: Ints, order: NDArray[np.intp] | None = None) -> ArrayRoutes:
        """Turn an array answer, shape (flows,), into paths. A choice is the fabric's number of a path
        (`Fabric.candidates`); -1 stands for a flow without a path. `order` (flows,) is the order of the
        paths, by default that of the flows."""
        found: dict[str, Path] = {}
        src, dst, chosen = self.demand.src.tolist(), self.demand.dst.tolist(), choice.tolist()
        nodes, cut = self.fabric.nodes, self.cut_off.tolist()
        for i in range(len(chosen)) if order is None else order.tolist():
            if chosen[i] >= 0 and not cut[i]:
                f = self.flows[i]
                found[f.name] = (f.src, *nodes(src[i], dst[i], chosen[i]), f.dst)
        return ArrayRoutes(found, self.live(choice))

    @cached_property
    def weights(self) -> Floats:
        """The weight of each flow in bit/s, (flows,)."""
        return np.array([f.weight for f in self.flows], dtype=np.float64)

    @cached_property
    def owners(self) -> tuple[Ints, Floats | None]:
        """The number of each flow's owner, (flows,), and `overlap` between owners, (owners, owners), with
        ones on the diagonal; None where all traffic meets."""
        number: dict[str, int] = {}
        owner = np.array([number.setdefault(f.owner, len(number)) for f in self.flows], dtype=np.int32)
        if self.overlap is None:
            return owner, None
        part = np.ones((len(number), len(number)))
        for a, i in number.items():
            for b, j in number.items():
                if i != j:
                    part[i, j] = self.overlap(a, b)
        return owner, part

    def live(self, choice: Ints) -> bool:
        """Whether every choice is -1 or a number of a live path."""
        far = (choice >= 0) & (self.demand.src != self.demand.dst)
        try:
            links = self.fabric.links(self.demand.take(far), choice[far])
        except IndexError:
            return False
        return bool((self.fabric.capacity[links] > 0).all(where=links >= 0, axis=None))

    @cached_property
    def cut_off(self) -> NDArray[np.bool_]:
        """Which flows start or end at a host without a live cable or leaf, (flows,)."""
        if not self.failures.links and not self.failures.switches:
            return np.zeros(len(self.flows), dtype=np.bool_)
        dead = {h.name for h in self.topology.hosts if self.failures.cuts_off(h)}
        return np.array([f.src in dead or f.dst in dead for f in self.flows], dtype=np.bool_)


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
