# SPDX-License-Identifier: Apache-2.0
"""A balanced colouring kept up while flows come and go, moving few of the others.

Layer j of a leaf is a vertex that holds its flows up to k: one per colour. A leaf with d flows has
ceil(d / k) layers, so no colour occurs more often than that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.colour import flip
from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]


@kernel
def _chain(table: Ints, ends: Ints, v: int, a: int, b: int, cap: int) -> int:
    """The length of the Kempe chain from v by colour a, then b; cap + 1 if it is longer than cap."""
    length = 0
    e = table[v, a]
    while e >= 0:
        length += 1
        if length > cap:
            return length
        v = ends[1, e] if ends[0, e] == v else ends[0, e]
        a, b = b, a
        e = table[v, a]
    return length


@kernel
def _set(table: Ints, ends: Ints, e: int, u: int, v: int, colour: int) -> None:
    k = table.shape[1] - 1
    ends[0, e], ends[1, e], ends[2, e] = u, v, colour
    table[u, colour] = e
    table[v, colour] = e
    table[u, k] += 1
    table[v, k] += 1


@kernel
def _take(table: Ints, ends: Ints, e: int) -> None:
    k = table.shape[1] - 1
    for i in range(2):
        table[ends[i, e], ends[2, e]] = -1
        table[ends[i, e], k] -= 1


@kernel
def _join(table: Ints, ends: Ints, e: int, u: int, v: int, cap: int) -> int:
    """Put edge e between layers u and v, which have room; returns how many others moved, -1 if more
    than `cap` would have to."""
    k = table.shape[1] - 1
    best, best_a, best_b, tries = cap + 1, -1, -1, 0
    for a in range(k):
        if table[u, a] >= 0:
            continue
        if table[v, a] < 0:
            _set(table, ends, e, u, v, a)
            return 0
        if cap == 0:
            continue
        for b in range(k):
            if table[v, b] >= 0 or tries >= 4:
                continue
            tries += 1
            length = _chain(table, ends, v, a, b, best)
            if length < best:
                best, best_a, best_b = length, a, b
    if best_a < 0:
        return -1
    moved = flip(table, ends[0], ends[1], ends[2], v, best_a, best_b)
    _set(table, ends, e, u, v, best_a)
    return moved


@kernel
def arrive(table: Ints, ends: Ints, e: int, src: int, dst: int, layers: int, cap: int) -> int:
    """Flow e comes, from leaf `src` to leaf `dst`: returns how many other flows were moved, -1 if a leaf
    has no layer left.

    table[(side * leaves + leaf) * layers + layer, colour] is a flow or -1, its last column the layer's
    degree. ends[:, e]: vertices and colour of flow e. At most `cap` flows are moved: where that does not
    do, the flow takes a further layer, and some link may carry one flow more than it would have to.
    """
    leaves = table.shape[0] // (2 * layers)
    k = table.shape[1] - 1
    u, v = src * layers, (leaves + dst) * layers
    end_u, end_v = u + layers, v + layers
    while u < end_u and table[u, k] >= k:
        u += 1
    while v < end_v and table[v, k] >= k:
        v += 1
    while u < end_u and v < end_v:
        moved = _join(table, ends, e, u, v, cap)
        if moved >= 0:
            return moved
        u += 1
        while u < end_u and table[u, k] >= k:
            u += 1
    return -1


@kernel
def arrive_all(
    table: Ints, ends: Ints, numbers: Ints, src: Ints, dst: Ints, layers: int, cap: int, left: Ints
) -> int:
    """Flows come one after another, as `arrive`, each moving at most `cap` others and at most left[0], from
    which those that it moves are taken. Returns how many came before one whose leaf has no layer left."""
    for f in range(len(numbers)):
        moved = arrive(table, ends, numbers[f], src[f], dst[f], layers, min(cap, left[0]))
        if moved < 0:
            return f
        left[0] -= moved
    return len(numbers)


@kernel
def leave(table: Ints, ends: Ints, e: int, layers: int, cap: int) -> int:
    """Flow e goes; its place is filled from the leaf's last layer. Returns how many flows were moved."""
    k = table.shape[1] - 1
    _take(table, ends, e)
    moved = 0
    for i in range(2):
        hole = ends[i, e]
        top = (hole // layers) * layers + layers - 1
        while top > hole and table[top, k] == 0:
            top -= 1
        if top == hole:
            continue
        c = 0
        while c < k and (table[hole, c] >= 0 or table[top, c] < 0):
            c += 1
        if c < k:
            # The flow keeps its colour: it only counts in another layer now.
            same = table[top, c]
            table[top, c] = -1
            table[top, k] -= 1
            table[hole, c] = same
            table[hole, k] += 1
            ends[i, same] = hole
        elif cap > moved:
            moved += _refill(table, ends, i, hole, top, cap - moved)
    ends[2, e] = -1
    return moved


@kernel
def _refill(table: Ints, ends: Ints, i: int, hole: int, top: int, cap: int) -> int:
    """Bring one flow of layer `top` into layer `hole` of the same leaf, end i of the flow."""
    k = table.shape[1] - 1
    for c in range(k):
        f = table[top, c]
        if f < 0:
            continue
        u, v = ends[0, f], ends[1, f]
        _take(table, ends, f)
        moved = _join(table, ends, f, hole if i == 0 else u, hole if i == 1 else v, cap - 1)
        if moved >= 0:
            return moved + 1 if ends[2, f] != c else moved
        _set(table, ends, f, u, v, c)
    return 0


@kernel
def seat_all(
    table: Ints,
    ends: Ints,
    numbers: Ints,
    src: Ints,
    dst: Ints,
    colour: Ints,
    out: Ints,
    into: Ints,
    layers: int,
) -> None:
    """Flows that have a colour already, in order; they move no other.

    Flow f goes from leaf `src` to leaf `dst` and becomes numbers[f]. Where all of the first out[src] layers
    of its source, or of the first into[dst] layers of its destination, have one of its colour, numbers[f]
    becomes -1.
    """
    leaves = table.shape[0] // (2 * layers)
    for f in range(len(src)):
        c = colour[f]
        u, v = src[f] * layers, (leaves + dst[f]) * layers
        end_u, end_v = u + out[src[f]], v + into[dst[f]]
        while u < end_u and table[u, c] >= 0:
            u += 1
        while v < end_v and table[v, c] >= 0:
            v += 1
        if u < end_u and v < end_v:
            _set(table, ends, numbers[f], u, v, c)
        else:
            numbers[f] = -1
