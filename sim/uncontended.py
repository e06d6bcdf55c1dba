# SPDX-License-Identifier: Apache-2.0
"""A job alone on the network: its iteration, and its profile as the planner sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.model import Phase, Profile
from sim.engine import best_engine
from sim.jobrun import JobRun
from sim.network import Network
from sim.task_graph import FLOW, TaskGraph
from sim.units import PS_PER_NS

_CLOSED = 0.01
"""Gaps of a profile below this part of the iteration are closed. Chosen."""
_FULL = 1 + 1e-9

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UncontendedRun:
    """A job alone on the network: its iteration time, the time at which its first flow begins (both in ps),
    and its profile as the planner sees it. `fastest_ps`: no rank's iteration is shorter without jitter,
    whatever the other jobs do."""

    iteration_ps: int
    lead_ps: int
    profile: Profile
    fastest_ps: int


def uncontended(built: TaskGraph, network: Network) -> UncontendedRun:
    """Compute how the task graph runs when no other job disturbs it and no link between switches is short.
    Flows of the job that send at the same time share NICs, PCIe and NVLink as they do in the simulator. The
    graph has one loop (see `program`'s `barriers`).

    Up phases are the spans in which a flow sends; short gaps are closed. The rate of a phase is that of the
    busiest channel over the phase.
    """
    edges = tuple(network.edges(channel) for channel in built.channels)
    begin, end = built.timeline(best_rates(built, network))
    fastest = max(int(end[-1]), 1)
    if _short(built, edges, network.capacity, begin, end):
        begin, end = _simulated(built, edges, network.capacity)
    length = max(int(end[-1]), 1)
    return UncontendedRun(length, *_profile(built, begin, end, length), fastest)


def best_rates(built: TaskGraph, network: Network) -> Times:
    """The highest rate in bit/s that each channel can ever get, by its cap, its NICs, PCIe and NVLink, shape
    (channels,). It is infinite within a host where nothing limits it."""
    rates = [
        min((float(network.capacity[link]) for link in network.edges(channel)), default=np.inf)
        for channel in built.channels
    ]
    return np.minimum(built.channel_limit, np.array(rates, dtype=np.float64))


def _short(
    built: TaskGraph, edges: tuple[tuple[int, ...], ...], capacity: Times, begin: Times, end: Times
) -> bool:
    """Whether flows would together send more over a link than it carries, if each had its best rate from
    `begin` to `end`."""
    tasks = np.flatnonzero((built.kind == FLOW) & (end > begin)).tolist()
    rows = [(link, task) for task in tasks for link in edges[built.channel[task]]]
    if not rows:
        return False
    link, task = np.array(rows, dtype=np.int64).T
    rate = built.bits[task] / (end[task] - begin[task]) * 1e12
    link, at = np.tile(link, 2), np.concatenate((begin[task], end[task]))
    change = np.concatenate((rate, -rate))
    # At the same time ends come before begins.
    order = np.lexsort((change, at, link))
    total = np.cumsum(change[order])
    # What is left of the links before is nothing, but for rounding.
    return bool((total > capacity[link[order]] * _FULL).any())


def _simulated(built: TaskGraph, edges: tuple[tuple[int, ...], ...], capacity: Times) -> tuple[Times, Times]:
    """When each flow begins and ends in the simulator, and in the last place when the iteration ends, in ps.
    Shapes (tasks,); the times of other tasks are 0."""
    run = JobRun("alone", built, edges, klass=0, iterations=1, ready=0)
    engine = best_engine()(capacity, np.zeros(len(capacity), np.int8), [run], 0)
    begin, end = np.zeros(len(built.kind)), np.zeros(len(built.kind))
    sending: set[int] = set()
    ended: list[str] = []
    while not ended:
        ended = engine.advance(engine.next_event())
        now = {task for _, task in engine.rates()}
        begin[list(now - sending)] = end[list(sending - now)] = engine.now
        sending = now
    end[-1] = engine.now
    return begin, end


def _profile(built: TaskGraph, begin: Times, end: Times, length: int) -> tuple[int, Profile]:
    """The time at which the first flow begins, in ps, and the profile."""
    period = max(1, length // PS_PER_NS)
    flows = np.flatnonzero((built.kind == FLOW) & (end > begin))
    if not len(flows):
        return 0, Profile(period, ())
    order = flows[np.argsort(begin[flows], kind="stable")]
    spans: list[list[float]] = []
    members: list[list[int]] = []
    for task in order:
        if spans and begin[task] - spans[-1][1] <= _CLOSED * length:
            spans[-1][1] = max(spans[-1][1], end[task])
            members[-1].append(task)
        else:
            spans.append([begin[task], end[task]])
            members.append([task])
    lead = spans[0][0]
    phases = []
    for (start, stop), tasks in zip(spans, members, strict=True):
        carried = np.zeros(len(built.channels))
        np.add.at(carried, built.channel[tasks], built.bits[tasks])
        rate = max(1, round(float(carried.max()) / max(stop - start, 1.0) * 1e12))
        first, after = int((start - lead) / PS_PER_NS), int(np.ceil((stop - lead) / PS_PER_NS))
        phases.append(Phase(first, min(max(after, first + 1), period), rate))
    return int(lead), Profile(period, tuple(phases))
