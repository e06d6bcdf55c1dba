# SPDX-License-Identifier: Apache-2.0
"""Independent parts of a demand: flows of different parts never meet on a link, whatever their paths.

Routing paper, 3.4.3. Flows meet going up if their source leaves (three tiers: pods) are the same, going
down if their destinations are. So the parts are the connected components of the bipartite graph whose
edges are the flows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import Fabric, LeafDemand, TwoTier
from controller.routing.three_tier import ThreeTier


def components(fabric: Fabric, demand: LeafDemand) -> list[NDArray[np.intp]]:
    """The flows of each part, in the order of their first flows; one part on a fabric without tiers."""
    if isinstance(fabric, TwoTier):
        src, dst = demand.src, demand.dst
    elif isinstance(fabric, ThreeTier):
        src, dst = fabric.pods(demand.src), fabric.pods(demand.dst)
    else:
        return [np.arange(len(demand))] if len(demand) else []
    size = len(fabric.leaves)
    # Spread the smallest label along all edges at once, and jump to the label's own, until nothing changes.
    label = np.arange(2 * size)
    edges = np.unique(np.stack((src, size + dst.astype(np.int64)), axis=1), axis=0)
    while True:
        low = label[edges].min(axis=1)
        new = label.copy()
        np.minimum.at(new, edges[:, 0], low)
        np.minimum.at(new, edges[:, 1], low)
        new = new[new]
        if (new == label).all():
            break
        label = new
    return _parts(label[src])


def _parts(label: NDArray[Any]) -> list[NDArray[np.intp]]:
    _, first, part = np.unique(label, return_index=True, return_inverse=True)
    order = np.argsort(part, kind="stable")
    pieces = np.split(order, np.cumsum(np.bincount(part))[:-1]) if len(label) else []
    return [pieces[i] for i in np.argsort(first)]
