# SPDX-License-Identifier: Apache-2.0
"""The edge colouring of `kernels.colour` in plain Python, by recursion and dictionaries: the same colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ends = Sequence[int]


def flip(table: Array, left: Array, right: Array, colour: Array, v: int, a: int, b: int) -> int:
    """Swap two colours along a Kempe chain: collect its edges, clear them, enter them anew."""
    chain, e = [], int(table[v, a])
    wanted, following = a, b
    while e >= 0:
        chain.append(e)
        v = int(right[e] if left[e] == v else left[e])
        wanted, following = following, wanted
        e = int(table[v, wanted])
    for e in chain:
        table[left[e], colour[e]] = table[right[e], colour[e]] = -1
    for e in chain:
        colour[e] = b if colour[e] == a else a
        table[left[e], colour[e]] = table[right[e], colour[e]] = e
    return len(chain)


def balanced(src: Array, dst: Array, vertices: int, k: int, colour: Array) -> None:
    """Split into halves until one colour is left; where k is odd, one class goes into the others."""
    number: dict[tuple[int, int, int], int] = {}
    left, right = (
        np.array([number.setdefault(p, len(number)) for p in _parts(side, at.tolist(), k)], dtype=np.int32)
        for side, at in enumerate((src, dst))
    )
    _colour(list(range(len(src))), left, right, [(left.tolist(), right.tolist())], 0, k, len(number), colour)


def laminar(
    src: Array,
    dst: Array,
    src_pod: Array,
    dst_pod: Array,
    vertices: int,
    pods: int,
    k: int,
    colour: Array,
) -> None:
    """The same halves, with edges paired at the leaf first and then in the pod."""
    tiers = [(src.tolist(), dst.tolist()), (src_pod.tolist(), dst_pod.tolist())]
    _colour(list(range(len(src))), src, dst, tiers, 0, k, 0, colour)


def _parts(side: int, at: Ends, k: int) -> list[tuple[int, int, int]]:
    """The part of its vertex that each edge is at: a part has k edges at most."""
    seen: dict[int, int] = {}
    parts = []
    for v in at:
        parts.append((side, v, seen.get(v, 0) // k))
        seen[v] = seen.get(v, 0) + 1
    return parts


def _colour(
    edges: list[int],
    left: Array,
    right: Array,
    tiers: Sequence[tuple[Ends, Ends]],
    base: int,
    k: int,
    vertices: int,
    colour: Array,
) -> list[int]:
    """Colour these edges with base..base + k - 1; returns them in the order in which the halves have them."""
    if k == 1 or not edges:
        colour[edges] = base
        return edges
    half = (k + 1) // 2
    halves = zip(_halves(edges, tiers), (base, base + half), strict=True)
    split = [e for some, b in halves for e in _colour(some, left, right, tiers, b, half, vertices, colour)]
    if k % 2:
        _drop_smallest(split, left, right, base, k, vertices, colour)
    return split


def _halves(edges: list[int], tiers: Sequence[tuple[Ends, Ends]]) -> tuple[list[int], list[int]]:
    """Two halves in which no vertex of a tier has more than half of its edges, rounded up."""
    partners = [_partners(edges, [tier[end] for tier in tiers]) for end in (0, 1)]
    side: dict[int, int] = {}
    turn = 0
    for start in edges:
        if start in side:
            continue
        side[start] = turn
        turn = 1 - turn
        reached = [start]
        while reached:
            e = reached.pop()
            for partner in partners:
                if e in partner and partner[e] not in side:
                    side[partner[e]] = 1 - side[e]
                    reached.append(partner[e])
    first, second = ([e for e in edges if side[e] == s] for s in (0, 1))
    return first, second


def _partners(edges: list[int], tiers: Sequence[Ends]) -> dict[int, int]:
    """Pairs of edges with the same end, within the first tier before the next one."""
    partner: dict[int, int] = {}
    for at in tiers:
        waiting: dict[int, int] = {}
        for e in edges:
            if e in partner:
                continue
            if at[e] in waiting:
                other = waiting.pop(at[e])
                partner[e], partner[other] = other, e
            else:
                waiting[at[e]] = e
    return partner


def _drop_smallest(
    edges: list[int], left: Array, right: Array, base: int, k: int, vertices: int, colour: Array
) -> None:
    """From k + 1 colours to k: the edges of the smallest class go into the others by Kempe chains."""
    local = colour - base
    smallest = int(np.bincount(local[edges], minlength=k + 1).argmin())
    table = np.full((vertices, k), -1, dtype=np.int32)
    rest = [e for e in edges if local[e] == smallest]
    for e in edges:
        if local[e] != smallest:
            # The last colour takes the place of the one that goes.
            local[e] = smallest if local[e] == k else local[e]
            table[left[e], local[e]] = table[right[e], local[e]] = e
    for e in rest:
        u, v = left[e], right[e]
        both = np.flatnonzero((table[u] < 0) & (table[v] < 0))
        if len(both):
            c = int(both[0])
        else:
            c, b = int(np.argmax(table[u] < 0)), int(np.argmax(table[v] < 0))
            flip(table, left, right, local, int(v), c, b)
        local[e] = c
        table[u, c] = table[v, c] = e
    colour[edges] = local[edges] + base
