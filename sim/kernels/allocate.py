# SPDX-License-Identifier: Apache-2.0
"""Strict-priority max-min rates by local repair.

A rate is right if every flow is at its cap, or has a bottleneck: a link that its class and those above
fill, and on which no flow of its class is faster. (By induction over the classes that is necessary and
sufficient.) After an event only those flows are allocated anew whose proof it broke; then the proofs of
all flows on the links they use are checked, and whoever has lost its bottleneck joins the region, until
nobody has. Flows elsewhere keep links that nothing touched, hence their proofs.
"""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.flows import set_rate, settle, soil
from sim.kernels.levels import fill
from sim.kernels.state import DIRTY, FULL, HOPS, REPAIRS, STAMP, TOUCHED, State
from sim.units import CLASSES

# Relative to the link's rate: a link this full is full, a rate this much higher is higher. Completion
# times are promised to 1e-6.
_TOLERANCE = 1e-9
_SAME = 1e-12


@kernel
def repair(s: State) -> None:
    """Make all rates right again after the flows on the dirty links changed."""
    s.reg[REPAIRS] += 1
    for klass in range(CLASSES):
        s.reg[STAMP] += 1
        flows = _seeds(s, klass)
        if flows:
            _allocate(s, klass, flows)
    for i in range(s.reg[DIRTY]):
        s.links[s.links[i].dirty].is_dirty = 0
    s.reg[DIRTY] = 0


@kernel
def _available(s: State, link: int, klass: int) -> float:
    """What the classes above leave of a link."""
    room: float = s.links[link].cap
    for above in range(klass):
        room -= s.cells[link * CLASSES + above].used
    return max(room, 0.0)


@kernel
def _include(s: State, f: int, flows: int) -> int:
    """Put a flow into the region, once; returns the region's size."""
    if s.tasks[f].in_region != s.reg[STAMP]:
        s.tasks[f].in_region = s.reg[STAMP]
        s.tasks[flows].region = f
        flows += 1
    return flows


@kernel
def _consider(s: State, klass: int, f: int, flows: int) -> int:
    """Put a flow into the region, unless it stands still and a link that the classes above fill is proof
    enough that it has to: most flows of an overloaded fabric are like that."""
    if s.tasks[f].rate == 0.0 and s.tasks[f].in_region != s.reg[STAMP]:
        hops = s.reg[HOPS]
        at = s.tasks[f].channel * hops
        for h in range(hops):
            link = s.path[at + h]
            if link < 0:
                break
            if s.links[link].full_at < klass:
                s.tasks[f].bottleneck = link
                return flows
    return _include(s, f, flows)


@kernel
def _use(s: State, link: int, klass: int, total: float) -> None:
    """Note what a class uses of a link, and with which class the link is full."""
    s.cells[link * CLASSES + klass].used = total
    room = s.links[link].cap * (1.0 - _TOLERANCE)
    at = 0
    while at < CLASSES:
        room -= s.cells[link * CLASSES + at].used
        if room <= 0.0:
            break
        at += 1
    s.links[link].full_at = at


@kernel
def _seeds(s: State, klass: int) -> int:
    """The flows of a class whose proof the changes may have broken."""
    flows = 0
    if s.reg[FULL]:
        for link in range(len(s.links)):
            node = s.cells[link * CLASSES + klass].head
            while node >= 0:
                flows = _include(s, s.nodes[node].flow, flows)
                node = s.nodes[node].following
    for i in range(s.reg[DIRTY]):
        link = s.links[i].dirty
        k = link * CLASSES + klass
        if s.cells[k].head < 0:
            if s.cells[k].changed:
                s.cells[k].changed = 0
                s.cells[k].solved = -1.0
                _use(s, link, klass, 0.0)
            continue
        margin = _TOLERANCE * s.links[link].cap
        room = _available(s, link, klass)
        if not s.cells[k].changed and abs(room - s.cells[k].solved) <= margin:
            continue
        s.cells[k].changed = 0
        s.cells[k].solved = room
        total = 0.0
        node = s.cells[k].head
        while node >= 0:
            f = s.nodes[node].flow
            total += s.tasks[f].rate
            if s.tasks[f].bottleneck == link or s.tasks[f].bottleneck == -2:
                flows = _consider(s, klass, f, flows)
            node = s.nodes[node].following
        _use(s, link, klass, total)
        if total > room + margin:
            node = s.cells[k].head
            while node >= 0:
                f = s.nodes[node].flow
                if s.tasks[f].rate > 0.0:
                    flows = _include(s, f, flows)
                node = s.nodes[node].following
    return flows


@kernel
def _allocate(s: State, klass: int, flows: int) -> None:
    """Allocate the region's flows anew and let it grow until every proof holds; then put the rates in
    force. What changed on a link makes it dirty for the classes below."""
    links, known = 0, 0
    while True:
        links = _widen(s, klass, known, flows, links)
        known = flows
        s.reg[TOUCHED] += flows
        fill(s, klass, flows, links)
        for i in range(flows):
            _compare(s, s.tasks[i].region)
        for i in range(links):
            link = s.links[i].region
            if s.links[link].check:
                s.links[link].check = 0
                flows = _disproved(s, klass, link, flows)
        if flows == known:
            break
    for i in range(flows):
        f = s.tasks[i].region
        if s.tasks[f].bottleneck == -2 or abs(s.tasks[f].fresh - s.tasks[f].rate) > _SAME * s.tasks[f].fresh:
            settle(s, f)
            set_rate(s, f, s.tasks[f].fresh, s.tasks[f].fresh_at)
            # Its links have to sum anew what they carry.
            s.tasks[f].earlier = -1.0
            _compare(s, f)
        else:
            s.tasks[f].bottleneck = s.tasks[f].fresh_at
    for i in range(links):
        link = s.links[i].region
        k = link * CLASSES + klass
        if s.links[link].check:
            s.links[link].check = 0
            total = 0.0
            node = s.cells[k].head
            while node >= 0:
                total += s.tasks[s.nodes[node].flow].rate
                node = s.nodes[node].following
            if total != s.cells[k].used:
                soil(s, link)
                _use(s, link, klass, total)
        s.cells[k].solved = _available(s, link, klass)


@kernel
def _widen(s: State, klass: int, known: int, flows: int, links: int) -> int:
    """Take in the links of the flows that joined the region; returns how many links it has.

    Each link learns what the flows outside leave to the region, and how many of its flows it carries. Its
    list is read once; flows that join later only add what they had.
    """
    hops = s.reg[HOPS]
    for i in range(known, flows):
        f = s.tasks[i].region
        s.tasks[f].earlier = -1.0
        at = s.tasks[f].channel * hops
        for h in range(hops):
            link = s.path[at + h]
            if link < 0:
                break
            if s.links[link].in_region != s.reg[STAMP]:
                s.links[link].in_region = s.reg[STAMP]
                s.links[link].born = flows
                s.links[link].check = 0
                s.links[links].region = link
                links += 1
                _read(s, klass, link)
            elif s.links[link].born != flows:
                s.links[link].base += s.tasks[f].rate
                s.links[link].base_count += 1
    return links


@kernel
def _read(s: State, klass: int, link: int) -> None:
    room, count = _available(s, link, klass), 0
    node = s.cells[link * CLASSES + klass].head
    while node >= 0:
        f = s.nodes[node].flow
        if s.tasks[f].in_region == s.reg[STAMP]:
            count += 1
        else:
            room -= s.tasks[f].rate
        node = s.nodes[node].following
    s.links[link].base = room
    s.links[link].base_count = count


@kernel
def _compare(s: State, f: int) -> None:
    """If a flow's new rate is not that of the round before, the proofs on its links are to be checked."""
    if s.tasks[f].fresh == s.tasks[f].earlier and s.tasks[f].fresh_at == s.tasks[f].earlier_at:
        return
    s.tasks[f].earlier = s.tasks[f].fresh
    s.tasks[f].earlier_at = s.tasks[f].fresh_at
    hops = s.reg[HOPS]
    at = s.tasks[f].channel * hops
    for h in range(hops):
        link = s.path[at + h]
        if link < 0:
            break
        s.links[link].check = 1


@kernel
def _disproved(s: State, klass: int, link: int, flows: int) -> int:
    """Add to the region the flows on a link whose proof fails, or that break another's."""
    total, highest, lowest = 0.0, 0.0, -1.0
    first = s.cells[link * CLASSES + klass].head
    node = first
    while node >= 0:
        f = s.nodes[node].flow
        if s.tasks[f].in_region == s.reg[STAMP]:
            rate = s.tasks[f].fresh
            if s.tasks[f].fresh_at == link and (lowest < 0.0 or rate < lowest):
                lowest = rate
        else:
            rate = s.tasks[f].rate
        total += rate
        highest = max(highest, rate)
        node = s.nodes[node].following
    full = total >= _available(s, link, klass) - _TOLERANCE * s.links[link].cap
    margin = _TOLERANCE * s.links[link].cap
    node = first
    while node >= 0:
        f = s.nodes[node].flow
        if s.tasks[f].in_region != s.reg[STAMP] and (
            (s.tasks[f].bottleneck == link and (not full or s.tasks[f].rate < highest - margin))
            or (lowest >= 0.0 and s.tasks[f].rate > lowest + margin)
        ):
            flows = _consider(s, klass, f, flows)
        node = s.nodes[node].following
    return flows
