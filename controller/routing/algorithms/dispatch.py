# SPDX-License-Identifier: Apache-2.0
"""Runs an algorithm on flows of which some stay inside their leaf; `auto`, which picks an algorithm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.routing.algorithms.base import Algorithm, Options
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.optimal import optimal
from controller.routing.fabric import Fabric, Ints, LeafDemand, UnsuitableError


def auto(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """`optimal` where its conditions hold, `greedy` otherwise."""
    try:
        return optimal(fabric, demand, options)
    except UnsuitableError:
        return greedy(fabric, demand, options)


def solve(algorithm: Algorithm, fabric: Fabric, demand: LeafDemand, options: Options | None = None) -> Ints:
    """Choices for all flows, shape (flows,): 0 inside a leaf, -1 without a live path.

    Raises:
        UnsuitableError: the algorithm's conditions do not hold.
    """
    options = options or Options()
    between = demand.src != demand.dst
    if between.all():
        return algorithm(fabric, demand, options)
    choice = np.zeros(len(demand), dtype=np.int32)
    choice[between] = algorithm(
        fabric,
        demand.take(between),
        replace(
            options,
            intensity=None if options.intensity is None else options.intensity[between],
            kept=None if options.kept is None else options.kept[between],
        ),
    )
    return choice
