# SPDX-License-Identifier: Apache-2.0
"""Strict-priority, weighted max-min rates by local repair.

A rate is right if the flow is at its cap, or if it has a bottleneck: a link that its class and the classes
above fill, and on which no flow of its class has a higher level. The level of a flow is its rate divided by
its weight. By induction over the classes this condition is necessary and sufficient, so a bottleneck proves a
rate.

An event breaks the proofs of some flows only. These flows are allocated anew, then the flows whose proofs
this breaks, in the order of their levels (`levels`), until no proof is broken. All other flows keep links
that nothing touched, so their proofs still hold.
"""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.flowlets import count_sent
from sim.kernels.flows import at_switch, bind, set_rate, settle, soil
from sim.kernels.levels import TOLERANCE, available, enter, loosen, rise
from sim.kernels.state import (
    CLASSES_IN,
    DIRTY,
    FLOWS_IN,
    FULL,
    HALF_LIFE,
    HOPS,
    LINKS_IN,
    REPAIRS,
    STAMP,
    TOUCHED,
    State,
)

FULL_WITHIN = 1e-9
"""Of a link's capacity: with less than this to spare it is full for the classes below."""
_SAME = 1e-12


@kernel
def repair(s: State) -> None:
    """Make all rates right again after the flows on the dirty links changed."""
    s.reg[REPAIRS] += 1
    for klass in range(s.reg[CLASSES_IN]):
        s.reg[STAMP] += 1
        s.reg[FLOWS_IN] = s.reg[LINKS_IN] = 0
        if s.reg[FULL]:
            _seed_all(s, klass)
        _seed(s, klass)
        if s.reg[LINKS_IN]:
            rise(s, klass)
            _apply(s, klass)
    for i in range(s.reg[DIRTY]):
        s.links[s.links[i].dirty].is_dirty = 0
    s.reg[DIRTY] = 0


@kernel
def _seed(s: State, klass: int) -> None:
    """The links where the flows of this class, or the bandwidth left to it, changed; and the flows that
    joined.
    """
    for i in range(s.reg[DIRTY]):
        link = s.links[i].dirty
        k = link * s.reg[CLASSES_IN] + klass
        if not s.cells[k].changed:
            if not s.cells[k].count:
                continue
            room, before = available(s, link, klass), s.cells[k].solved
            if abs(room - before) <= TOLERANCE * s.links[link].cap:
                continue
            # Who does not fill a link has no bottleneck there: nothing to prove anew.
            if s.cells[k].used < min(room, before - 2.0 * FULL_WITHIN * s.links[link].cap):
                s.cells[k].solved = room
                continue
        elif not s.cells[k].count:
            s.cells[k].changed = 0
            s.cells[k].solved = -1.0
            _use(s, link, klass, 0.0)
            continue
        else:
            s.cells[k].changed = 0
            s.links[link].check = 1
            for slot in range(s.cells[k].first, s.cells[k].first + s.cells[k].count):
                c = s.slots[slot].flow
                if s.flows[c].bottleneck == -2 and s.flows[c].in_region != s.reg[STAMP]:
                    loosen(s, klass, c, -1.0)
        enter(s, klass, link)


@kernel
def _seed_all(s: State, klass: int) -> None:
    """Every flow and every link: a full re-solve."""
    for link in range(len(s.links)):
        k = link * s.reg[CLASSES_IN] + klass
        if s.cells[k].count:
            enter(s, klass, link)
        for slot in range(s.cells[k].first, s.cells[k].first + s.cells[k].count):
            c = s.slots[slot].flow
            if s.flows[c].in_region != s.reg[STAMP]:
                loosen(s, klass, c, -1.0)


@kernel
def _apply(s: State, klass: int) -> None:
    """Set the new rates of the region. A link with a change becomes dirty for the classes below."""
    hops = s.reg[HOPS]
    s.reg[TOUCHED] += s.reg[FLOWS_IN]
    for i in range(s.reg[FLOWS_IN]):
        c = s.flows[i].region
        rate, at = s.flows[c].bound, s.flows[c].fresh_at
        if s.flows[c].bottleneck != -2 and abs(rate - s.flows[c].rate) <= _SAME * rate:
            bind(s, c, s.flows[c].rate)
            if s.flows[c].bottleneck != at:
                settle(s, c)
                s.flows[c].bottleneck = at
                s.channels[c].held_back = at_switch(s, at)
            continue
        settle(s, c)
        set_rate(s, c, rate, at)
        for h in range(c * hops, (c + 1) * hops):
            link = s.path[h]
            if link < 0:
                break
            s.links[link].check = 1
    for i in range(s.reg[LINKS_IN]):
        link = s.links[i].region
        if s.links[link].check:
            s.links[link].check = 0
            k = link * s.reg[CLASSES_IN] + klass
            total = 0.0
            for slot in range(s.cells[k].first, s.cells[k].first + s.cells[k].count):
                total += s.slots[slot].bound
            if total != s.cells[k].used:
                soil(s, link)
                _use(s, link, klass, total)


@kernel
def _use(s: State, link: int, klass: int, total: float) -> None:
    """Record what a class uses of a link, and which class fills the link."""
    if s.reg[HALF_LIFE]:
        count_sent(s, link)
    classes = s.reg[CLASSES_IN]
    s.cells[link * classes + klass].used = total
    room = s.links[link].cap * (1.0 - FULL_WITHIN)
    at = 0
    while at < classes:
        room -= s.cells[link * classes + at].used
        if room <= 0.0:
            break
        at += 1
    s.links[link].full_at = at
