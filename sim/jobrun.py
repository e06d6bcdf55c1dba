# SPDX-License-Identifier: Apache-2.0
"""A job in an engine: its tasks, links, class and iteration schedule, and its progress."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.model import REALIGN
from sim.task_graph import TaskGraph
from sim.units import NEVER


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
    the bits that each running flow still has to send, `waiting` the number of predecessors still to come.
    """

    waiting: NDArray[np.int32]
    active: NDArray[np.int8]
    left: NDArray[np.float64]
    key: NDArray[np.int64]


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

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.program.channels):
            raise ValueError(f"job {self.name}: {len(self.paths)} paths for {len(self.program.channels)}")
        if self.portions and [len(p) for p in self.portions] != [len(p or ()) for p in self.paths]:
            raise ValueError(f"job {self.name}: a path needs a portion for each of its links")
        if self.progress is None:
            size = len(self.program.kind)
            self.progress = IterationProgress(
                waiting=self.program.indegree.copy(),
                active=np.zeros(size, dtype=np.int8),
                left=np.zeros(size),
                key=np.full(size, NEVER, dtype=np.int64),
            )
            self.sent = np.zeros(len(self.paths))
            self.congested = np.zeros(len(self.paths))

    def crossed(self, channel: int) -> Iterator[tuple[int, float]]:
        """The links that a channel crosses, each with the portion of its bits."""
        path = self.paths[channel] or ()
        return zip(path, self.portions[channel] if self.portions else (1.0,) * len(path), strict=True)
