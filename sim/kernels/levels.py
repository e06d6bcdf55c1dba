# SPDX-License-Identifier: Apache-2.0
"""Water filling in one pass: links stop flows in the order of their levels.

The `bound` of a flow is the rate that its links may count on: its rate while nothing has touched it, its cap
once it may rise, its new rate once a link has stopped it. The level of a link is the level at which its
flows, limited by these bounds, fill it. The lowest level of all is final, because everything that follows
stops flows at higher levels. What lies below it need not be looked at again. So the cost of a change is the
part above it that depends on it, visited once.
"""

from __future__ import annotations

import math

from sim.kernels.compiler import kernel
from sim.kernels.flows import bind
from sim.kernels.heap import down, drop, push
from sim.kernels.state import CLASSES_IN, FLOWS_IN, HOPS, LEVELS, LINKS_IN, STAMP, State

TOLERANCE = 1e-11
"""Of a link's capacity: what differs by less is equal."""
_SAME = 1e-12


@kernel
def available(s: State, link: int, klass: int) -> float:
    """The bit/s that the classes above leave on a link."""
    room: float = s.links[link].cap
    at = link * s.reg[CLASSES_IN]
    for above in range(klass):
        room -= s.cells[at + above].used
    return max(room, 0.0)


@kernel
def enter(s: State, klass: int, link: int) -> None:
    """Add a link to the region and compute what there is to share."""
    if s.links[link].in_region == s.reg[STAMP]:
        return
    s.links[link].in_region = s.reg[STAMP]
    s.links[s.reg[LINKS_IN]].region = link
    s.reg[LINKS_IN] += 1
    room = available(s, link, klass)
    s.cells[link * s.reg[CLASSES_IN] + klass].solved = room
    s.links[link].room = room if room > TOLERANCE * s.links[link].cap else 0.0


@kernel
def _touch(s: State, klass: int, link: int, level: float) -> None:
    """The bound of a flow on a link has changed: compute the level of the link again at `level`. Below 0: at
    the start.
    """
    enter(s, klass, link)
    if level < 0.0:
        return
    if s.rank[link] < 0 or s.levels[s.rank[link]].key > level:
        s.reg[LEVELS] = push(s.levels, s.rank, s.reg[LEVELS], link, level)


@kernel
def loosen(s: State, klass: int, c: int, level: float) -> None:
    """Let a flow rise up to its cap. A flow that stands still stays, if a link that the classes above fill is
    enough proof that it must. Most flows of an overloaded fabric are so.
    """
    hops = s.reg[HOPS]
    at = c * hops
    if s.flows[c].rate == 0.0:
        for h in range(at, at + hops):
            link = s.path[h]
            if link < 0:
                break
            if s.links[link].full_at < klass:
                s.flows[c].bottleneck = link
                return
    _include(s, c)
    bind(s, c, s.flows[c].limit)
    s.flows[c].fresh_at = -1
    for h in range(at, at + hops):
        link = s.path[h]
        if link < 0:
            break
        _touch(s, klass, link, level)


@kernel
def _include(s: State, c: int) -> None:
    s.flows[c].in_region = s.reg[STAMP]
    s.flows[s.reg[FLOWS_IN]].region = c
    s.reg[FLOWS_IN] += 1


@kernel
def _level(s: State, klass: int, link: int) -> tuple[float, float]:
    """The level at which a link is full (inf: never), and the lowest level at which a flow with its
    bottleneck here might rise (inf: none).
    """
    k = link * s.reg[CLASSES_IN] + klass
    room, margin = s.links[link].room, TOLERANCE * s.links[link].cap
    first = s.cells[k].first
    after = first + s.cells[k].count
    total, weights, highest = 0.0, 0.0, 0.0
    for i in range(first, after):
        total += s.slots[i].bound
        weights += s.slots[i].weight
        highest = max(highest, s.slots[i].bound / s.slots[i].weight)
    share = math.inf
    if total > room + margin:
        share = room / weights
        while share > 0.0:
            total, weights = 0.0, 0.0
            for i in range(first, after):
                if s.slots[i].bound < s.slots[i].weight * share:
                    total += s.slots[i].bound
                else:
                    weights += s.slots[i].weight
            following = (room - total) / weights if weights > 0.0 else math.inf
            if following <= share * (1.0 + _SAME):
                break
            share = following
    elif total < room - margin:
        highest = math.inf
    lowest = math.inf
    for i in range(first, after):
        level = s.slots[i].bound / s.slots[i].weight
        if level < min(share, highest) - margin and level < lowest:
            c = s.slots[i].flow
            if s.flows[c].bottleneck == link and s.flows[c].in_region != s.reg[STAMP]:
                lowest = level
    return share, lowest


@kernel
def _fix(s: State, klass: int, c: int, rate: float, at: int, level: float) -> None:
    """Set the rate of a flow of the region by the link `at`."""
    bind(s, c, rate)
    s.flows[c].fresh_at = at
    s.flows[c].fixed = s.reg[STAMP]
    hops = s.reg[HOPS]
    for h in range(c * hops, (c + 1) * hops):
        link = s.path[h]
        if link < 0:
            break
        # A link that waits for its turn will find its level no lower than it thought.
        if link != at and s.rank[link] < 0:
            _touch(s, klass, link, level)


@kernel
def _stop(s: State, klass: int, link: int, share: float, level: float) -> None:
    """A link is full: stop all flows above its level there."""
    k, margin = link * s.reg[CLASSES_IN] + klass, TOLERANCE * s.links[link].cap
    for i in range(s.cells[k].first, s.cells[k].first + s.cells[k].count):
        used = s.slots[i].weight * share
        if s.slots[i].bound < used - margin:
            continue
        c = s.slots[i].flow
        if s.flows[c].in_region != s.reg[STAMP]:
            if s.slots[i].bound <= used + margin:
                continue
            _include(s, c)
        elif s.flows[c].fixed == s.reg[STAMP]:
            continue
        _fix(s, klass, c, min(s.flows[c].weight * share, s.flows[c].limit), link, level)


@kernel
def _loosen_all(s: State, klass: int, link: int, upto: float, level: float) -> None:
    """Let the flows with their bottleneck here, at levels up to `upto`, rise."""
    k = link * s.reg[CLASSES_IN] + klass
    for i in range(s.cells[k].first, s.cells[k].first + s.cells[k].count):
        if s.slots[i].bound <= upto * s.slots[i].weight:
            c = s.slots[i].flow
            if s.flows[c].bottleneck == link and s.flows[c].in_region != s.reg[STAMP]:
                loosen(s, klass, c, level)


@kernel
def rise(s: State, klass: int) -> None:
    """Raise the level until no link of the region could stop a flow.

    Afterwards `bound` is the rate of each flow of the region, and `fresh_at` the link that stopped it (-1:
    its cap).
    """
    level = 0.0
    for i in range(s.reg[LINKS_IN]):
        link = s.links[i].region
        share, lowest = _level(s, klass, link)
        first = min(share, lowest)
        if first < math.inf:
            s.reg[LEVELS] = push(s.levels, s.rank, s.reg[LEVELS], link, first)
    while s.reg[LEVELS]:
        link = s.levels[0].id
        level = max(level, s.levels[0].key)
        share, lowest = _level(s, klass, link)
        first = min(share, lowest)
        if first == math.inf:
            s.reg[LEVELS] = drop(s.levels, s.rank, s.reg[LEVELS], link)
        elif first > level * (1.0 + _SAME):
            s.levels[0].key = first
            down(s.levels, s.rank, s.reg[LEVELS], 0)
        elif lowest < share:
            _loosen_all(s, klass, link, max(level, lowest) * (1.0 + _SAME), level)
        else:
            s.reg[LEVELS] = drop(s.levels, s.rank, s.reg[LEVELS], link)
            # Equal levels that rounding has set apart are one, so that their flows end together.
            _stop(s, klass, link, level if share >= level * (1.0 - _SAME) else share, level)
