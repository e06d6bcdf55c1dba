# SPDX-License-Identifier: Apache-2.0
"""The plain engine: it allocates all rates anew at every event. It is the oracle of the tests of the compiled
engine, and runs where Numba is missing.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.interleave.jitter import draw
from sim.jitter import stretched
from sim.jobrun import IterationProgress, JobRun, LoopState, flowlet_rule, slot_delay
from sim.reference_flowlets import ReferenceFlowlets
from sim.task_graph import BARRIER, FLOW, GATE
from sim.units import NEVER, PS_PER_S

_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class FlowDemand:
    """A flow as the allocator sees it: its links with the portion of its bits that crosses each, its class (0
    first), its cap in bit/s, and the weight of its share within the class."""

    links: Mapping[int, float]
    klass: int
    limit: float
    weight: float = 1.0


def max_min(capacity: Sequence[float], demands: Mapping[int, FlowDemand]) -> dict[int, float]:
    """Strict-priority, weighted max-min fair rates in bit/s: class by class, raise all levels (rate by
    weight) together until a link is full or a cap is met, freeze who is stopped there, and go on."""
    room = dict(enumerate(capacity))
    rates: dict[int, float] = {}
    for klass in sorted({d.klass for d in demands.values()}):
        rising = {f: d for f, d in demands.items() if d.klass == klass}
        while rising:
            users: dict[int, list[int]] = {}
            for f, d in rising.items():
                for link in d.links:
                    users.setdefault(link, []).append(f)
            shares = {
                link: max(room[link], 0.0) / sum(rising[f].weight * rising[f].links[link] for f in fs)
                for link, fs in users.items()
            }
            level = min([*shares.values(), *(d.limit / d.weight for d in rising.values())])
            bound = level * (1 + _SAME)
            stopped = {f for link, share in shares.items() if share <= bound for f in users[link]}
            stopped |= {f for f, d in rising.items() if d.limit / d.weight <= bound}
            for f in stopped:
                demand = rising.pop(f)
                rates[f] = min(level * demand.weight, demand.limit)
                for link, portion in demand.links.items():
                    room[link] -= rates[f] * portion
    return rates


class ReferenceEngine:
    """An engine in plain Python; see `sim.engine.KernelEngine` for what the methods promise."""

    def __init__(
        self,
        capacity: NDArray[np.float64],
        marks: NDArray[np.int8],
        runs: Sequence[JobRun],
        now: int,
        *,
        log: bool = False,
    ) -> None:
        self.now = now
        self.runs = list(runs)
        self.events = 0
        self.skipped = 0
        self._capacity = [float(c) for c in capacity]
        self._marks = marks
        self._log = log
        self._timers: list[tuple[int, int, int]] = []
        self._flows: dict[tuple[int, int], float] = {}
        self._rates: dict[tuple[int, int], float] = {}
        self._next: dict[tuple[int, int], float] = {}
        self._held_back: set[tuple[int, int]] = set()
        self._since = now
        self._done: list[str] = []
        rule = flowlet_rule(self.runs)
        self._flowlets = ReferenceFlowlets(rule, self.runs, now) if rule else None
        self._starting: list[tuple[int, int]] = []
        for j, run in enumerate(self.runs):
            progress = _of(run)
            if run.ended >= 0:
                continue
            for loop, root in zip(run.loops, run.program.loops.tolist(), strict=False):
                if loop.ended < 0 <= loop.ready:
                    at = max(now, loop.ready)
                    heapq.heappush(self._timers, (at + slot_delay(at, run.schedule, loop.aligned), j, root))
            for task in np.flatnonzero(progress.active):
                if run.program.kind[task] == FLOW:
                    self._start(j, int(task), float(progress.left[task]))
                else:
                    heapq.heappush(self._timers, (int(progress.key[task]), j, int(task)))
        if self._flowlets:
            self._flowlets.begin(self._starting, now, running=True)
            self._starting = []
        self._solve()
        if self._flowlets:
            self._flowlets.settle()

    def next_event(self) -> int:
        """The time of the next event, in ps; NEVER if there is none."""
        return min(self._timers[0][0] if self._timers else NEVER, *self._ends().values(), NEVER)

    def advance(self, until: int) -> list[str]:
        """Let time pass up to `until` (ps) or to the first end of a job; returns who ended."""
        self._done = []
        while not self._done:
            ends = self._ends()
            at = min([NEVER, *ends.values(), *(t[0] for t in self._timers[:1])])
            if at > until or at == NEVER:
                self._settle(until)
                return []
            self._settle(at)
            over = []
            for key in [key for key, end in ends.items() if end == at]:
                mark = self._next[key]
                if mark > 0:
                    self.events += 1
                    self._account(key, self._flows[key] - mark)
                    self._flows[key] = mark
                else:
                    over.append(key)
            for j, task in over:
                run = self.runs[j]
                left = self._flows.pop((j, task))
                self._account((j, task), left)
                _of(run).active[task] = 0
                channel = int(run.program.channel[task])
                if self._flowlets and run.ways_of(channel):
                    self._flowlets.end(j, channel, at)
            while self._timers and self._timers[0][0] == at:
                _, j, task = heapq.heappop(self._timers)
                loop = self._root_of(j, task)
                if loop is not None:
                    self._begin(j, loop)
                else:
                    _of(self.runs[j]).active[task] = 0
                over.append((j, task))
            self.events += len(over)
            for j, task in over:
                self._complete(j, task)
            self._solve()
        return self._done

    def earliest_end(self, shortest: Sequence[int]) -> int:
        """No job ends before this time, in ps; `shortest` bounds each one's iterations from below."""
        alive = [(r, d) for r, d in zip(self.runs, shortest, strict=True) if r.ended < 0]
        counts = [min(loop.count for loop in r.loops) for r, _ in alive]
        whole = min(
            (max(r.iterations - c - 1, 0) * d for (r, d), c in zip(alive, counts, strict=True)), default=NEVER
        )
        return max(self.now + whole, self.next_event()) if alive else NEVER

    def export(self) -> list[JobRun]:
        """Write the progress of every job back to its JobRun."""
        for (j, task), left in self._flows.items():
            _of(self.runs[j]).left[task] = left
        for run in self.runs:
            run.gather()
        return self.runs

    def rates(self) -> dict[tuple[str, int], float]:
        """Each active flow's rate in bit/s, by (job, task)."""
        return {(self.runs[j].name, task): rate for (j, task), rate in self._rates.items()}

    def _ends(self) -> dict[tuple[int, int], int]:
        ends = {}
        for key, left in self._flows.items():
            rate = self._rates[key]
            needs = (left - self._next[key]) / rate * PS_PER_S if rate > 0 else 4e18
            ends[key] = self._since + int(needs + 0.5) if needs < 4e18 else NEVER
        return ends

    def _share(self, key: tuple[int, int]) -> tuple[float, float]:
        """A flow's weight, and the bits it will have left when that changes (0: not before its end)."""
        run, task = self.runs[key[0]], key[1]
        steps, program = len(run.weights), run.program
        whole = float(program.whole[program.channel[task]]) if steps else 0.0
        if whole <= 0:
            return 1.0, 0.0
        all_bits = float(program.before[task] + program.bits[task])
        # A rounding short of a step is that step.
        step = min(int((all_bits - self._flows[key]) / whole * steps + 1e-6), steps - 1)
        mark = all_bits - whole * (step + 1) / steps
        # Less than a thousandth of a bit is rounding: the end.
        return run.weights[step], mark if mark > 1e-3 else 0.0

    def _settle(self, at: int) -> None:
        if at > self._since:
            for key, rate in self._rates.items():
                moved = min(self._flows[key], rate * ((at - self._since) / PS_PER_S))
                self._flows[key] -= moved
                self._account(key, moved)
        self.now = self._since = at

    def _account(self, key: tuple[int, int], moved: float) -> None:
        run = self.runs[key[0]]
        channel = int(run.program.channel[key[1]])
        run.sent[channel] += moved
        if run.ways_of(channel) and run.flowlets is not None:
            run.flowlets.carried[channel, run.flowlets.way[run.program.queue_pair[channel]]] += moved
        if key in self._held_back:
            run.congested[channel] += moved

    def _start(self, j: int, task: int, left: float) -> None:
        run = self.runs[j]
        self._flows[j, task] = left
        channel = int(run.program.channel[task])
        if run.ways_of(channel):
            self._starting.append((j, channel))

    def _solve(self) -> None:
        if self._flowlets and self._starting:
            self._flowlets.begin(self._starting, self.now)
            self._starting = []
        demands = {}
        self._next = {}
        for j, task in self._flows:
            run = self.runs[j]
            channel = int(run.program.channel[task])
            # A flow without a way stands still.
            has_path = run.ways_of(channel) or run.paths[channel] is not None
            limit = float(run.program.limit[task]) if has_path else 0.0
            weight, self._next[j, task] = self._share((j, task))
            demands[j, task] = FlowDemand(dict(run.crossed(channel)), run.klass, limit, weight)
        index = dict(enumerate(demands))
        solved = max_min(self._capacity, {n: demands[key] for n, key in index.items()})
        self._rates = {index[n]: rate for n, rate in solved.items()}
        load: dict[int, float] = {}
        users: dict[int, int] = {}
        for key, rate in self._rates.items():
            for link, portion in demands[key].links.items():
                load[link] = load.get(link, 0.0) + rate * portion
                users[link] = users.get(link, 0) + 1
        if self._flowlets:
            self._flowlets.set_rates(self.now, load)
        self._held_back = {
            key
            for key, rate in self._rates.items()
            if rate < demands[key].limit * (1 - 1e-9)
            and any(
                self._marks[k] and users[k] > 1 and load[k] >= self._capacity[k] * (1 - 1e-9)
                for k in demands[key].links
            )
        }

    def _complete(self, j: int, task: int) -> None:
        run = self.runs[j]
        program, progress = run.program, _of(run)
        stack = [task]
        while stack:
            over = stack.pop()
            gate = int(program.gives[over])
            if gate >= 0:
                progress.tokens[gate] += 1
                if progress.tokens[gate] <= 0:
                    stack.append(gate)
            for following in program.succ[program.succ_at[over] : program.succ_at[over + 1]]:
                progress.waiting[following] -= 1
                if progress.waiting[following]:
                    continue
                loop = self._sink_of(j, int(following))
                if loop is not None:
                    if self._end(j, loop):
                        stack.append(int(program.loops[loop]))
                elif program.kind[following] == GATE:
                    progress.tokens[following] -= 1
                    if progress.tokens[following] >= 0:
                        stack.append(int(following))
                elif program.kind[following] == FLOW and program.bits[following] > 0:
                    progress.active[following] = 1
                    self._start(j, int(following), float(program.bits[following]))
                elif program.kind[following] != BARRIER and program.span[following] > 0:
                    progress.active[following] = 1
                    span = int(program.span[following])
                    number = int(np.searchsorted(program.loops, following, side="right")) - 1
                    drawn = draw(run.salt, run.loops[number].count, int(following))
                    span = stretched(span, run.jitter, drawn)
                    progress.key[following] = self.now + span
                    heapq.heappush(self._timers, (int(progress.key[following]), j, int(following)))
                else:
                    stack.append(int(following))

    def _root_of(self, j: int, task: int) -> int | None:
        """The loop that this task begins, or None."""
        at = np.flatnonzero(self.runs[j].program.loops[:-1] == task)
        return int(at[0]) if len(at) else None

    def _sink_of(self, j: int, task: int) -> int | None:
        """The loop that this task ends, or None."""
        at = np.flatnonzero(self.runs[j].program.loops[1:] == task + 1)
        return int(at[0]) if len(at) else None

    def _end(self, j: int, number: int) -> bool:
        run, loop = self.runs[j], self.runs[j].loops[number]
        loop.count += 1
        if loop.count == run.iterations:
            self._record(run, loop)
            loop.ended = self.now
            if all(other.ended >= 0 for other in run.loops):
                run.ended = self.now
                self._done.append(run.name)
            return False
        loop.ready = self.now
        delay = slot_delay(self.now, run.schedule, loop.aligned)
        if delay:
            heapq.heappush(self._timers, (self.now + delay, j, int(run.program.loops[number])))
            return False
        self._begin(j, number)
        return True

    def _begin(self, j: int, number: int) -> None:
        run, loop = self.runs[j], self.runs[j].loops[number]
        # None has begun before if the job has just been given its GPUs, for the first time or again.
        if loop.begin >= 0:
            self._record(run, loop)
            loop.slot_wait += self.now - loop.ready
        loop.begin, loop.ready, loop.aligned = self.now, -1, True
        tasks = slice(*run.program.loops[number : number + 2])
        _of(run).waiting[tasks] = run.program.indegree[tasks]

    def _record(self, run: JobRun, loop: LoopState) -> None:
        length = self.now - loop.begin
        loop.total += length
        loop.longest = max(loop.longest, length)
        if self._log:
            run.lengths[length] = run.lengths.get(length, 0) + 1


def _of(run: JobRun) -> IterationProgress:
    assert run.progress is not None
    return run.progress
