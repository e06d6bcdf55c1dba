# SPDX-License-Identifier: Apache-2.0
"""A job in an engine: its tasks, links, class and iteration schedule, and its progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.model import REALIGN
from sim.task_graph import TaskGraph
from sim.units import NEVER

Ways = tuple[tuple[int, ...], ...]
"""Paths of the same length, as links in the order of the hops."""


@dataclass(frozen=True, slots=True)
class IterationSchedule:
    """When iterations begin: at times t with (t - epoch) mod period == shift, all in ps. Period 0: at any
    time.

    With `once` only the first iteration waits for such a time. Later iterations begin when they are ready,
    until one is off by more than `late` of the period.
    """

    epoch: int = 0
    shift: int = 0
    period: int = 0
    once: bool = False
    late: float = REALIGN

    def same_slots(self, other: IterationSchedule) -> bool:
        """Whether `other` has the same slots, whatever the epoch it counts from."""
        if (self.period, self.once, self.late) != (other.period, other.once, other.late):
            return False
        return not self.period or not (self.epoch + self.shift - other.epoch - other.shift) % self.period


FREE = IterationSchedule()


def slot_delay(now: int, schedule: IterationSchedule, aligned: bool) -> int:
    """The time in ps that an iteration which is ready at `now` waits for its slot.

    `aligned` says that an iteration has already begun by this schedule.
    """
    if schedule.period <= 0:
        return 0
    offset = now - schedule.epoch - schedule.shift
    free = schedule.once and aligned
    if offset < 0 and not free:
        return -offset
    offset %= schedule.period
    tolerance = int(
        (schedule.late if free or not schedule.once else min(schedule.late, REALIGN)) * schedule.period
    )
    if offset <= tolerance or (free and schedule.period - offset <= tolerance):
        return 0
    return schedule.period - offset


@dataclass(slots=True)
class IterationProgress:
    """The progress of an iteration. `key` is the time at which each compute ends (NEVER: not running), `left`
    the bits that each running flow still has to send, `waiting` the number of predecessors still to come,
    `tokens` those that each gate has (-1: it waits for one).
    """

    waiting: NDArray[np.int32]
    tokens: NDArray[np.int32]
    active: NDArray[np.int8]
    left: NDArray[np.float64]
    key: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlowletRule:
    """When switches move a flow: after a pause of `gap` ps, to the link that has sent the least, by bytes
    that are halved every `half_life` ps."""

    gap: int
    half_life: int

    def __post_init__(self) -> None:
        if min(self.gap, self.half_life) < 1:
            raise ValueError(f"{self}: both must be 1 ps or more")


@dataclass(slots=True)
class FlowletState:
    """Where the flowlets of a job are. By queue pair, at its first channel: which `way` it takes (-1: none
    yet), and `since` when it has paused (ps). `carried` has the bits that each channel has sent by each way
    since they were booked. Shapes (channels,), (channels,), (channels, ways)."""

    way: NDArray[np.int32]
    since: NDArray[np.int64]
    carried: NDArray[np.float64]


class LoopState(Protocol):
    """How far a loop of a job is (see `TaskGraph`). The meaning of the attributes is that of JobRun's."""

    ready: int
    aligned: bool
    count: int
    begin: int
    total: int
    slot_wait: int
    longest: int
    ended: int


@dataclass(slots=True)
class RankLoop:
    """How far the loop of one rank is, where each rank has one."""

    ready: int
    aligned: bool = False
    count: int = 0
    begin: int = -1
    total: int = 0
    slot_wait: int = 0
    longest: int = 0
    ended: int = -1


_LOOP_STATE = tuple(RankLoop.__slots__)


@dataclass(slots=True)
class JobRun:
    """A job and its progress. An engine reads it when it is made and writes it back by `export`.

    `paths` holds the link numbers of each channel (empty: it crosses no link; None: no live path). `ready` is
    the time since when the job waits for its next slot, -1 while an iteration runs. `aligned` says that an
    iteration has already begun by `schedule`. `slot_wait` is the time spent waiting for slots. All times are
    in ps. Each compute time differs by up to `jitter` millionths, drawn from `salt` (see `sim.jitter`).
    `weights` are the weights of the job's flows in their class, by the part of an iteration's bytes that they
    have sent (see `sim.mltcp`); empty: always 1. `portions` are the parts of a channel's bits that cross each
    link of its path, by channel, where switches spray its packets; empty: all bits of all channels cross all.
    `ways` are the paths that a channel may take, by channel, if switches move its flowlets by `rule`. A
    channel with none of them keeps its path.

    If each rank has a loop of its own, `ranks` has their progress, and the job's is that of the rank which is
    furthest behind. `lengths` counts the iterations of all ranks.
    """

    name: str
    program: TaskGraph
    paths: tuple[tuple[int, ...] | None, ...]
    klass: int
    iterations: int
    ready: int
    schedule: IterationSchedule = FREE
    jitter: int = 0
    salt: int = 0
    weights: tuple[float, ...] = ()
    portions: tuple[tuple[float, ...], ...] = ()
    ways: tuple[Ways, ...] = ()
    rule: FlowletRule | None = None
    aligned: bool = False
    count: int = 0
    begin: int = -1
    total: int = 0
    slot_wait: int = 0
    longest: int = 0
    ended: int = -1
    progress: IterationProgress | None = None
    sent: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    congested: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    lengths: dict[int, int] = field(default_factory=dict)
    flowlets: FlowletState | None = None
    ranks: list[RankLoop] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.program.channels):
            raise ValueError(f"job {self.name}: {len(self.paths)} paths for {len(self.program.channels)}")
        if self.portions and [len(p) for p in self.portions] != [len(p or ()) for p in self.paths]:
            raise ValueError(f"job {self.name}: a path needs a portion for each of its links")
        if self.ways and self.rule is None:
            raise ValueError(f"job {self.name}: its flows may choose between paths, so it needs a rule")
        if self.ways and self.flowlets is None:
            self.flowlets = self._no_flowlets()
        if self.progress is None:
            size = len(self.program.kind)
            self.progress = IterationProgress(
                waiting=self.program.indegree.copy(),
                tokens=np.zeros(size, dtype=np.int32),
                active=np.zeros(size, dtype=np.int8),
                left=np.zeros(size),
                key=np.full(size, NEVER, dtype=np.int64),
            )
            self.sent = np.zeros(len(self.paths))
            self.congested = np.zeros(len(self.paths))

    @property
    def loops(self) -> Sequence[LoopState]:
        """The progress of each loop of the program."""
        count = len(self.program.loops) - 1
        if count == 1:
            return (self,)
        if not self.ranks:
            state = {name: getattr(self, name) for name in _LOOP_STATE}
            self.ranks = [RankLoop(**state) for _ in range(count)]
        return self.ranks

    def gather(self) -> None:
        """Take the job's progress from that of its ranks."""
        if self.ranks:
            behind = min(self.ranks, key=lambda loop: (loop.ended >= 0, loop.count, -loop.begin, -loop.ended))
            for name in _LOOP_STATE:
                setattr(self, name, getattr(behind, name))

    def send_by(
        self,
        paths: tuple[tuple[int, ...] | None, ...],
        portions: tuple[tuple[float, ...], ...],
        ways: tuple[Ways, ...],
        rule: FlowletRule | None,
    ) -> None:
        """Set what the channels cross. If the ways are others, every queue pair takes a new one when it sends
        next; book what it has sent before."""
        others = ways != self.ways
        self.paths, self.portions, self.ways, self.rule = paths, portions, ways, rule
        if others:
            self.flowlets = self._no_flowlets() if ways else None

    def booked(self) -> None:
        """What was carried by each way is booked."""
        if self.flowlets is not None:
            self.flowlets.carried[:] = 0.0

    def _no_flowlets(self) -> FlowletState:
        count = len(self.paths)
        return FlowletState(
            way=np.full(count, -1, dtype=np.int32),
            since=np.zeros(count, dtype=np.int64),
            carried=np.zeros((count, max(map(len, self.ways), default=0))),
        )

    def ways_of(self, channel: int) -> Ways:
        """The paths between which switches choose for a channel; none: it keeps its path."""
        return self.ways[channel] if self.ways else ()

    def may_cross(self, channel: int) -> Iterator[tuple[int, float]]:
        """The links that a channel crosses or may choose, each with the largest portion of its bits."""
        ways = self.ways_of(channel)
        if ways:
            return ((link, 1.0) for link in dict.fromkeys(link for way in ways for link in way))
        return self.crossed(channel)

    def best_rate(self, channel: int, limit: float, capacity: NDArray[np.float64]) -> float:
        """The highest rate in bit/s of a channel with this cap, alone on links of this capacity."""
        if ways := self.ways_of(channel):
            return float(min(limit, max(min(capacity[link] for link in way) for way in ways)))
        if self.paths[channel] is None:
            return 0.0
        return float(min([limit, *(capacity[link] / portion for link, portion in self.crossed(channel))]))

    def carried(self, channel: int, bits: float) -> Iterator[tuple[int, float]]:
        """The links over which a channel has sent, each with its bits. `bits` are those of the channel, which
        count where it has one path."""
        ways = self.ways_of(channel)
        if not ways or self.flowlets is None:
            return ((link, bits * portion) for link, portion in self.crossed(channel))
        sent = self.flowlets.carried[channel]
        return ((link, float(sent[w])) for w, way in enumerate(ways) if sent[w] for link in way)

    def crossed(self, channel: int) -> Iterator[tuple[int, float]]:
        """The links that a channel crosses now, each with the portion of its bits."""
        ways = self.ways_of(channel)
        if ways and self.flowlets is not None:
            way = self.flowlets.way[self.program.queue_pair[channel]]
            return ((link, 1.0) for link in (ways[way] if way >= 0 else ()))
        path = self.paths[channel] or ()
        return zip(path, self.portions[channel] if self.portions else (1.0,) * len(path), strict=True)


def flowlet_rule(runs: Sequence[JobRun]) -> FlowletRule | None:
    """The rule by which the switches move the flowlets of all these jobs; None if they move none.

    Raises:
        ValueError: two jobs have different rules.
    """
    rules = {run.rule for run in runs if run.rule is not None}
    if len(rules) > 1:
        raise ValueError(f"switches have one rule for flowlets, not {len(rules)}")
    return next(iter(rules), None)
