# SPDX-License-Identifier: Apache-2.0
"""One iteration of a job as a graph of tasks: compute spans, flows, barriers and gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.units import PS_PER_S

COMPUTE, FLOW, BARRIER, GATE = 0, 1, 2, 3


class TaskGraphError(ValueError):
    """No job can run this graph. The message names the part that is wrong."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A queue pair in one collective: its tasks are one after another. `flow` names it for the planner
    (several channels may be one flow: the same QP in another phase)."""

    src: str
    dst: str
    flow: str


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in topological order, of one loop after another. The first task of a loop is its root, the last
    its sink, to which all lead. A job whose hosts wait for one another has one loop, else each host has one.

    `bits` are on the wire, `limit` is a flow's rate cap in bit/s (inf: none), `span` a compute's ps.
    `succ[succ_at[i]:succ_at[i + 1]]` wait for task i, in the same loop. `gives[i]` is the gate, usually of
    another loop, that task i gives a token to when it ends (-1: none). A gate ends when the tasks before it
    have ended and it has taken a token; tokens wait for later iterations. Loop n has the tasks
    `loops[n]:loops[n + 1]`. `busy_ps` is the GPUs' compute per iteration.
    """

    channels: tuple[Channel, ...]
    kind: NDArray[np.int8]
    bits: NDArray[np.float64]
    limit: NDArray[np.float64]
    span: NDArray[np.int64]
    channel: NDArray[np.int32]
    indegree: NDArray[np.int32]
    succ_at: NDArray[np.int64]
    succ: NDArray[np.int32]
    gives: NDArray[np.int32]
    loops: NDArray[np.int64]
    busy_ps: int

    @cached_property
    def channel_limit(self) -> NDArray[np.float64]:
        """The highest cap of each channel's tasks, bit/s, shape (channels,)."""
        limits = np.zeros(len(self.channels))
        flows = self.kind == FLOW
        np.maximum.at(limits, self.channel[flows], self.limit[flows])
        return limits

    @cached_property
    def channel_bits(self) -> NDArray[np.float64]:
        """The bits of each channel in an iteration, shape (channels,)."""
        total = np.zeros(len(self.channels))
        flows = self.kind == FLOW
        np.add.at(total, self.channel[flows], self.bits[flows])
        return total

    @cached_property
    def before(self) -> NDArray[np.float64]:
        """The bits that a flow's queue pair sends before it in an iteration, in all its channels, in the
        order of the tasks, shape (tasks,)."""
        sent: dict[str, float] = {}
        found = np.zeros(len(self.kind))
        for task in np.flatnonzero(self.kind == FLOW).tolist():
            name = self.channels[self.channel[task]].flow
            found[task] = sent.get(name, 0.0)
            sent[name] = found[task] + self.bits[task]
        return found

    @cached_property
    def whole(self) -> NDArray[np.float64]:
        """The bits of each channel's queue pair in an iteration, in all its channels, shape (channels,)."""
        total: dict[str, float] = {}
        for channel, bits in zip(self.channels, self.channel_bits.tolist(), strict=True):
            total[channel.flow] = total.get(channel.flow, 0.0) + bits
        return np.array([total[channel.flow] for channel in self.channels])

    @cached_property
    def queue_pair(self) -> NDArray[np.int32]:
        """The first channel of each channel's queue pair, shape (channels,)."""
        first: dict[str, int] = {}
        return np.array([first.setdefault(c.flow, i) for i, c in enumerate(self.channels)], dtype=np.int32)

    def timeline(self, channel_bps: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Each task's earliest begin and end in ps, if every flow got the best rate of its channel
        (`channel_bps`, shape (channels,)) or its cap, and no gate waited for its token: no allocation can be
        faster. Shapes (tasks,)."""
        cost = self.span.astype(np.float64)
        flows = np.flatnonzero(self.kind == FLOW)
        best = np.minimum(channel_bps[self.channel[flows]], self.limit[flows])
        cost[flows] = self.bits[flows] / best * PS_PER_S
        begin = np.zeros(len(cost))
        costs, at, succ, begins = cost.tolist(), self.succ_at.tolist(), self.succ.tolist(), begin.tolist()
        for task, own in enumerate(costs):
            end = begins[task] + own
            for other in succ[at[task] : at[task + 1]]:
                begins[other] = max(begins[other], end)
        begin = np.array(begins)
        return begin, begin + cost


class TaskGraphBuilder:
    """Makes a TaskGraph task by task. Each method takes the tasks to wait for (none: the loop's root) and
    returns the new task's number."""

    def __init__(self) -> None:
        self._kind: list[int] = [BARRIER]
        self._bits: list[float] = [0.0]
        self._limit: list[float] = [np.inf]
        self._span: list[int] = [0]
        self._channel: list[int] = [0]
        self._after: list[Sequence[int]] = [()]
        self._gives: dict[int, int] = {}
        self._roots = [0]
        self._channels: list[Channel] = []

    def compute(self, after: Iterable[int], span_ps: int) -> int:
        """A span of compute."""
        if span_ps < 0:
            raise TaskGraphError(f"a compute of {span_ps} ps: it cannot be negative")
        return self._add(COMPUTE, after, span=span_ps)

    def barrier(self, after: Iterable[int]) -> int:
        """Waits for several tasks and takes no time."""
        return self._add(BARRIER, after)

    def gate(self, after: Iterable[int]) -> int:
        """Waits for a token as well (see `give`), and takes no time."""
        return self._add(GATE, after)

    def give(self, task: int, gate: int) -> None:
        """When `task` ends, it gives `gate` a token. A task gives to one gate."""
        if self._kind[gate] != GATE or task in self._gives:
            raise TaskGraphError(f"task {task} cannot give a token to task {gate}")
        self._gives[task] = gate

    def next_loop(self) -> None:
        """The loop of the tasks so far is complete: the tasks from here on are of another one."""
        self._close_loop()
        self._roots.append(len(self._kind))
        self._append(BARRIER, ())

    def channel(self, src: str, dst: str, flow: str) -> int:
        """A new channel; returns its number."""
        self._channels.append(Channel(src, dst, flow))
        return len(self._channels) - 1

    def flow(self, after: Iterable[int], channel: int, bits: float, limit: float = np.inf) -> int:
        """`bits` over a channel at `limit` bit/s or less. Flows of a channel must follow one another."""
        if not 0 <= bits < np.inf or not limit > 0:
            raise TaskGraphError(f"a flow of {bits} bits at {limit} bit/s: both must be positive")
        return self._add(FLOW, after, bits=bits, limit=limit, channel=channel)

    def build(self, busy_ps: int | None = None) -> TaskGraph:
        """The program, with a sink behind all of a loop that nothing waits for. `busy_ps` defaults to the
        sum of the compute spans."""
        self._close_loop()
        size = len(self._kind)
        gives = np.full(size, -1, dtype=np.int32)
        gives[list(self._gives)] = list(self._gives.values())
        succ: list[list[int]] = [[] for _ in range(size)]
        for task, after in enumerate(self._after):
            for before in after:
                succ[before].append(task)
        counts = np.array([0, *(len(s) for s in succ)], dtype=np.int64)
        return TaskGraph(
            channels=tuple(self._channels),
            kind=np.array(self._kind, dtype=np.int8),
            bits=np.array(self._bits),
            limit=np.array(self._limit),
            span=np.array(self._span, dtype=np.int64),
            channel=np.array(self._channel, dtype=np.int32),
            indegree=np.array([len(a) for a in self._after], dtype=np.int32),
            succ_at=np.cumsum(counts),
            succ=np.array([t for s in succ for t in s], dtype=np.int32),
            gives=gives,
            loops=np.array([*self._roots, size], dtype=np.int64),
            busy_ps=sum(self._span) if busy_ps is None else busy_ps,
        )

    def _add(
        self,
        kind: int,
        after: Iterable[int],
        *,
        bits: float = 0.0,
        limit: float = np.inf,
        span: int = 0,
        channel: int = 0,
    ) -> int:
        root, task = self._roots[-1], len(self._kind)
        before = tuple(dict.fromkeys(after)) or (root,)
        if not all(root <= b < task for b in before):
            raise TaskGraphError(f"task {task} waits for {before}, which are not all there yet in its loop")
        return self._append(kind, before, bits=bits, limit=limit, span=span, channel=channel)

    def _close_loop(self) -> None:
        waited_for = {task for after in self._after for task in after}
        self._add(BARRIER, [t for t in range(self._roots[-1], len(self._kind)) if t not in waited_for])

    def _append(
        self,
        kind: int,
        before: Sequence[int],
        *,
        bits: float = 0.0,
        limit: float = np.inf,
        span: int = 0,
        channel: int = 0,
    ) -> int:
        self._kind.append(kind)
        self._bits.append(float(bits))
        self._limit.append(float(limit))
        self._span.append(span)
        self._channel.append(channel)
        self._after.append(before)
        return len(self._kind) - 1
