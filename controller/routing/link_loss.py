# SPDX-License-Identifier: Apache-2.0
"""New choices after the loss of one link of a leaf-spine, by Kempe chains.

The flows of the lost link move to other spines. Where every spine that is free at one of a flow's leaves is
taken at the other, a chain of other flows exchanges two spines. The greedy algorithm would load a link with
one flow more than needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms.optimal import live_spines
from controller.routing.fabric import Fabric, Ints, LeafDemand, TwoTier, UnsuitableError
from controller.routing.incremental import IncrementalColouring

CHAIN = 128
"""No flow of a lost link moves more other flows than this. Chosen: on 64 leaves x 32 spines at full load the
chains are shorter. A flow that moves once loses less than a job of which a link carries two flows."""


class LinkLosses:
    """The choices after each single loss of a link, for one assignment in force.

    The colouring of the assignment is made once. For a loss, a copy of it has the lost link full: flows to a
    leaf that does not exist take its place, so that no other flow moves there.
    """

    def __init__(self, fabric: Fabric, demand: LeafDemand, choice: Ints, *, plain: bool = False) -> None:
        """`choice` (flows,) is in force. Flows inside a leaf, or without a path, stay as they are.

        Raises:
            UnsuitableError: no leaf-spine, weights or links that differ, or several cables to a spine.
        """
        if not isinstance(fabric, TwoTier) or len(set(fabric.spines)) < len(fabric.spines):
            raise UnsuitableError("the fabric is no leaf-spine with single cables")
        if len(set(demand.weights.tolist())) > 1:
            raise UnsuitableError("the flows have different weights")
        self._flows = np.flatnonzero((demand.src != demand.dst) & (choice >= 0))
        far = demand.take(self._flows)
        self._choice, self._src, self._dst = choice, far.src, far.dst
        self._spines = live_spines(fabric, far) if len(far) else np.empty(0, dtype=np.int32)
        if len(self._spines) < 2:
            raise UnsuitableError("no flow can take another spine")
        leaves = len(fabric.leaves)
        self._nowhere = leaves
        rate = float(fabric.up[far.src[0], self._spines[0]])
        self._unit = float(far.weights[0]) / rate
        self._degree = np.maximum(*(np.bincount(ends, minlength=leaves) for ends in (far.src, far.dst)))
        self._colour = np.full(len(fabric.spines), -1, dtype=np.int32)
        self._colour[self._spines] = np.arange(len(self._spines))
        colour = self._colour[choice[self._flows]]
        loads = [np.zeros((leaves, len(self._spines)), dtype=np.int32) for _ in range(2)]
        for load, ends in zip(loads, (far.src, far.dst), strict=True):
            np.add.at(load, (ends, colour), 1)
        self._live = IncrementalColouring(leaves + 1, len(self._spines), cap=CHAIN, plain=plain)
        layers = tuple(load.max(axis=1).astype(np.int32) for load in loads)
        self._numbers = self._live.seat_all(far.src, far.dst, colour, (layers[0], layers[1]))

    def least_load(self, leaf: int) -> float:
        """A largest relative link load that no choices are below after the loss of a link of this leaf."""
        spines = len(self._spines)
        others = -(-self._degree // spines)
        return self._unit * max(int(others.max()), -(-int(self._degree[leaf]) // (spines - 1)))

    def choices(self, leaf: int, spine: int) -> Ints | None:
        """The choices of all flows, (flows,), after the loss of this link; None if no chains of CHAIN flows
        clear it. Where links carry one flow each, chains always do, but for their length."""
        colour = int(self._colour[spine])
        if colour < 0:
            return None
        lost = self._choice[self._flows] == spine
        lost &= (self._src == leaf) | (self._dst == leaf)
        index = np.flatnonzero(lost)
        live, numbers = self._live.copy(), self._numbers.astype(np.int64)
        live.take_off(numbers[index])
        ends = ((leaf, self._nowhere), (self._nowhere, leaf))
        blocks = [live.seat(a, b, colour) for a, b in ends for _ in range(live.layers)]
        # Chains begin at the other leaf of a flow, so that they leave alone the flows in its place.
        for near, far in ((self._src, self._dst), (self._dst, self._src)):
            own = index[near[index] == leaf]
            numbers[own] = live.arrive_all(near[own], far[own], CHAIN * len(own))
            live = live.transposed()
        if (live.spines(np.array(blocks, dtype=np.int64)) != colour).any():
            return None
        found = live.spines(numbers)
        if self._uses(found, leaf, colour):
            return None
        result = self._choice.copy()
        result[self._flows] = self._spines[found]
        return result

    def _uses(self, colour: Ints, leaf: int, lost: int) -> bool:
        """Whether a flow of the leaf has the lost colour."""
        own: NDArray[np.bool_] = (self._src == leaf) | (self._dst == leaf)
        return bool((own & (colour == lost)).any())
