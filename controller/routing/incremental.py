# SPDX-License-Identifier: Apache-2.0
"""Incremental routing on a leaf-spine: flows arrive and leave, and few other flows move to another spine.

A colour is a spine (see `algorithms/optimal.py`). Kempe chains keep the edge colouring balanced.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms.optimal import live_spines
from controller.routing.backend import backend
from controller.routing.fabric import Fabric, Ints, LeafDemand, TwoTier, UnsuitableError

CHAIN = 16
"""No single arrival or departure moves more other flows than this."""


class IncrementalColouring:
    """The colouring of a uniform leaf-spine, kept up by Kempe chains.

    As long as no chain longer than `cap` is needed, each link of a leaf with d flows carries at most
    ceil(d / spines) of them. A flow that would need a longer one may load one link by one more. `flows` is
    how many are expected.
    """

    def __init__(
        self, leaves: int, spines: int, *, cap: int = 16, flows: int = 64, plain: bool = False
    ) -> None:
        if leaves < 1 or spines < 1 or cap < 0:
            raise ValueError("at least one leaf and one spine, and a cap that is not negative, are needed")
        self._leaves, self._spines, self._cap = leaves, spines, cap
        self._layers = 2
        self.moved = 0
        self._table = self._empty()
        room = max(flows, 64)
        self._ends = np.full((3, room), -1, dtype=np.int32)
        self._free = list(range(room - 1, -1, -1))
        self._published = self._ends[2].copy()
        kernels = backend(plain)
        self._arrive, self._arrive_all = kernels.arrive, kernels.arrive_all
        self._leave, self._seat_all = kernels.leave, kernels.seat_all

    def _empty(self) -> Ints:
        table = np.full((2 * self._leaves * self._layers, self._spines + 1), -1, dtype=np.int32)
        table[:, -1] = 0
        return table

    def arrive(self, src: int, dst: int, cap: int | None = None) -> int:
        """A flow comes from leaf to another leaf; returns its number, which `leave` takes.

        `cap` replaces the usual one for this flow. `moved` then says how many others it moved.
        """
        if not self._free:
            self._grow()
        flow = self._free.pop()
        cap = self._cap if cap is None else min(cap, self._cap)
        # A flow that finds no layer at its leaves gets more of them.
        while (moved := self._arrive(self._table, self._ends, flow, src, dst, self._layers, cap)) < 0:
            self._deepen()
        self.moved = int(moved)
        return flow

    def arrive_all(self, src: Ints, dst: Ints, most: int) -> Ints:
        """As `arrive`, for many flows (flows,) in order, which move at most `most` others together. Returns
        their numbers; `moved` says how many others they moved."""
        while len(self._free) < len(src):
            self._grow()
        numbers = np.array(self._free[: -len(src) - 1 : -1], dtype=np.int32)
        del self._free[len(self._free) - len(src) :]
        left, at = np.array([most], dtype=np.int32), 0
        src, dst = src.astype(np.int32), dst.astype(np.int32)
        while at < len(src):
            rest = numbers[at:], src[at:], dst[at:]
            at += int(self._arrive_all(self._table, self._ends, *rest, self._layers, self._cap, left))
            if at < len(src):
                self._deepen()
        self.moved = most - int(left[0])
        return numbers

    def seat(self, src: int, dst: int, spine: int) -> int:
        """A flow that is on a spine already, and moves no other; returns its number. There is always room."""
        while True:
            u, v = (
                _first_free(self._table[at : at + self._layers, spine], at)
                for at in (src * self._layers, (self._leaves + dst) * self._layers)
            )
            if u is not None and v is not None:
                break
            self._deepen()
        if not self._free:
            self._grow()
        flow = self._free.pop()
        self._ends[:, flow] = u, v, spine
        self._table[[u, v], spine] = flow
        self._table[[u, v], self._spines] += 1
        return flow

    def seat_all(self, src: Ints, dst: Ints, spine: Ints, layers: tuple[Ints, Ints]) -> Ints:
        """As `seat`, for many flows (flows,) in order.

        `layers` are, by leaf, how many flows of one spine may leave it, and how many may enter it. Returns
        the numbers of the flows, -1 for those that would be one more.
        """
        self.deepen(max(int(n.max(initial=1)) for n in layers))
        while len(self._free) < len(src):
            self._grow()
        numbers = np.array(self._free[: -len(src) - 1 : -1], dtype=np.int32)
        del self._free[len(self._free) - len(src) :]
        given = numbers.copy()
        out, into = layers
        self._seat_all(self._table, self._ends, numbers, src, dst, spine, out, into, self._layers)
        self._free += given[numbers < 0].tolist()[::-1]
        return numbers

    def copy(self) -> IncrementalColouring:
        """A colouring of its own that begins with these flows."""
        other = copy(self)
        other._table, other._ends = self._table.copy(), self._ends.copy()
        other._free = list(self._free)
        return other

    def transposed(self) -> IncrementalColouring:
        """A colouring of its own with all flows the other way round, under the same numbers."""
        other, half = self.copy(), len(self._table) // 2
        other._table = np.concatenate((self._table[half:], self._table[:half]))
        there = self._ends[2] >= 0
        other._ends[0] = np.where(there, self._ends[1] - half, -1)
        other._ends[1] = np.where(there, self._ends[0] + half, -1)
        return other

    @property
    def layers(self) -> int:
        """How many flows of one spine have room at every leaf."""
        return self._layers

    def take_off(self, flows: NDArray[np.int64]) -> None:
        """These flows go, and no other one moves."""
        colour = self._ends[2, flows]
        for vertex in self._ends[:2, flows]:
            self._table[vertex, colour] = -1
            np.subtract.at(self._table[:, -1], vertex, 1)
        self._ends[2, flows] = -1
        self._free += flows.tolist()

    def deepen(self, layers: int) -> None:
        """Have room for so many flows of one spine at every leaf."""
        while self._layers < layers:
            self._deepen()

    def leave(self, flow: int) -> None:
        """A flow goes; its number may be given to another.

        Raises:
            KeyError: no flow has this number.
        """
        if not 0 <= flow < self._ends.shape[1] or self._ends[2, flow] < 0:
            raise KeyError(f"no flow {flow}")
        self._leave(self._table, self._ends, flow, self._layers, self._cap)
        self._free.append(flow)

    def spine(self, flow: int) -> int:
        """The spine of a flow; -1 if there is no such flow."""
        return int(self._ends[2, flow])

    def spines(self, flows: NDArray[np.int64]) -> Ints:
        """The spine of each of these flows, (flows,)."""
        found: Ints = self._ends[2, flows]
        return found

    def changes(self) -> Ints:
        """The flows whose spine is another than when this was last called: what has to be pushed."""
        changed = np.flatnonzero(self._published != self._ends[2]).astype(np.int32)
        self._published = self._ends[2].copy()
        return changed

    def loads(self) -> Ints:
        """Flows per link, (up or down, leaf, spine)."""
        full = self._table[:, :-1] >= 0
        by_leaf = full.reshape(2, self._leaves, self._layers, self._spines)
        carried: Ints = by_leaf.sum(axis=2).astype(np.int32)
        return carried

    def _grow(self) -> None:
        size = self._ends.shape[1]
        more = np.full((3, size), -1, dtype=np.int32)
        self._ends = np.ascontiguousarray(np.concatenate((self._ends, more), axis=1))
        self._published = np.concatenate((self._published, more[2]))
        self._free = [*range(2 * size - 1, size - 1, -1), *self._free]

    def _deepen(self) -> None:
        old, layers = self._table, self._layers
        self._layers = 2 * layers
        self._table = self._empty()
        index = np.arange(len(old))
        moved = index // layers * self._layers + index % layers
        self._table[moved] = old
        there = self._ends[2] >= 0
        self._ends[:2, there] = moved[self._ends[:2, there]]


def _first_free(column: Ints, first: int) -> int | None:
    """The number of the first row without a flow, where the rows of `column` count from `first`."""
    free = column < 0
    row = int(free.argmax()) if len(free) else 0
    return first + row if len(free) and free[row] else None


def rebalanced(
    fabric: Fabric, demand: LeafDemand, before: Ints, max_moves: int | None = None, *, plain: bool = False
) -> Ints:
    """Choices for flows between leaves; `before` (flows,) is where each was, -1 for one that is new.

    Every leaf with d flows and k live spines gets at most ceil(d / k) flows on a link, as far as chains of
    CHAIN and `max_moves` in all (None: no limit) allow; flows keep their spines otherwise.

    Raises:
        UnsuitableError: no leaf-spine, weights or links that differ, or several cables to a spine.
    """
    if not isinstance(fabric, TwoTier) or len(set(fabric.spines)) < len(fabric.spines):
        raise UnsuitableError("the fabric is no leaf-spine with single cables")
    weight = demand.weight
    if weight is not None and len(weight) and weight.min() != weight.max():
        raise UnsuitableError("the flows have different weights")
    if not len(demand):
        return np.empty(0, dtype=np.int32)
    spines = live_spines(fabric, demand)
    if not len(spines):
        return np.full(len(demand), -1, dtype=np.int32)
    leaves, k = len(fabric.leaves), len(spines)
    out, into = (-(-np.bincount(ends, minlength=leaves) // k) for ends in (demand.src, demand.dst))
    colour = np.full(len(fabric.spines), -1, dtype=np.int32)
    colour[spines] = np.arange(k)
    old = np.where(before >= 0, colour[before], -1)
    live = IncrementalColouring(leaves, k, cap=CHAIN, flows=len(demand), plain=plain)
    live.deepen(int(max(out.max(), into.max())))
    numbers = np.full(len(demand), -1, dtype=np.int64)
    held = np.flatnonzero(old >= 0)
    limits = out.astype(np.int32), into.astype(np.int32)
    seated = live.seat_all(demand.src[held], demand.dst[held], old[held].astype(np.int32), limits)
    numbers[held] = seated
    displaced = held[seated < 0].tolist()
    left = len(demand) if max_moves is None else max_moves
    for f in displaced:
        src, dst = int(demand.src[f]), int(demand.dst[f])
        if left > 0:
            numbers[f] = live.arrive(src, dst, left - 1)
            left -= live.moved + int(live.spine(int(numbers[f])) != old[f])
        else:
            numbers[f] = live.seat(src, dst, int(old[f]))
    new = np.flatnonzero(old < 0)
    numbers[new] = live.arrive_all(demand.src[new], demand.dst[new], max(left, 0))
    return spines[live.spines(numbers)]
