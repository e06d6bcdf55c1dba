# SPDX-License-Identifier: Apache-2.0
"""`ecmp`: what hashing with a random source port gives."""

from __future__ import annotations

import numpy as np

from controller.routing.algorithms.base import Options
from controller.routing.algorithms.greedy import CHUNK, chosen
from controller.routing.fabric import Fabric, Ints, LeafDemand


def ecmp(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """A random live path for each flow, all as likely: what the hash of a random port comes to."""
    draw = np.random.default_rng(options.seed).random(len(demand))
    result = np.empty(len(demand), dtype=np.int32)
    for start in range(0, len(demand), CHUNK):
        some = np.arange(start, min(start + CHUNK, len(demand)))
        ways = fabric.candidates(demand.take(some))
        count = ways.first[ways.pair + 1] - ways.first[ways.pair]
        row = np.where(count > 0, (draw[some] * count).astype(np.int32), -1).astype(np.int32)
        result[some] = chosen(ways.first, ways.pair, ways.choice, row)
    return result
