# SPDX-License-Identifier: Apache-2.0
"""Flows on links: how they join, send and leave. Each link keeps its flows in one array per class."""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.heap import drop, push
from sim.kernels.state import ACTIVE, CLASSES_IN, DIRTY, HEAP, HOPS, IDLE, NOW, STARTERS, State
from sim.units import PS_PER_S

_HORIZON = 4e18


@kernel
def schedule(s: State, task: int, at: int) -> None:
    """Set the end of a task to `at` (ps), whatever was set before."""
    s.reg[HEAP] = push(s.heap, s.place, s.reg[HEAP], task, at)


@kernel
def unschedule(s: State, task: int) -> None:
    """Remove the end of a task, because it is not known or not needed."""
    s.reg[HEAP] = drop(s.heap, s.place, s.reg[HEAP], task)


@kernel
def soil(s: State, link: int) -> None:
    """Mark a link as dirty: it has to be allocated anew."""
    if not s.links[link].is_dirty:
        s.links[link].is_dirty = 1
        s.links[s.reg[DIRTY]].dirty = link
        s.reg[DIRTY] += 1


@kernel
def join(s: State, task: int, left: float) -> None:
    """Start a flow with `left` bits to send. Its rate is 0 until the allocator has run.

    One that may choose its way waits for `flowlets.choose_ways`.
    """
    c = s.tasks[task].channel
    s.tasks[task].active = ACTIVE
    s.flows[c].task = task
    s.flows[c].limit = s.tasks[task].limit
    s.flows[c].rate = s.flows[c].bound = 0.0
    s.flows[c].bottleneck = -2
    s.channels[c].left = left
    s.channels[c].since = s.reg[NOW]
    _weigh(s, c)
    if s.first_way[c + 1] > s.first_way[c]:
        s.flowlets[s.flowlets[c].owner].sending += 1
        s.reg[STARTERS] = push(s.starters, s.waiting_at, s.reg[STARTERS], c, c)
        return
    seat(s, c)


@kernel
def seat(s: State, c: int) -> None:
    """Put a flow that begins on the links of its path."""
    hops = s.reg[HOPS]
    if s.path[c * hops] < 0:
        # Nothing that could be short is on its way: only its cap binds.
        set_rate(s, c, s.flows[c].limit, -1)
        return
    klass = s.channels[c].klass
    for h in range(c * hops, (c + 1) * hops):
        link = s.path[h]
        if link < 0:
            break
        k = link * s.reg[CLASSES_IN] + klass
        slot = s.cells[k].first + s.cells[k].count
        s.cells[k].count += 1
        s.slots[slot].flow, s.slots[slot].bound = c, 0.0
        s.slots[slot].weight = s.flows[c].weight * s.portion[h]
        s.seat[h] = slot
        s.links[link].flows_on += 1
        s.cells[k].changed = 1
        soil(s, link)


@kernel
def _weigh(s: State, c: int) -> None:
    """The weight of a flow at its bits left, and the bits left at which the weight changes."""
    steps = s.weights.shape[1]
    s.flows[c].weight, s.channels[c].mark = 1.0, 0.0
    whole = s.channels[c].whole
    if steps and whole > 0.0:
        task = s.flows[c].task
        all_bits = s.tasks[task].before + s.tasks[task].bits
        # A rounding short of a step is that step.
        step = min(int((all_bits - s.channels[c].left) / whole * steps + 1e-6), steps - 1)
        s.flows[c].weight = s.weights[s.tasks[task].job, step]
        mark = all_bits - whole * (step + 1) / steps
        # Less than a thousandth of a bit is rounding: the end.
        s.channels[c].mark = mark if mark > 1e-3 else 0.0


@kernel
def reweigh(s: State, c: int) -> None:
    """Change the weight of a flow that has sent enough for the next step."""
    settle(s, c)
    s.channels[c].left = s.channels[c].mark
    _weigh(s, c)
    s.flows[c].bottleneck = -2
    hops = s.reg[HOPS]
    if s.path[c * hops] < 0:
        set_rate(s, c, s.flows[c].limit, -1)
        return
    for h in range(c * hops, (c + 1) * hops):
        link = s.path[h]
        if link < 0:
            break
        s.slots[s.seat[h]].weight = s.flows[c].weight * s.portion[h]
        s.cells[link * s.reg[CLASSES_IN] + s.channels[c].klass].changed = 1
        soil(s, link)


@kernel
def bind(s: State, c: int, bound: float) -> None:
    """Tell the links of a flow the rate that they may count on."""
    s.flows[c].bound = bound
    hops = s.reg[HOPS]
    for h in range(c * hops, (c + 1) * hops):
        if s.path[h] < 0:
            break
        s.slots[s.seat[h]].bound = bound * s.portion[h]


@kernel
def settle(s: State, c: int) -> None:
    """Book the bits that a flow has sent since its rate was set."""
    elapsed = s.reg[NOW] - s.channels[c].since
    if elapsed <= 0:
        return
    moved = min(s.channels[c].left, s.flows[c].rate * (elapsed / PS_PER_S))
    s.channels[c].left -= moved
    _account(s, c, moved)
    s.channels[c].since = s.reg[NOW]


@kernel
def _account(s: State, c: int, moved: float) -> None:
    s.channels[c].sent += moved
    if s.first_way[c + 1] > s.first_way[c]:
        s.carried[s.first_way[c] + s.flowlets[s.flowlets[c].owner].way] += moved
    if s.channels[c].held_back:
        s.channels[c].congested += moved


@kernel
def leave(s: State, c: int) -> None:
    """End a flow that has sent all its bits, and free its links."""
    _account(s, c, s.channels[c].left)
    if s.first_way[c + 1] > s.first_way[c]:
        s.flowlets[s.flowlets[c].owner].sending -= 1
        s.flowlets[s.flowlets[c].owner].since = s.reg[NOW]
    task = s.flows[c].task
    s.tasks[task].active = IDLE
    unschedule(s, task)
    s.flows[c].task = -1
    s.channels[c].left = 0.0
    s.flows[c].rate = s.flows[c].bound = 0.0
    hops = s.reg[HOPS]
    klass = s.channels[c].klass
    for h in range(c * hops, (c + 1) * hops):
        link = s.path[h]
        if link < 0:
            break
        k = link * s.reg[CLASSES_IN] + klass
        s.cells[k].count -= 1
        last, slot = s.cells[k].first + s.cells[k].count, s.seat[h]
        if slot != last:
            # The last takes its seat; its own hop over this link is found by looking.
            moved = s.slots[last].flow
            s.slots[slot].flow, s.slots[slot].weight = moved, s.slots[last].weight
            s.slots[slot].bound = s.slots[last].bound
            other = moved * hops
            while s.path[other] != link:
                other += 1
            s.seat[other] = slot
        s.links[link].flows_on -= 1
        s.cells[k].changed = 1
        soil(s, link)


@kernel
def set_rate(s: State, c: int, rate: float, bottleneck: int) -> None:
    """Set the rate of a flow from now on, and move its end accordingly."""
    s.flows[c].bottleneck = bottleneck
    s.channels[c].held_back = at_switch(s, bottleneck)
    s.flows[c].rate = s.flows[c].bound = rate
    if rate > 0.0:
        needs = (s.channels[c].left - s.channels[c].mark) / rate * PS_PER_S
        if needs < _HORIZON:
            schedule(s, s.flows[c].task, s.reg[NOW] + int(needs + 0.5))
            return
    unschedule(s, s.flows[c].task)


@kernel
def at_switch(s: State, bottleneck: int) -> bool:
    """Whether a bottleneck is a switch port that marks ECN and that other flows use too."""
    if bottleneck < 0 or not s.links[bottleneck].marks:
        return False
    return bool(s.links[bottleneck].flows_on > 1)
