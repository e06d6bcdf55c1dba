# SPDX-License-Identifier: Apache-2.0
"""Flowlets: a queue pair that has paused takes, switch by switch, the link that has sent the least.

What a link has sent is halved every half-life. Its rate is constant between two events, so the load at any
time follows from that at the last one. As on packets (`p4/v1model/spreading.p4`) a flowlet's first packet
counts when it chooses, so flows that begin together take different links; and of equal links the one that was
taken last stays the least. `sim/reference_flowlets.py` does the same in plain Python.
"""

from __future__ import annotations

import math

from sim.kernels.compiler import kernel
from sim.kernels.flows import seat
from sim.kernels.heap import drop
from sim.kernels.state import CLASSES_IN, FIRST_PACKET, GAP, HALF_LIFE, HOPS, NOW, STARTERS, State
from sim.units import PS_PER_S

_BYTE = 8.0
"""Bits by which loads must differ: switches count whole bytes."""


@kernel
def count_sent(s: State, link: int) -> None:
    """Bring the load of a link up to now. To be called before its rate changes."""
    elapsed = s.reg[NOW] - s.links[link].load_at
    if elapsed <= 0:
        return
    left = 2.0 ** (-elapsed / s.reg[HALF_LIFE])
    s.links[link].load = s.links[link].load * left + steady_load(s, link) * (1.0 - left)
    s.links[link].load_at = s.reg[NOW]


@kernel
def steady_load(s: State, link: int) -> float:
    """The load in bits that a link comes to at the rate that it has."""
    used: float = 0.0
    for k in range(link * s.reg[CLASSES_IN], (link + 1) * s.reg[CLASSES_IN]):
        used += s.cells[k].used
    return used * float(s.reg[HALF_LIFE] / PS_PER_S) / math.log(2.0)


@kernel
def choose_ways(s: State) -> None:
    """Put the flows that begin now on their links, in the order of their channels."""
    hops = s.reg[HOPS]
    while s.reg[STARTERS]:
        c = s.starters[0].id
        s.reg[STARTERS] = drop(s.starters, s.waiting_at, s.reg[STARTERS], c)
        owner = s.flowlets[c].owner
        paused = s.reg[NOW] - s.flowlets[owner].since
        if s.flowlets[owner].way < 0 or (s.flowlets[owner].sending == 1 and paused >= s.reg[GAP]):
            s.flowlets[owner].way = _least(s, c)
        way = (s.first_way[c] + s.flowlets[owner].way) * hops
        for h in range(hops):
            s.path[c * hops + h] = s.ways[way + h]
        seat(s, c)


@kernel
def _least(s: State, c: int) -> int:
    """The way of a new flowlet of this channel: each switch on it takes its least loaded link."""
    hops = s.reg[HOPS]
    first, after = s.first_way[c], s.first_way[c + 1]
    at = first
    for h in range(hops):
        if s.ways[at * hops + h] < 0:
            break
        at = _least_at(s, first, after, at, h)
        link = s.ways[at * hops + h]
        count_sent(s, link)
        s.links[link].load += s.reg[FIRST_PACKET]
    return int(at - first)


@kernel
def _least_at(s: State, first: int, after: int, before: int, h: int) -> int:
    """Of the ways from `first` to `after` that go as `before` goes up to hop h, the first one with the least
    loaded link there."""
    hops = s.reg[HOPS]
    start = first
    while not _same_start(s, start, before, h):
        start += 1
    # The first link of all stands for the group.
    group = s.ways[start * hops + h]
    for way in range(start, after):
        if s.ways[way * hops + h] == s.links[group].least and _same_start(s, way, before, h):
            start = way
            break
    found = start
    count_sent(s, s.ways[found * hops + h])
    least = s.links[s.ways[found * hops + h]].load
    # The others in turn, from the one after it.
    for step in range(1, after - first):
        way = first + (start - first + step) % (after - first)
        if _same_start(s, way, before, h):
            count_sent(s, s.ways[way * hops + h])
            load = s.links[s.ways[way * hops + h]].load
            if load < least - _BYTE:
                found, least = way, load
    s.links[group].least = s.ways[found * hops + h]
    return int(found)


@kernel
def _same_start(s: State, a: int, b: int, h: int) -> bool:
    hops = s.reg[HOPS]
    i = 0
    while i < h and s.ways[a * hops + i] == s.ways[b * hops + i]:
        i += 1
    return i == h


@kernel
def settle_loads(s: State) -> None:
    """Give every link the load that it would have if the flows had sent at these rates for long.

    An engine that takes over running flows does not know what they sent before.
    """
    for link in range(len(s.links)):
        s.links[link].load = steady_load(s, link)
