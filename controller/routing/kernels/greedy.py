# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 of "Routing for Large ML Models", compiled: unit flows, weighted flows, any candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Masks = NDArray[np.uint64]

_MAGIC = np.uint64(0x03F79D71B4CB0A89)
_PLACE = np.zeros(64, dtype=np.int32)
for _bit in range(64):
    _PLACE[(((1 << _bit) * int(_MAGIC)) & (2**64 - 1)) >> 58] = _bit
_SAME = 1e-12
_LOAD_SAME = 1e-9
"""Loads relative to capacity that differ by less count as equal. Chosen: far below one flow's share."""


@kernel
def _fill(load: Ints, live: NDArray[np.bool_], masks: Masks) -> None:
    """masks[leaf, t]: the live spines whose link carries at most t flows."""
    for u in range(load.shape[0]):
        for s in range(load.shape[1]):
            if live[u, s]:
                for t in range(load[u, s], masks.shape[1]):
                    masks[u, t, s >> 6] |= np.uint64(1) << np.uint64(s & 63)


@kernel
def greedy_unit(
    src: Ints, dst: Ints, live: NDArray[np.bool_], up: Ints, down: Ints, levels: int, choice: Ints
) -> int:
    """Unit flows from leaf to leaf, in order, each to the spine of the smallest maximum load.

    The smallest t at which a spine's links up from `src` and down to `dst` both carry at most t is found
    by ANDing two bit sets; ties go to the lowest spine. `live`, `up`, `down` are (leaves, spines); `up`
    and `down` hold what the links carry and are brought up to date. `choice` (flows,) is -1 without a
    path. Returns the first flow that no load below `levels` could hold, len(src) if all went well.
    """
    words = (live.shape[1] + 63) >> 6
    at_most_up = np.zeros((live.shape[0], levels, words), dtype=np.uint64)
    at_most_down = np.zeros((live.shape[0], levels, words), dtype=np.uint64)
    _fill(up, live, at_most_up)
    _fill(down, live, at_most_down)
    lowest_up = np.zeros(live.shape[0], dtype=np.int32)
    lowest_down = np.zeros(live.shape[0], dtype=np.int32)
    for f in range(len(src)):
        u, v = src[f], dst[f]
        t = max(lowest_up[u], lowest_down[v])
        s = -1
        while s < 0 and t < levels:
            below_up = np.uint64(0)
            below_down = np.uint64(0)
            for w in range(words):
                a, b = at_most_up[u, t, w], at_most_down[v, t, w]
                below_up |= a
                below_down |= b
                both = a & b
                if both:
                    bit = both & (~both + np.uint64(1))
                    s = (w << 6) + _PLACE[(bit * _MAGIC) >> np.uint64(58)]
                    break
            if s < 0:
                if not below_up:
                    lowest_up[u] = t + 1
                if not below_down:
                    lowest_down[v] = t + 1
                t += 1
        if s < 0:
            if _connected(live, u, v):
                return f
            choice[f] = -1
            continue
        choice[f] = s
        gone = ~(np.uint64(1) << np.uint64(s & 63))
        at_most_up[u, up[u, s], s >> 6] &= gone
        at_most_down[v, down[v, s], s >> 6] &= gone
        up[u, s] += 1
        down[v, s] += 1
    return len(src)


@kernel
def _connected(live: NDArray[np.bool_], u: int, v: int) -> bool:
    return bool((live[u] & live[v]).any())


@kernel
def greedy_weighted(
    src: Ints, dst: Ints, weight: Floats, capacity: Floats, up: Floats, down: Floats, choice: Ints
) -> None:
    """Weighted flows on links of unequal capacity (leaves, spines), 0 where dead: loads are relative.

    `up` and `down` (leaves, spines) hold what the links carry already, and are brought up to date.
    """
    for f in range(len(src)):
        u, v = src[f], dst[f]
        best, lowest = -1, np.inf
        for s in range(capacity.shape[1]):
            if capacity[u, s] > 0 and capacity[v, s] > 0:
                load = max((up[u, s] + weight[f]) / capacity[u, s], (down[v, s] + weight[f]) / capacity[v, s])
                if load < lowest * (1 - _SAME):
                    best, lowest = s, load
        choice[f] = best
        if best >= 0:
            up[u, best] += weight[f]
            down[v, best] += weight[f]


@kernel
def greedy_candidates(
    pair: Ints, first: Ints, links: Ints, weight: Floats, capacity: Floats, load: Floats, choice: Ints
) -> None:
    """Flows on any fabric: pair[f]'s candidate paths are the rows first[pair] to first[pair + 1] of
    `links` (-1 pads), `choice` counts from the pair's first. `load` (links,) is brought up to date."""
    for f in range(len(pair)):
        start, end = first[pair[f]], first[pair[f] + 1]
        best, lowest = -1, np.inf
        for row in range(start, end):
            worst = 0.0
            for h in range(links.shape[1]):
                link = links[row, h]
                if link < 0:
                    break
                worst = max(worst, (load[link] + weight[f]) / capacity[link])
                if worst >= lowest * (1 - _SAME):
                    break
            if best < 0 or worst < lowest * (1 - _SAME):
                best, lowest = row, worst
        choice[f] = best - start if best >= 0 else -1
        if best >= 0:
            for h in range(links.shape[1]):
                if links[best, h] < 0:
                    break
                load[links[best, h]] += weight[f]


@kernel
def greedy_by_owner(
    pair: Ints,
    first: Ints,
    links: Ints,
    weight: Floats,
    owner: Ints,
    capacity: Floats,
    overlap: Floats,
    felt: Floats,
    choice: Ints,
) -> None:
    """As `greedy_candidates`, but a flow feels only the part overlap[owner, other] of another owner's load.

    `overlap` (owners, owners) has ones on the diagonal; `felt` (owners, links) is brought up to date. A tie
    goes to the path with the smallest sum of loads, then to the first.
    """
    for f in range(len(pair)):
        start, end = first[pair[f]], first[pair[f] + 1]
        o = owner[f]
        best, lowest, least = -1, np.inf, np.inf
        for row in range(start, end):
            worst, total = 0.0, 0.0
            for h in range(links.shape[1]):
                link = links[row, h]
                if link < 0:
                    break
                load = (felt[o, link] + weight[f]) / capacity[link]
                worst = max(worst, load)
                total += load
            if (
                best < 0
                or worst < lowest - _LOAD_SAME
                or (worst < lowest + _LOAD_SAME and total < least - _LOAD_SAME)
            ):
                best, lowest, least = row, worst, total
        choice[f] = best - start if best >= 0 else -1
        if best >= 0:
            for h in range(links.shape[1]):
                link = links[best, h]
                if link < 0:
                    break
                for other in range(len(felt)):
                    felt[other, link] += overlap[other, o] * weight[f]
