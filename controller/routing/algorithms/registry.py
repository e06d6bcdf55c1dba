# SPDX-License-Identifier: Apache-2.0
"""The algorithms by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from controller.routing.algorithms.annealing import annealing
from controller.routing.algorithms.base import Algorithm, Options
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.ilp import ilp
from controller.routing.algorithms.optimal import optimal
from controller.routing.fabric import Fabric, Ints, LeafDemand, UnsuitableError


def auto(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """`optimal` where its conditions hold, `greedy` otherwise."""
    try:
        return optimal(fabric, demand, options)
    except UnsuitableError:
        return greedy(fabric, demand, options)


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "greedy": greedy,
        "optimal": optimal,
        "ecmp": ecmp,
        "annealing": annealing,
        "ilp": ilp,
        "auto": auto,
    }
)


def solve(name: str, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
    """Choices for all flows: 0 inside a leaf, -1 without a live path.

    Raises:
        ValueError: no algorithm of this name.
        UnsuitableError: its conditions do not hold.
    """
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm {name!r} is not one of {', '.join(ALGORITHMS)}")
    options = options or Options()
    between = demand.src != demand.dst
    if between.all():
        return ALGORITHMS[name](fabric, demand, options)
    choice = np.zeros(len(demand), dtype=np.int32)
    choice[between] = ALGORITHMS[name](
        fabric,
        demand.take(between),
        Options(
            seed=options.seed,
            order=options.order,
            intensity=None if options.intensity is None else options.intensity[between],
            kept=None if options.kept is None else options.kept[between],
            limit_s=options.limit_s,
            plain=options.plain,
        ),
    )
    return choice
