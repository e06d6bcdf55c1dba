# SPDX-License-Identifier: Apache-2.0
"""The hot loops in plain Python: the oracle of the kernels' tests, and what runs where Numba is missing.

Every function does what the kernel of the same name does, and `kernels` says what that is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.routing.reference_colour import balanced, flip, laminar  # noqa: F401 - of this module too
from controller.routing.reference_relief import relieve  # noqa: F401 - likewise
from controller.routing.reference_use import use_of_links  # noqa: F401 - likewise

Array = NDArray[Any]
_SAME = 1e-12
_LOAD_SAME = 1e-9


def greedy_unit(
    src: Array, dst: Array, live: Array, up: Array, down: Array, levels: int, choice: Array
) -> int:
    """Algorithm 1 as printed: each flow to the first spine of the smallest maximum load."""
    spines = range(live.shape[1])
    loads_up, loads_down, alive = up.tolist(), down.tolist(), live.tolist()
    for f, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        best, lowest = -1, levels
        for s in spines:
            if alive[u][s] and alive[v][s]:
                load = max(loads_up[u][s], loads_down[v][s])
                if load < lowest:
                    best, lowest = s, load
        if best < 0 and any(alive[u][s] and alive[v][s] for s in spines):
            up[:], down[:] = loads_up, loads_down
            return f
        choice[f] = best
        if best >= 0:
            loads_up[u][best] += 1
            loads_down[v][best] += 1
    up[:], down[:] = loads_up, loads_down
    return len(src)


def greedy_weighted(
    src: Array, dst: Array, weight: Array, capacity: Array, up: Array, down: Array, choice: Array
) -> None:
    """The same with weights, and loads relative to capacities."""
    for f, (u, v) in enumerate(zip(src, dst, strict=True)):
        best, lowest = -1, float("inf")
        for s in np.flatnonzero((capacity[u] > 0) & (capacity[v] > 0)):
            load = max((up[u, s] + weight[f]) / capacity[u, s], (down[v, s] + weight[f]) / capacity[v, s])
            if load < lowest * (1 - _SAME):
                best, lowest = int(s), load
        choice[f] = best
        if best >= 0:
            up[u, best] += weight[f]
            down[v, best] += weight[f]


def greedy_candidates(
    pair: Array, first: Array, links: Array, weight: Array, capacity: Array, load: Array, choice: Array
) -> None:
    """The same over given candidate paths."""
    rows = [[link for link in row if link >= 0] for row in links.tolist()]
    for f, p in enumerate(pair):
        best, lowest = -1, float("inf")
        for row in range(first[p], first[p + 1]):
            worst = max(((load[k] + weight[f]) / capacity[k] for k in rows[row]), default=0.0)
            if best < 0 or worst < lowest * (1 - _SAME):
                best, lowest = row, worst
        choice[f] = best - first[p] if best >= 0 else -1
        for k in rows[best] if best >= 0 else ():
            load[k] += weight[f]


def greedy_by_owner(
    pair: Array,
    first: Array,
    links: Array,
    weight: Array,
    owner: Array,
    capacity: Array,
    overlap: Array,
    felt: Array,
    choice: Array,
) -> None:
    """The same where a flow feels only a part of the load of other owners."""
    rows = [[link for link in row if link >= 0] for row in links.tolist()]
    for f, p in enumerate(pair):
        o, best, lowest, least = owner[f], -1, float("inf"), float("inf")
        for row in range(first[p], first[p + 1]):
            loads = [(felt[o, k] + weight[f]) / capacity[k] for k in rows[row]]
            worst, total = max(loads, default=0.0), sum(loads)
            less = worst < lowest - _LOAD_SAME or (worst < lowest + _LOAD_SAME and total < least - _LOAD_SAME)
            if best < 0 or less:
                best, lowest, least = row, worst, total
        choice[f] = best - first[p] if best >= 0 else -1
        for k in rows[best] if best >= 0 else ():
            felt[:, k] += overlap[:, o] * weight[f]


def maxmin(paths: Array, klass: Array, capacity: Array, classes: int) -> Array:
    """Class by class: find the link with the smallest share, freeze its flows, take them off, again."""
    rate = np.full(len(paths), np.inf)
    room = capacity.astype(np.float64)
    for c in range(classes):
        open_flows = (klass == c) & (paths >= 0).any(axis=1)
        while open_flows.any():
            on = paths[open_flows]
            count = np.bincount(on[on >= 0], minlength=len(room))
            share = np.divide(room, count, out=np.full(len(room), np.inf), where=count > 0)
            tight = int(np.argmin(share))
            stopped = open_flows & (paths == tight).any(axis=1)
            rate[stopped] = share[tight]
            gone = paths[stopped]
            room -= share[tight] * np.bincount(gone[gone >= 0], minlength=len(room))
            np.maximum(room, 0.0, out=room)
            open_flows &= ~stopped
    return rate


def find_ports(
    base: Array,
    contributions: Array,
    tables: Array,
    shifts: Array,
    stage: Array,
    want: Array,
    skip: Array,
) -> Array:
    """All ports of a flow at once, and those that lead along its path."""
    found = np.full(len(base), -1, dtype=np.int32)
    for f, start in enumerate(base):
        value = (contributions ^ start).astype(np.int64)
        good = np.ones(len(value), dtype=np.bool_)
        for t, wanted in zip(stage[f], want[f], strict=True):
            if t >= 0:
                good &= tables[t][(value >> shifts[t]) & 255] == wanted
        ports = np.flatnonzero(good)
        if len(ports):
            found[f] = ports[skip[f] % len(ports)]
    return found


def _join(table: Array, ends: Array, e: int, u: int, v: int, cap: int) -> int:
    k = table.shape[1] - 1
    free_u, free_v = table[u, :k] < 0, table[v, :k] < 0
    both = np.flatnonzero(free_u & free_v)
    moved = 0
    if len(both):
        c = int(both[0])
    else:
        c, b = int(np.argmax(free_u)), int(np.argmax(free_v))
        moved = flip(table, ends[0], ends[1], ends[2], v, c, b)
        if moved > cap:
            flip(table, ends[0], ends[1], ends[2], v, b, c)
            return -1
    ends[:, e] = u, v, c
    table[u, c] = table[v, c] = e
    table[[u, v], k] += 1
    return moved


def _take(table: Array, ends: Array, e: int) -> None:
    k = table.shape[1] - 1
    table[ends[:2, e], ends[2, e]] = -1
    table[ends[:2, e], k] -= 1


def arrive(table: Array, ends: Array, e: int, src: int, dst: int, layers: int, cap: int) -> int:
    """A flow comes: into the first layers with room, by one Kempe chain, else into a later layer."""
    leaves, k = table.shape[0] // (2 * layers), table.shape[1] - 1
    right = (leaves + dst) * layers
    rooms = [v for v in range(right, right + layers) if table[v, k] < k]
    for u in range(src * layers, (src + 1) * layers):
        if table[u, k] < k and rooms:
            moved = _join(table, ends, e, u, rooms[0], cap)
            if moved >= 0:
                return moved
    return -1


def arrive_all(
    table: Array,
    ends: Array,
    numbers: Array,
    src: Array,
    dst: Array,
    layers: int,
    cap: int,
    left: Array,
) -> int:
    """Flows come one after another until one finds no layer; returns how many came."""
    for f, e in enumerate(numbers.tolist()):
        moved = arrive(table, ends, e, int(src[f]), int(dst[f]), layers, min(cap, int(left[0])))
        if moved < 0:
            return f
        left[0] -= moved
    return len(numbers)


def leave(table: Array, ends: Array, e: int, layers: int, cap: int) -> int:
    """A flow goes: a flow of the leaf's last layer takes its place, the one of its colour if there is one."""
    k = table.shape[1] - 1
    _take(table, ends, e)
    moved = 0
    for i in (0, 1):
        hole = int(ends[i, e])
        last = [top for top in range(hole + 1, (hole // layers + 1) * layers) if table[top, k] > 0][-1:]
        for top in last:
            held = np.flatnonzero(table[top, :k] >= 0)
            for colour in sorted(held, key=lambda c: table[hole, c] >= 0):
                f = int(table[top, colour])
                before = ends[:, f].copy()
                _take(table, ends, f)
                u, v = (hole, before[1]) if i == 0 else (before[0], hole)
                if table[hole, colour] < 0:
                    ends[i, f] = hole
                    table[ends[:2, f], colour] = f
                    table[ends[:2, f], k] += 1
                    break
                more = _join(table, ends, f, int(u), int(v), max(cap - moved - 1, 0))
                if more >= 0:
                    moved += more + int(ends[2, f] != colour)
                    break
                ends[:, f] = before
                table[before[:2], colour] = f
                table[before[:2], k] += 1
    ends[2, e] = -1
    return moved


def seat_all(
    table: Array,
    ends: Array,
    numbers: Array,
    src: Array,
    dst: Array,
    colour: Array,
    out: Array,
    into: Array,
    layers: int,
) -> None:
    """Flows take the first layers of their leaves that lack their colour."""
    leaves = table.shape[0] // (2 * layers)
    for f, c in enumerate(colour.tolist()):
        rows = (
            next((r for r in range(first, first + most) if table[r, c] < 0), None)
            for first, most in (
                (src[f] * layers, out[src[f]]),
                ((leaves + dst[f]) * layers, into[dst[f]]),
            )
        )
        u, v = rows
        if u is None or v is None:
            numbers[f] = -1
            continue
        ends[:, numbers[f]] = u, v, c
        table[[u, v], c] = numbers[f]
        table[[u, v], -1] += 1


def anneal(
    movable: Array,
    first: Array,
    count: Array,
    links: Array,
    weight: Array,
    capacity: Array,
    state: Array,
    schedule: Array,
    tries: int,
    seed: int,
) -> Array:
    """The same moves, with the loads of the links in a dictionary."""
    rows = [[(k, 1 / capacity[k]) for k in row if k >= 0] for row in links.tolist()]
    load: dict[int, float] = defaultdict(float)

    def add(row: int, amount: float) -> float:
        grown = 0.0
        for link, share in rows[row]:
            step = amount * share
            grown += step * (2 * load[link] + step)
            load[link] += step
        return grown

    now, heavy = state.tolist(), weight.tolist()
    energy = sum(add(row, heavy[f]) for f, row in enumerate(now) if row >= 0)
    best, key = list(now), (round(max(load.values()), 9), energy)
    unit, mask = energy / len(movable), (1 << 64) - 1
    random = (2 * seed + 0x9E3779B97F4A7C15) & mask
    for temperature in schedule.tolist():
        for _ in range(tries):
            random ^= random >> 12
            random ^= (random << 25) & mask
            random ^= random >> 27
            drawn = random * 0x2545F4914F6CDD1D & mask
            f = int(movable[(drawn >> 43) % len(movable)])
            new = int(first[f]) + (drawn >> 23 & 0xFFFFF) % int(count[f])
            old = now[f]
            if new == old:
                continue
            change = add(old, -heavy[f]) + add(new, heavy[f])
            if change <= 0 or ((drawn & 0x7FFFFF) + 0.5) / 8388608.0 < math.exp(
                -change / (unit * temperature)
            ):
                now[f] = new
                energy += change
            else:
                add(new, -heavy[f])
                add(old, heavy[f])
        if (round(max(load.values()), 9), energy) < key:
            best, key = list(now), (round(max(load.values()), 9), energy)
    return np.array(best, dtype=np.int32)
