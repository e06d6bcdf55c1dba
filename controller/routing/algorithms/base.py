# SPDX-License-Identifier: Apache-2.0
"""What the algorithms share: options, the order of the flows, and the figure of merit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand

MAX_SEARCHED = 20_000
"""The most flows that annealing and the ILP take; the others know no such limit."""

ORDERS = ("given", "connections", "intensity", "largest")


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve. `order` is one of ORDERS, `intensity` (flows,) CRUX's for that order. `kept` (flows,)
    are choices that stand, -1 where a flow is free. `limit_s` bounds the ILP.
    `plain` asks for the reference instead of the kernels.
    """

    seed: int = 0
    order: str = "given"
    intensity: Floats | None = None
    kept: Ints | None = None
    limit_s: float = 10.0
    plain: bool = False


class Algorithm(Protocol):
    """Choices (flows,) for flows between different leaves; -1 where a flow has no live path."""

    def __call__(self, fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
        """Solve."""


def ordered(demand: LeafDemand, options: Options) -> NDArray[np.intp]:
    """The flows in the order in which a greedy algorithm takes them.

    "connections" is the routing paper's published code: descending by the sizes of the sets of flows that
    leave the source leaf and enter the destination leaf. "intensity" is CRUX 4.1: most intense first.
    Ties stay as given.
    """
    if options.order == "connections":
        out, into = np.bincount(demand.src), np.bincount(demand.dst)
        return np.lexsort((-into[demand.dst], -out[demand.src]))
    if options.order == "largest":
        return np.argsort(-demand.weights, kind="stable")
    if options.order == "intensity":
        if options.intensity is None:
            raise ValueError("the order `intensity` needs the flows' intensities")
        return np.argsort(-options.intensity, kind="stable")
    if options.order != "given":
        raise ValueError(f"order {options.order!r} is not one of {', '.join(ORDERS)}")
    return np.arange(len(demand))


def loads(fabric: Fabric, demand: LeafDemand, choice: Ints, weights: Floats | None = None) -> Floats:
    """What every directed link carries: flows, or the sum of `weights`."""
    links = fabric.links(demand, choice)
    weight = None if weights is None else np.repeat(weights, links.shape[1])
    # Place 0 gets what has no link.
    carried = np.bincount(links.ravel() + 1, weight, minlength=len(fabric.capacity) + 1)
    return carried[1:].astype(np.float64)


def congestion(fabric: Fabric, demand: LeafDemand, choice: Ints) -> float:
    """The largest load of a link relative to its capacity, where weights are bit/s."""
    carried = loads(fabric, demand, choice, demand.weights)
    relative = np.divide(carried, fabric.capacity, out=np.zeros_like(carried), where=fabric.capacity > 0)
    return float(relative.max(initial=0.0))
