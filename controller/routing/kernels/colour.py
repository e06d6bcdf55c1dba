# SPDX-License-Identifier: Apache-2.0
"""Bipartite edge colouring by Euler splits: no vertex has a colour more than ceil(degree / k) times.

Gabow's scheme: a vertex of a larger degree is cut into vertices of degree k at most, so a proper colouring
is what is wanted. An even k is split in two halves of k / 2 by pairing the edges at each vertex and
alternating along the paths and (even) cycles of pairs. An odd k is split into halves of (k + 1) / 2; the
smallest of the k + 1 classes is then put into the others by Kempe chains (Gabow and Kariv).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]


@kernel
def _pair(edges: Ints, lo: int, hi: int, at: Ints, partner: Ints, last: Ints) -> None:
    """Pair the edges without a partner at each vertex; `last` (vertices,) is -1 before and after."""
    for i in range(lo, hi):
        e = edges[i]
        if partner[e] < 0:
            v = at[e]
            other = last[v]
            if other < 0:
                last[v] = e
            else:
                partner[e], partner[other] = other, e
                last[v] = -1
    for i in range(lo, hi):
        last[at[edges[i]]] = -1


@kernel
def _walk(start: int, first: Ints, second: Ints, side: NDArray[np.int8]) -> None:
    """Alternate sides from `start` along pairs of `first`, `second`, `first`, ... until it ends."""
    e, s = start, side[start]
    while True:
        e = first[e]
        if e < 0 or side[e] >= 0:
            return
        s = 1 - s
        side[e] = s
        e = second[e]
        if e < 0 or side[e] >= 0:
            return
        s = 1 - s
        side[e] = s


@kernel
def _split(
    edges: Ints,
    lo: int,
    hi: int,
    left: Ints,
    right: Ints,
    outer_left: Ints,
    outer_right: Ints,
    scratch: Ints,
    side: NDArray[np.int8],
) -> int:
    """Halve edges[lo:hi] so that every vertex's degree halves, rounded up or down; returns the middle.

    What a vertex leaves over is paired within its outer vertex, where there is one, so that the degrees
    of those halve too. scratch (3, n): partners on the left and on the right, then the last edge seen.
    """
    by_left, by_right, last = scratch[0], scratch[1], scratch[2]
    for i in range(lo, hi):
        e = edges[i]
        by_left[e] = -1
        by_right[e] = -1
        side[e] = -1
    _pair(edges, lo, hi, left, by_left, last)
    _pair(edges, lo, hi, right, by_right, last)
    if len(outer_left):
        _pair(edges, lo, hi, outer_left, by_left, last)
        _pair(edges, lo, hi, outer_right, by_right, last)
    turn = 0
    for i in range(lo, hi):
        e = edges[i]
        if side[e] < 0:
            side[e] = turn
            turn = 1 - turn
            _walk(e, by_left, by_right, side)
            _walk(e, by_right, by_left, side)
    mid, late = lo, 0
    for i in range(lo, hi):
        e = edges[i]
        if side[e] == 0:
            edges[mid] = e
            mid += 1
        else:
            by_left[late] = e
            late += 1
    for i in range(late):
        edges[mid + i] = by_left[i]
    return mid


@kernel
def flip(table: Ints, left: Ints, right: Ints, colour: Ints, v: int, a: int, b: int) -> int:
    """Swap colours a and b along the Kempe chain that leaves vertex v by colour a; returns its length.

    table[vertex, colour] is the edge of that colour, -1 if none.
    """
    count = 0
    e = table[v, a]
    table[v, a] = -1
    while e >= 0:
        w = right[e] if left[e] == v else left[e]
        following = table[w, b]
        table[v, b] = e
        table[w, b] = e
        table[w, a] = -1
        colour[e] = b
        count += 1
        v, e = w, following
        a, b = b, a
    return count


@kernel
def _put(table: Ints, left: Ints, right: Ints, colour: Ints, e: int, k: int) -> None:
    """Give an uncoloured edge one of k colours, where no vertex has more than k edges."""
    u, v = left[e], right[e]
    a, b, both = -1, -1, -1
    for c in range(k):
        free_u, free_v = table[u, c] < 0, table[v, c] < 0
        if free_u and free_v:
            both = c
            break
        if free_u and a < 0:
            a = c
        if free_v and b < 0:
            b = c
    if both < 0:
        flip(table, left, right, colour, v, a, b)
        both = a
    colour[e] = both
    table[u, both] = e
    table[v, both] = e


@kernel
def _drop_smallest(
    edges: Ints, lo: int, hi: int, left: Ints, right: Ints, base: int, k: int, table: Ints, colour: Ints
) -> None:
    """From k + 1 colours base.. to k, by putting the edges of the smallest class into the others."""
    sizes = np.zeros(k + 1, dtype=np.int64)
    for i in range(lo, hi):
        e = edges[i]
        colour[e] -= base
        sizes[colour[e]] += 1
    smallest = np.argmin(sizes)
    for i in range(lo, hi):
        e = edges[i]
        if colour[e] == smallest:
            colour[e] = -1
        else:
            if colour[e] == k:
                colour[e] = smallest
            table[left[e], colour[e]] = e
            table[right[e], colour[e]] = e
    for i in range(lo, hi):
        if colour[edges[i]] < 0:
            _put(table, left, right, colour, edges[i], k)
    for i in range(lo, hi):
        e = edges[i]
        table[left[e], colour[e]] = -1
        table[right[e], colour[e]] = -1
    for i in range(lo, hi):
        colour[edges[i]] += base


@kernel
def _colour(
    edges: Ints,
    left: Ints,
    right: Ints,
    k: int,
    outer_left: Ints,
    outer_right: Ints,
    scratch: Ints,
    side: NDArray[np.int8],
    table: Ints,
    colour: Ints,
) -> None:
    """Colour all edges, where no vertex has more than k, with 0..k - 1.

    A stack of (lo, hi, first colour, colours, whether its halves are done) stands for the recursion, which
    Numba cannot load back from its cache.
    """
    stack = np.empty((256, 5), dtype=np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3], stack[0, 4] = 0, len(edges), 0, k, 0
    depth = 1
    while depth:
        depth -= 1
        lo, hi, base, k, done = stack[depth]
        if done:
            _drop_smallest(edges, lo, hi, left, right, base, k, table, colour)
            continue
        if k == 1:
            for i in range(lo, hi):
                colour[edges[i]] = base
            continue
        if lo == hi:
            continue
        mid = _split(edges, lo, hi, left, right, outer_left, outer_right, scratch, side)
        half = (k + 1) >> 1
        if k & 1:
            stack[depth, 4] = 1
            depth += 1
        for begin, end, first in ((lo, mid, base), (mid, hi, base + half)):
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = begin, end, first
            stack[depth, 3], stack[depth, 4] = half, 0
            depth += 1


@kernel
def _cut(at: Ints, vertices: int, k: int, offset: int) -> tuple[Ints, int]:
    """Cut every vertex into vertices of degree k at most, numbered from `offset`; and how many there are."""
    seen = np.zeros(vertices, dtype=np.int32)
    for e in range(len(at)):
        seen[at[e]] += 1
    first = np.empty(vertices, dtype=np.int32)
    total = offset
    for v in range(vertices):
        first[v] = total
        total += (seen[v] + k - 1) // k
        seen[v] = 0
    result = np.empty(len(at), dtype=np.int32)
    for e in range(len(at)):
        v = at[e]
        result[e] = first[v] + seen[v] // k
        seen[v] += 1
    return result, total


@kernel
def balanced(src: Ints, dst: Ints, vertices: int, k: int, colour: Ints) -> None:
    """Colour the edges (src[e], dst[e]) with 0..k-1: each vertex gets each colour at most
    ceil(degree / k) times, out of it and into it alike. `colour` (edges,) takes the result."""
    left, cut = _cut(src, vertices, k, 0)
    right, total = _cut(dst, vertices, k, cut)
    edges = np.arange(len(src)).astype(np.int32)
    size = max(len(src), total)
    scratch = np.full((3, size), -1, dtype=np.int32)
    side = np.empty(len(src), dtype=np.int8)
    table = np.full((total if k & (k - 1) else 0, k + 1), -1, dtype=np.int32)
    none = np.empty(0, dtype=np.int32)
    _colour(edges, left, right, k, none, none, scratch, side, table, colour)


@kernel
def laminar(
    src: Ints, dst: Ints, src_pod: Ints, dst_pod: Ints, vertices: int, pods: int, k: int, colour: Ints
) -> None:
    """`balanced` at leaves and, at once, at the pods that hold them; k is a power of two.

    Leaves inside pods are a laminar family: pairing within the leaf first and the left-over edges within
    the pod halves the degrees of both at every split.
    """
    edges = np.arange(len(src)).astype(np.int32)
    size = max(len(src), 2 * vertices, 2 * pods)
    scratch = np.full((3, size), -1, dtype=np.int32)
    side = np.empty(len(src), dtype=np.int8)
    table = np.empty((0, k + 1), dtype=np.int32)
    _colour(edges, src, dst, k, src_pod, dst_pod, scratch, side, table, colour)
