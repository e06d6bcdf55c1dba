# SPDX-License-Identifier: Apache-2.0
"""Instances for the routing tests: fabrics, demands drawn at random, and loads counted plainly."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np

from controller.routing.fabric import Fabric, LeafDemand
from topo.generate import leaf_spine
from topo.graph import Host, Topology

GBPS = 1_000_000_000


def clos(leaves: int, spines: int, hosts: int) -> Topology:
    return leaf_spine(leaves, spines, hosts, host_bps=100 * GBPS, fabric_bps=100 * GBPS)


def demand(pairs: list[tuple[int, int]], weight: list[float] | None = None) -> LeafDemand:
    array = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return LeafDemand(array[:, 0].copy(), array[:, 1].copy(), None if weight is None else np.array(weight))


def between(leaves: int, count: int, rng: random.Random) -> LeafDemand:
    """Flows between different leaves, uniform."""
    return demand([tuple(rng.sample(range(leaves), 2)) for _ in range(count)])


def permutation(leaves: int, hosts: int, rng: random.Random) -> LeafDemand:
    """One flow out of every NIC and one into every NIC."""
    to = list(range(leaves * hosts))
    rng.shuffle(to)
    return demand([(i // hosts, j // hosts) for i, j in enumerate(to)])


def host_pairs(topology: Topology, count: int, rng: random.Random) -> list[tuple[Host, Host]]:
    return [tuple(rng.sample(topology.hosts, 2)) for _ in range(count)]


def carried(fabric: Fabric, flows: LeafDemand, choice: np.ndarray) -> Counter[tuple[str, str]]:
    """Flows per directed link, counted by the names on the paths."""
    load: Counter[tuple[str, str]] = Counter()
    for u, v, c in zip(flows.src.tolist(), flows.dst.tolist(), choice.tolist(), strict=True):
        if c >= 0:
            load.update(pairwise(fabric.nodes(u, v, c)))
    return load


def worst(fabric: Fabric, flows: LeafDemand, choice: np.ndarray) -> int:
    return max(carried(fabric, flows, choice).values(), default=0)
