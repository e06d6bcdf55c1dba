# SPDX-License-Identifier: Apache-2.0
"""Jobs on links as a fluid: how long their iterations take under a choice, with jitter from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.interleave.jitter import PRIME, draw
from controller.interleave.joint.parts import Part
from controller.interleave.joint.values import Instance

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LATE = 0.05
"""Part of a period by which an iteration may begin late before it waits for its next slot: the agents' rule
(CASSINI thesis 4.4.2, step 3)."""
SLOPE, INTERCEPT = 1.75, 0.25
"""MLTCP's F(r) = SLOPE r + INTERCEPT (thesis, 1.2)."""
STAIRS = 10
"""F is taken as constant over tenths of an iteration's bytes."""
_DONE_BITS = 1e-3
_FULL = 1e-12


class Laid(NamedTuple):
    """A part as arrays. Times in ns, rates in bit/ns.

    By job: the first and last of its steps (`first[j]` to `first[j + 1]`), `level`, `period`, `shift`,
    `mltcp`, `apart`. By step: `up`, `rate`, `compute`. By stream: `job`, `count`, `part`, and its links,
    `at[s]` to `at[s + 1]` of `link`. By link: `capacity`.
    """

    first: Ints
    up: Floats
    rate: Floats
    compute: Floats
    level: Ints
    period: Floats
    shift: Floats
    mltcp: NDArray[np.bool_]
    apart: Floats
    job: Ints
    count: Floats
    part: Floats
    at: Ints
    link: Ints
    capacity: Floats
    jitter: float


def lay(instance: Instance, part: Part) -> Laid:
    """The arrays of a part."""
    place = {j: i for i, j in enumerate(part.jobs)}
    steps = [instance.players[j].steps for j in part.jobs]
    links = sorted({k for s in part.streams for k in s.links})
    number = {k: i for i, k in enumerate(links)}
    flat = [s for own in steps for s in own]
    return Laid(
        first=np.cumsum([0, *map(len, steps)]).astype(np.int64),
        up=np.array([s.up_ns for s in flat], dtype=np.float64),
        rate=np.array([s.rate_bps / 1e9 for s in flat], dtype=np.float64),
        compute=np.array([s.compute_ns for s in flat], dtype=np.float64),
        level=np.array(part.level, dtype=np.int64),
        period=np.array([r[0] for r in part.rhythm], dtype=np.float64),
        shift=np.array([r[1] for r in part.rhythm], dtype=np.float64),
        mltcp=np.array(part.mltcp, dtype=np.bool_),
        apart=np.array(part.apart, dtype=np.float64),
        job=np.array([place[s.job] for s in part.streams], dtype=np.int64),
        count=np.array([s.count for s in part.streams], dtype=np.float64),
        part=np.array([s.part for s in part.streams], dtype=np.float64),
        at=np.cumsum([0, *(len(s.links) for s in part.streams)]).astype(np.int64),
        link=np.array([number[k] for s in part.streams for k in s.links], dtype=np.int64),
        capacity=np.array([instance.capacity_bps[k] / 1e9 for k in links], dtype=np.float64),
        jitter=instance.jitter,
    )


def salt_of(seed: int, job: int) -> int:
    """What a job's draws are hashed with."""
    return (seed * 1_000_003 + job * 7_919 + 17) % PRIME


def start_of(seed: int, job: int, alone_ns: float) -> float:
    """When a job is first ready, in ns: anywhere in an iteration."""
    return (draw(salt_of(seed, job), 0, 1_000_003) + PRIME) / (2 * PRIME + 1) * alone_ns


def mean_length(total: float, count: int, opened: float) -> float:
    """The mean iteration of a run: `total` ns of `count` whole ones, and one `opened` ns old.

    The open one counts where it is longer than the mean already: who starves shows it.
    """
    whole = total / count if count else 0.0
    return max(whole, (total + opened) / (count + 1))


@dataclass(slots=True)
class _Runner:
    """A job under way. `timer`: when it begins or goes on, inf while it sends."""

    timer: float
    waiting: bool = True
    step: int = 0
    iteration: int = 0
    begun: float = -1.0
    done_at: float = 0.0
    total: float = 0.0
    counted: int = 0


@dataclass(slots=True)
class _Plain:
    """The plain reference of the kernel: every rate anew at every event."""

    laid: Laid
    salts: Sequence[int]
    starts: Sequence[float]
    runners: list[_Runner] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    def run(self, horizon: float) -> list[float]:
        """Each job's mean iteration up to `horizon` ns."""
        x = self.laid
        self.runners = [_Runner(begin_at(t, x.period[j], x.shift[j])) for j, t in enumerate(self.starts)]
        self.left = [0.0] * len(x.job)
        self.sent = [0.0] * len(x.job)
        now = 0.0
        while True:
            rates = self._rates()
            now = min(self._next(now, rates), horizon)
            self._flow(rates, now)
            if now >= horizon:
                break
            for j, runner in enumerate(self.runners):
                while runner.timer <= now:
                    self._go_on(j, now)
        return [
            mean_length(r.total, r.counted, horizon - r.begun if r.begun >= 0 else 0.0) for r in self.runners
        ]

    def _own(self, j: int) -> list[int]:
        return [s for s in range(len(self.left)) if self.laid.job[s] == j]

    def _go_on(self, j: int, now: float) -> None:
        """The job's timer is due: it begins an iteration, or its flows are done, or its compute."""
        x, r = self.laid, self.runners[j]
        at = int(x.first[j]) + r.step
        if r.waiting:
            if r.begun >= 0:
                r.total += now - r.begun
                r.counted += 1
            r.begun, r.waiting, r.step = now, False, 0
            self._send(j, now)
        elif r.done_at >= 0:
            r.done_at = -1.0
            drawn = draw(self.salts[j], r.iteration, r.step + 1) / PRIME
            r.timer = now + float(x.compute[at]) * (1 + x.jitter * drawn)
        elif r.step + 1 < x.first[j + 1] - x.first[j]:
            r.step += 1
            self._send(j, now)
        else:
            r.iteration += 1
            r.waiting = True
            r.timer = begin_at(now, float(x.period[j]), float(x.shift[j]))

    def _send(self, j: int, now: float) -> None:
        x, r = self.laid, self.runners[j]
        at = int(x.first[j]) + r.step
        r.done_at = now + float(x.apart[j] * x.up[at])
        r.timer = r.done_at
        for s in self._own(j):
            if r.step == 0:
                self.sent[s] = 0.0
            self.left[s] = float(x.part[s] * x.up[at] * x.rate[at])
            if self.left[s] > _DONE_BITS:
                r.timer = math.inf

    def _weight(self, s: int) -> tuple[float, float]:
        """A stream's weight per flow, and the bits to go till it changes (inf: it does not)."""
        x = self.laid
        j = int(x.job[s])
        if not x.mltcp[j]:
            return 1.0, math.inf
        steps = slice(int(x.first[j]), int(x.first[j + 1]))
        whole = float(x.part[s] * (x.up[steps] * x.rate[steps]).sum())
        stair = min(STAIRS - 1, int(STAIRS * self.sent[s] / whole + 1e-9))
        weight = SLOPE * (stair + 0.5) / STAIRS + INTERCEPT
        until = math.inf if stair == STAIRS - 1 else whole * (stair + 1) / STAIRS - self.sent[s]
        return weight, until

    def _rates(self) -> list[float]:
        """Strict priority, and within a level rates in proportion to the weights up to caps and full links."""
        x = self.laid
        rates = [0.0] * len(self.left)
        room = x.capacity.tolist()
        active = [s for s in range(len(self.left)) if self.left[s] > _DONE_BITS]
        weight = {s: self._weight(s)[0] for s in active}
        limit = {}
        for s in active:
            j = int(x.job[s])
            limit[s] = float(x.rate[x.first[j] + self.runners[j].step])
        for level in sorted({int(x.level[x.job[s]]) for s in active}):
            rising = [s for s in active if x.level[x.job[s]] == level]
            while rising:
                asked = [0.0] * len(room)
                for s in rising:
                    for k in self._links(s):
                        asked[k] += float(x.count[s]) * weight[s]
                share = [room[k] / asked[k] if asked[k] > 0 else math.inf for k in range(len(room))]
                water = min([*share, *(limit[s] / weight[s] for s in rising)])
                bound = water * (1 + _FULL)
                stopped = [
                    s
                    for s in rising
                    if limit[s] / weight[s] <= bound or any(share[k] <= bound for k in self._links(s))
                ]
                for s in stopped:
                    rates[s] = weight[s] * water
                    for k in self._links(s):
                        room[k] = max(0.0, room[k] - float(x.count[s]) * rates[s])
                rising = [s for s in rising if s not in stopped]
        return rates

    def _links(self, s: int) -> list[int]:
        x = self.laid
        found: list[int] = x.link[x.at[s] : x.at[s + 1]].tolist()
        return found

    def _next(self, now: float, rates: Sequence[float]) -> float:
        then = min((r.timer for r in self.runners), default=math.inf)
        for s, rate in enumerate(rates):
            if rate > 0:
                then = min(then, now + min(self.left[s], self._weight(s)[1]) / rate)
        return then

    def _flow(self, rates: Sequence[float], then: float) -> None:
        """Let the streams send up to `then`; who has sent all may go on."""
        x = self.laid
        moved = {s: rate * (then - self._since) for s, rate in enumerate(rates) if rate > 0}
        self._since = then
        for s, bits in moved.items():
            self.left[s] = max(0.0, self.left[s] - bits)
            self.sent[s] += bits
        for j in {int(x.job[s]) for s in moved}:
            r = self.runners[j]
            if all(self.left[s] <= _DONE_BITS for s in self._own(j)):
                r.timer = max(then, r.done_at)

    _since: float = 0.0


def begin_at(now: float, period: float, shift: float) -> float:
    """When an iteration that is ready at `now` begins."""
    if period <= 0:
        return now
    offset = now - shift
    if offset < 0:
        return shift
    offset %= period
    return now if offset <= LATE * period else now + period - offset


def plain_lengths(
    laid: Laid, jobs: Sequence[int], seeds: Sequence[int], alone: Sequence[float], horizon: float
) -> Floats:
    """Mean iterations in ns, shape (seeds, jobs), by the plain reference. `jobs` are their numbers, `alone`
    their iterations undisturbed."""
    rows = []
    for seed in seeds:
        salts = [salt_of(seed, j) for j in jobs]
        starts = [start_of(seed, j, own) for j, own in zip(jobs, alone, strict=True)]
        rows.append(_Plain(laid, salts, starts).run(horizon))
    return np.array(rows).reshape(len(seeds), len(jobs))
