# SPDX-License-Identifier: Apache-2.0
"""Progressive filling of a region: raise all rates together, freeze flows where something stops them."""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.state import HOPS, STAMP, State
from sim.units import CLASSES

_SAME = 1e-12


@kernel
def _sink(s: State, size: int, i: int) -> None:
    key, what = s.shares[i].key, s.shares[i].id
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            s.shares[right].key < s.shares[child].key
            or (s.shares[right].key == s.shares[child].key and s.shares[right].id < s.shares[child].id)
        ):
            child = right
        other = s.shares[child].key
        if key < other or (key == other and what < s.shares[child].id):
            break
        s.shares[i].key, s.shares[i].id = other, s.shares[child].id
        i = child
    s.shares[i].key, s.shares[i].id = key, what


@kernel
def _fix(s: State, klass: int, f: int, rate: float, at: int) -> None:
    """A region's flow gets its rate; its links have that much less for the others."""
    hops = s.reg[HOPS]
    s.tasks[f].fresh = rate
    s.tasks[f].fresh_at = at
    s.tasks[f].fixed = s.reg[STAMP]
    start = s.tasks[f].channel * hops
    for h in range(hops):
        link = s.path[start + h]
        if link < 0:
            break
        s.links[link].room = max(s.links[link].room - rate, 0.0)
        s.links[link].count -= 1


@kernel
def fill(s: State, klass: int, flows: int, links: int) -> None:
    """Max-min rates of the region's flows in `fresh`, their bottlenecks in `fresh_at` (-1: the cap).

    `base` and `base_count` hold what each of the region's links has for them and how many they are; a
    link's share only grows as others freeze, so a stale entry of the heap is put back, never missed.
    """
    hops = s.reg[HOPS]
    size = 0
    for i in range(links):
        link = s.links[i].region
        s.links[link].room = max(s.links[link].base, 0.0)
        s.links[link].count = s.links[link].base_count
        s.shares[size].key = s.links[link].room / s.links[link].count
        s.shares[size].id = link
        size += 1
    offset = len(s.links)
    for i in range(flows):
        f = s.tasks[i].region
        s.tasks[f].fixed = -1
        if s.tasks[f].limit < s.links[s.path[s.tasks[f].channel * hops]].cap:
            s.shares[size].key = s.tasks[f].limit
            s.shares[size].id = offset + f
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sink(s, size, i)
    level = 0.0
    while size:
        key, what = s.shares[0].key, s.shares[0].id
        link = what if what < offset else -1
        if link >= 0 and s.links[link].count:
            share = s.links[link].room / s.links[link].count
            if share > key * (1 + _SAME):
                s.shares[0].key = share
                _sink(s, size, 0)
                continue
            # Equal levels that rounding has set apart are one, so that their flows end together.
            if share > level * (1 + _SAME):
                level = share
            node = s.cells[link * CLASSES + klass].head
            while node >= 0:
                f = s.nodes[node].flow
                if s.tasks[f].in_region == s.reg[STAMP] and s.tasks[f].fixed != s.reg[STAMP]:
                    _fix(s, klass, f, level, link)
                node = s.nodes[node].following
        elif link < 0 and s.tasks[what - offset].fixed != s.reg[STAMP]:
            if key > level * (1 + _SAME):
                level = key
            _fix(s, klass, what - offset, level, -1)
        size -= 1
        s.shares[0].key, s.shares[0].id = s.shares[size].key, s.shares[size].id
        _sink(s, size, 0)
