# SPDX-License-Identifier: Apache-2.0
"""The protocol of a policy's routing: flows on a fabric in, a path per flow out, or "left to the hash"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from controller.routing.fabric import Fabric, Ints, LeafDemand
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
        return demand_of(self.fabric, ends, np.array([f.weight for f in self.flows], dtype=np.float64))

    def routes(self, choice: Ints) -> Routes:
        """Turn an array answer, shape (flows,), into paths. A choice is the fabric's number of a path
        (`Fabric.candidates`); -1 stands for a flow without a path."""
        host = self.topology.host
        rows = zip(
            self.flows, self.demand.src.tolist(), self.demand.dst.tolist(), choice.tolist(), strict=True
        )
        return Routes(
            {
                f.name: (f.src, *self.fabric.nodes(u, v, c), f.dst)
                for f, u, v, c in rows
                if c >= 0
                and not self.failures.cuts_off(host[f.src])
                and not self.failures.cuts_off(host[f.dst])
            }
        )


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
