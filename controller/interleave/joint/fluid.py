# SPDX-License-Identifier: Apache-2.0
"""A fluid model of jobs on links: how long iterations take under a choice, with jitter from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from controller.interleave.jitter import PRIME, draw
from controller.interleave.joint.fair_rates import FULL, fair_rates, room_below, sums
from controller.interleave.joint.fluid_arrays import Floats, FluidArrays
from controller.interleave.joint.steady_rates import SENT
from controller.interleave.joint.windows import rest_wait
from controller.interleave.slot_tolerance import REST, SETTLE_NS, TOUCH, later_by

STAIRS = 6
"""MLTCP's F is constant over each sixth of an iteration's bytes. Chosen: finer steps take longer, and change
no comparison of plans."""
Between = Callable[[], object]
"""What is called between two pieces of an evaluation. It may raise, to end it."""
DONE_BITS = 1e-3
"""A stream with less left than this has ended. Chosen: far more than the error of a double."""


def nothing() -> None:
    """For evaluations that nobody ends."""


def salt_of(seed: int, job: int) -> int:
    """The salt of a job's random draws."""
    return (seed * 1_000_003 + job * 7_919 + 17) % PRIME


def start_of(seed: int, job: int, alone_ns: float) -> float:
    """When a job is first ready, in ns: at a random time within one iteration."""
    return (draw(salt_of(seed, job), 0, 1_000_003) + PRIME) / (2 * PRIME + 1) * alone_ns


def mean_length(total: float, count: int, opened: float) -> float:
    """The mean iteration of a run: `count` whole iterations took `total` ns, and one is open for `opened` ns.

    The open iteration counts only if it is longer than the mean: a job that starves is noticed that way.
    """
    whole = total / count if count else 0.0
    return max(whole, (total + opened) / (count + 1))


@dataclass(slots=True)
class _Runner:
    """A job in the simulation. `timer` is when it begins or goes on, and infinite while it sends."""

    timer: float
    waiting: bool = True
    step: int = 0
    iteration: int = 0
    begun: float = -1.0
    done_at: float = 0.0
    total: float = 0.0
    counted: int = 0


class _PlainFluid:
    """The plain reference of the kernel: it goes from event to event, on lists."""

    def __init__(self, arrays: FluidArrays, salts: Sequence[int], starts: Sequence[float]) -> None:
        first: list[int] = arrays.first.tolist()
        self._jitter = arrays.jitter
        self._slope, self._intercept = arrays.slope, arrays.intercept
        self._salts = salts
        self._period: list[float] = arrays.period.tolist()
        self._shift: list[float] = arrays.shift.tolist()
        self._uncontended_size: list[float] = arrays.uncontended_size.tolist()
        self._window: list[float] = arrays.window.tolist()
        self._mltcp: list[bool] = arrays.mltcp.tolist()
        steps = list(zip(arrays.up.tolist(), arrays.rate.tolist(), arrays.compute.tolist(), strict=True))
        self._steps: list[list[tuple[float, float, float]]] = [steps[a:b] for a, b in pairwise(first)]
        self._job: list[int] = arrays.job.tolist()
        self._flows: list[float] = arrays.flows.tolist()
        self._relative_size: list[float] = arrays.relative_size.tolist()
        self._steady: list[float] = arrays.steady.tolist()
        at: list[int] = arrays.at.tolist()
        link: list[int] = arrays.link.tolist()
        self._links = [link[a:b] for a, b in pairwise(at)]
        self._capacity: list[float] = arrays.capacity.tolist()
        self._control: list[float] = arrays.control.tolist()
        self._queues: list[bool] = arrays.queues.tolist()
        self._own: list[list[int]] = [[] for _ in self._period]
        for s, j in enumerate(self._job):
            self._own[j].append(s)
        level: list[int] = arrays.level.tolist()
        self._by_level = [[s for s, j in enumerate(self._job) if level[j] == k] for k in sorted(set(level))]
        self._whole = [
            self._relative_size[s] * sum(up * rate for up, rate, _ in self._steps[j])
            for s, j in enumerate(self._job)
        ]
        self._late: list[float] = arrays.late.tolist()
        self._gap: list[float] = arrays.gap.tolist()
        self._slot_set: list[int] = arrays.slot_set.tolist()
        self._rest_until = [-math.inf] * len(self._period)
        self._runners = [
            _Runner(begin_at(t, self._period[j], self._shift[j], 0.0)) for j, t in enumerate(starts)
        ]
        count = len(self._job)
        self._left, self._sent, self._since = [0.0] * count, [0.0] * count, [0.0] * count
        self._rate, self._stair = [0.0] * count, [0] * count
        self._ends, self._rises = [math.inf] * count, [math.inf] * count
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}

    def run(self, horizon: float) -> list[float]:
        """The mean iteration of each job up to `horizon` ns."""
        now = 0.0
        while True:
            self._set_rates(now)
            timers = (r.timer for r in self._runners)
            then = min(horizon, *timers, *self._ends, *self._rises)
            self._flow(then)
            now = then
            if now >= horizon:
                break
            for j, runner in enumerate(self._runners):
                while runner.timer <= now:
                    self._go_on(j, now)
        return [
            mean_length(r.total, r.counted, horizon - r.begun if r.begun >= 0 else 0.0) for r in self._runners
        ]

    def _go_on(self, j: int, now: float) -> None:
        """Handle a job whose timer is due: it begins an iteration, or its flows or its compute have ended."""
        r = self._runners[j]
        if r.waiting:
            if r.begun >= 0:
                r.total += now - r.begun
                r.counted += 1
            r.begun, r.waiting, r.step = now, False, 0
            self._send(j, now)
        elif r.done_at >= 0:
            r.done_at = -1.0
            drawn = draw(self._salts[j], r.iteration, r.step + 1) / PRIME
            r.timer = now + self._steps[j][r.step][2] * (1 + self._jitter * drawn)
        elif r.step + 1 < len(self._steps[j]):
            r.step += 1
            self._send(j, now)
        else:
            r.iteration += 1
            r.waiting = True
            r.timer = begin_at(now, self._period[j], self._shift[j], self._late[j])
            if r.timer <= now:
                self._move_slots(j, now)

    def _move_slots(self, j: int, now: float) -> None:
        """A job begins at `now`: if it is late, its slots and those that depend on them move later."""
        own = self._slot_set[j]
        offset = (now - self._shift[j]) % self._period[j] if self._period[j] > 0 else 0.0
        if offset <= self._gap[j] or now < self._rest_until[own]:
            return
        later = later_by(offset, self._gap[j] - TOUCH * self._period[j])
        self._rest_until[own] = now + REST * later + SETTLE_NS
        for i, r in enumerate(self._runners):
            if self._slot_set[i] == own:
                self._shift[i] += later
                if r.waiting and r.timer > now:
                    r.timer += later

    def _send(self, j: int, now: float) -> None:
        r = self._runners[j]
        up, rate, _ = self._steps[j][r.step]
        r.done_at = now + self._uncontended_size[j] * up
        r.timer = r.done_at
        for s in self._own[j]:
            if r.step == 0:
                self._sent[s], self._stair[s] = 0.0, 0
            self._left[s] = self._relative_size[s] * up * rate
            if self._left[s] > DONE_BITS:
                r.timer = math.inf

    def _set_rates(self, now: float) -> None:
        """Give each stream its rate from now on. Until it changes, nothing is computed for the stream."""
        for s, rate in enumerate(self._rates()):
            if rate != self._rate[s]:
                self._settle(s, now)
                self._rate[s] = rate
                self._look_ahead(s)

    def _settle(self, s: int, now: float) -> None:
        """Count what a stream has sent since its last change."""
        moved = self._rate[s] * (now - self._since[s])
        self._left[s] = max(0.0, self._left[s] - moved)
        self._sent[s] += moved
        self._since[s] = now

    def _look_ahead(self, s: int) -> None:
        """When a stream ends, and when its weight rises, if its rate stays."""
        rate, now = self._rate[s], self._since[s]
        self._ends[s] = self._rises[s] = math.inf
        if 0 < self._left[s] <= DONE_BITS:
            self._ends[s] = now
        elif rate > 0:
            self._ends[s] = now + self._left[s] / rate
            if self._mltcp[self._job[s]] and self._stair[s] < STAIRS - 1:
                until = self._whole[s] * (self._stair[s] + 1) / STAIRS - self._sent[s]
                self._rises[s] = now + max(0.0, until) / rate

    def _rates(self) -> list[float]:
        """The rates by strict priority. Within a level they are in proportion to the weights, up to caps and
        full links.
        """
        active = tuple(s for s, left in enumerate(self._left) if left > DONE_BITS)
        state = tuple(self._runners[self._job[s]].step * STAIRS + self._stair[s] for s in active)
        if (active, state) not in self._known:
            self._known[active, state] = self._solve(set(active))
        return self._known[active, state]

    def _solve(self, active: set[int]) -> list[float]:
        rates, room = [0.0] * len(self._left), list(self._capacity)
        above = [0.0] * len(room)
        for streams in self._by_level:
            level = [s for s in streams if s in active]
            weights = [self._weight(s) for s in level]
            caps = [self._steps[j][self._runners[j].step][1] for j in (self._job[s] for s in level)]
            flows, links = [self._flows[s] for s in level], [self._links[s] for s in level]
            found = fair_rates(room, flows, weights, caps, links, self._queues, self._control, above)
            for s, rate in zip(level, found, strict=True):
                rates[s] = rate
            above = [a + n for a, n in zip(above, sums(len(room), flows, links), strict=True)]
            seen = [s for s in streams if s in active or self._steady[s] != SENT]
            room = room_below(
                room,
                [self._flows[s] for s in seen],
                [rates[s] if self._steady[s] == SENT else self._steady[s] for s in seen],
                [self._links[s] for s in seen],
            )
        return rates

    def _weight(self, s: int) -> float:
        if not self._mltcp[self._job[s]]:
            return 1.0
        return self._slope * (self._stair[s] + 0.5) / STAIRS + self._intercept

    def _flow(self, then: float) -> None:
        """Let the streams send up to `then`. A job whose streams have all ended may go on."""
        ended: set[int] = set()
        for s, ends in enumerate(self._ends):
            if ends <= then:
                self._wait_for_rest(s, then)
        for s, ends in enumerate(self._ends):
            if ends <= then:
                self._settle(s, then)
                # Late in a long run a double cannot resolve the time to the end: a stream that is due has
                # ended.
                self._left[s] = self._rate[s] = 0.0
                self._look_ahead(s)
                ended.add(self._job[s])
            elif self._rises[s] <= then:
                self._settle(s, then)
                self._stair[s] += 1
                self._look_ahead(s)
        for j in ended:
            if all(self._left[s] <= DONE_BITS for s in self._own[j]):
                r = self._runners[j]
                r.timer = max(then, r.done_at)

    def _wait_for_rest(self, s: int, now: float) -> None:
        """A stream is to end `now`: what is longer than a window may come later."""
        j = self._job[s]
        up, cap, _ = self._steps[j][self._runners[j].step]
        wait = rest_wait(self._relative_size[s] * up * cap, self._window[j], self._rate[s], cap)
        if wait > 0 and any(self._fills(k) for k in self._links[s]):
            self._runners[j].done_at = max(self._runners[j].done_at, now + wait)

    def _fills(self, k: int) -> bool:
        """Whether a queue of the fabric is full."""
        users = (s for s, own in enumerate(self._links) if k in own)
        used = sum(self._flows[s] * self._rate[s] for s in users)
        return self._queues[k] and used >= (self._capacity[k] - self._control[k]) * (1 - FULL)


def begin_at(now: float, period: float, shift: float, late: float) -> float:
    """When an iteration that is ready at `now` begins: at once if it is at most `late` after its slot."""
    if period <= 0:
        return now
    offset = now - shift
    if offset < 0:
        return shift
    offset %= period
    return now if offset <= late else now + period - offset


def plain_lengths(
    arrays: FluidArrays,
    jobs: Sequence[int],
    seeds: Sequence[int],
    alone: Sequence[float],
    horizon: float,
    between: Between = nothing,
) -> Floats:
    """Mean iterations in ns, shape (seeds, jobs), by the plain reference.

    `jobs` are their numbers; `alone` is the length of their iterations without other jobs, in ns. After each
    seed `between` is called.
    """
    rows = []
    for seed in seeds:
        salts = [salt_of(seed, j) for j in jobs]
        starts = [start_of(seed, j, own) for j, own in zip(jobs, alone, strict=True)]
        rows.append(_PlainFluid(arrays, salts, starts).run(horizon))
        between()
    return np.array(rows).reshape(len(seeds), len(jobs))
