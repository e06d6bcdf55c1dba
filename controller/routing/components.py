# SPDX-License-Identifier: Apache-2.0
"""Split a demand into independent parts: flows of different parts can never share a link.

"Routing for Large ML Models", section 3.4.3. Two flows can share an uplink only if they have the same source
leaf (on three tiers: source pod), and a downlink only if they have the same destination. So the parts
are the connected components of the bipartite graph whose edges are the flows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import Fabric, LeafDemand, TwoTier
from controller.routing.three_tier import ThreeTier


def components(fabric: Fabric, demand: LeafDemand) -> list[NDArray[np.intp]]:
    """The indices of the flows of each part, ordered by first flow. A generic fabric is one part."""
    if isinstance(fabric, TwoTier):
        src, dst = demand.src, demand.dst
    elif isinstance(fabric, ThreeTier):
        src, dst = fabric.pods(demand.src), fabric.pods(demand.dst)
    else:
        return [np.arange(len(demand))] if len(demand) else []
    size = len(fabric.leaves)
    # Label propagation: each edge takes the smaller label of its two ends, until no label changes.
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
