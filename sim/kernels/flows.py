# SPDX-License-Identifier: Apache-2.0
"""Flows on links: how they come, send and go. Each link keeps a list of its flows per class."""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.heap import put, remove
from sim.kernels.state import ACTIVE, DIRTY, HOPS, IDLE, KLASS, NOW, State
from sim.units import CLASSES, PS_PER_S

_HORIZON = 4e18


@kernel
def soil(s: State, link: int) -> None:
    """Remember that a link has to be looked at."""
    if not s.links[link].is_dirty:
        s.links[link].is_dirty = 1
        s.links[s.reg[DIRTY]].dirty = link
        s.reg[DIRTY] += 1


@kernel
def join(s: State, f: int, left: float) -> None:
    """A flow with `left` bits to send begins; its rate is 0 until the allocator has run."""
    hops = s.reg[HOPS]
    at = s.tasks[f].channel * hops
    klass = s.jobs[s.tasks[f].job, KLASS]
    s.tasks[f].active = ACTIVE
    s.tasks[f].left = left
    s.tasks[f].since = s.reg[NOW]
    s.tasks[f].rate = 0.0
    s.tasks[f].bottleneck = -2
    if s.path[at] < 0:
        # Nothing that could be short is on its way: only its cap binds.
        set_rate(s, f, s.tasks[f].limit, -1)
        return
    for h in range(hops):
        link = s.path[at + h]
        if link < 0:
            break
        node, k = f * hops + h, link * CLASSES + klass
        first = s.cells[k].head
        s.nodes[node].following, s.nodes[node].preceding = first, -1
        if first >= 0:
            s.nodes[first].preceding = node
        s.cells[k].head = node
        s.links[link].flows_on += 1
        s.cells[k].changed = 1
        soil(s, link)


@kernel
def settle(s: State, f: int) -> None:
    """Account for what a flow has sent since its rate was set."""
    elapsed = s.reg[NOW] - s.tasks[f].since
    if elapsed <= 0:
        return
    moved = min(s.tasks[f].left, s.tasks[f].rate * (elapsed / PS_PER_S))
    s.tasks[f].left -= moved
    _account(s, f, moved)
    s.tasks[f].since = s.reg[NOW]


@kernel
def _account(s: State, f: int, moved: float) -> None:
    channel = s.tasks[f].channel
    s.channels[channel].sent += moved
    if s.tasks[f].held_back:
        s.channels[channel].congested += moved


@kernel
def leave(s: State, f: int) -> None:
    """A flow has sent all: it gives its links back."""
    _account(s, f, s.tasks[f].left)
    s.tasks[f].left = 0.0
    s.tasks[f].active = IDLE
    s.tasks[f].rate = 0.0
    remove(s, f)
    hops = s.reg[HOPS]
    at = s.tasks[f].channel * hops
    klass = s.jobs[s.tasks[f].job, KLASS]
    for h in range(hops):
        link = s.path[at + h]
        if link < 0:
            break
        node, k = f * hops + h, link * CLASSES + klass
        before, after = s.nodes[node].preceding, s.nodes[node].following
        if before >= 0:
            s.nodes[before].following = after
        else:
            s.cells[k].head = after
        if after >= 0:
            s.nodes[after].preceding = before
        s.links[link].flows_on -= 1
        s.cells[k].changed = 1
        soil(s, link)


@kernel
def set_rate(s: State, f: int, rate: float, bottleneck: int) -> None:
    """From now on a flow sends at `rate`; its end moves accordingly."""
    s.tasks[f].bottleneck = bottleneck
    s.tasks[f].held_back = bottleneck >= 0 and s.links[bottleneck].marks and s.links[bottleneck].flows_on > 1
    s.tasks[f].rate = rate
    if rate > 0.0:
        needs = s.tasks[f].left / rate * PS_PER_S
        if needs < _HORIZON:
            put(s, f, s.reg[NOW] + int(needs + 0.5))
            return
    remove(s, f)
