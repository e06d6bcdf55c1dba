# SPDX-License-Identifier: Apache-2.0
"""Jobs on a cluster whose communication depends on their own placement only, as in ArtISt-sim (Dally, IV-C).

Jobs do not slow one another down on links; jobs that share GPUs wait for one another in each step. The
schedulers are those of `controller.placement.schedulers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from controller.placement.latency import Sensitivity, exposed
from controller.placement.machines import Allocation, FreePool, Machines
from controller.placement.offers import ElasticPolicy, OfferPolicy, PlacedJob, SharingPolicy, offer_round
from controller.placement.schedulers.muri import Stages, group_period
from controller.placement.schedulers.pollux import MOST_TIMES, progress
from sim.cluster import WorkloadError


@dataclass(frozen=True, slots=True)
class IsolatedJob:
    """A job as it is submitted: `ideal_s` is its running time on its GPUs without communication, `compute_s`
    that of an iteration (0: unknown; it then shares GPUs with no other job). `source` is where it was read,
    for messages."""

    name: str
    arrival_s: float
    demand: int
    ideal_s: float
    sensitivity: Sensitivity
    skewed: bool = False
    compute_s: float = 0.0
    source: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class IsolatedSettings:
    """`lease_s`: a job's GPUs are offered again after this time. `aligned`: the leases of all jobs end
    together, at its multiples; otherwise each lease begins when the job gets its GPUs. `restore_s`: the time
    that a job needs to save its state and to continue from it on other GPUs; 0 by default, for the paper
    neglects it. `rule`: how communication grows with the size of a job, one of
    `controller.placement.latency.RULES`.
    """

    lease_s: float = 7_200.0
    aligned: bool = True
    restore_s: float = 0.0
    rule: str = "ring"


@dataclass(frozen=True, slots=True)
class IsolatedOutcome:
    """What became of a job, in s. `queued`: in the wait queue. `communication`: exposed. `moves`: how often
    it lost its GPUs or moved. `by_tier`: the time that it ran in each tier."""

    name: str
    arrived: float
    ended: float
    queued: float
    communication: float
    moves: int
    by_tier: tuple[float, float, float]

    @property
    def completion(self) -> float:
        """The job completion time: from arrival to end."""
        return self.ended - self.arrived


@dataclass(slots=True)
class _Run:
    """A job of the simulation. `speed`: its progress with its GPUs, relative to as many as it asked for.
    `alone`: by how much its GPUs multiply its compute time if it shares them with nobody."""

    job: IsolatedJob
    state: PlacedJob
    settled: float
    resumes: float = 0.0
    queued: float = 0.0
    communication: float = 0.0
    moves: int = 0
    changes: int = 0
    started: bool = False
    speed: float = 1.0
    alone: float = 1.0
    lease_ends: float = math.inf
    by_tier: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


def simulate(
    machines: Machines,
    jobs: Sequence[IsolatedJob],
    policy: OfferPolicy,
    settings: IsolatedSettings | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, IsolatedOutcome]:
    """Run all jobs to their end. Returns the outcomes by name, in the order of the ends.

    The same inputs give the same outcomes. `progress` is called with the number of jobs that are done.

    Raises:
        WorkloadError: a job that the cluster can never run.
    """
    simulation = _Simulation(machines, jobs, policy, settings or IsolatedSettings())
    return simulation.run(progress)


def check_isolated(machines: Machines, jobs: Sequence[IsolatedJob]) -> None:
    """Refuse jobs that the cluster can never run.

    Raises:
        WorkloadError: names the job.
    """
    seen: set[str] = set()
    for job in jobs:
        where = f"{job.source}: job {job.name}" if job.source else f"job {job.name}"
        if job.name in seen:
            raise WorkloadError(f"{where}: there are two of this name")
        seen.add(job.name)
        if not 1 <= job.demand <= machines.total:
            raise WorkloadError(
                f"{where}: it wants {job.demand} GPUs; legal: 1 to the cluster's {machines.total}"
            )
        if not (math.isfinite(job.arrival_s) and job.arrival_s >= 0):
            raise WorkloadError(f"{where}: it arrives at {job.arrival_s} s; legal: 0 or later")
        if not (math.isfinite(job.ideal_s) and job.ideal_s > 0):
            raise WorkloadError(f"{where}: it runs for {job.ideal_s} s; legal: more than 0")


class _Simulation:
    """Runs jobs from one event to the next: an arrival, the end of a job, the end of a lease."""

    def __init__(
        self,
        machines: Machines,
        jobs: Sequence[IsolatedJob],
        policy: OfferPolicy,
        settings: IsolatedSettings,
    ) -> None:
        check_isolated(machines, jobs)
        self._machines, self._policy, self._settings = machines, policy, settings
        self._arrivals = sorted(jobs, key=lambda j: (j.arrival_s, j.name), reverse=True)
        self._pool = FreePool(machines)
        self._waiting: dict[str, _Run] = {}
        self._running: dict[str, _Run] = {}
        # (time, name, changes): an entry counts only while the job's GPUs have not changed since.
        self._ends: list[tuple[float, str, int]] = []
        self._leases: list[tuple[float, str, int]] = []
        self._outcomes: dict[str, IsolatedOutcome] = {}
        self._slowdowns: dict[tuple[str, Allocation], float] = {}

    def run(self, progress: Callable[[int], None] | None) -> dict[str, IsolatedOutcome]:
        while self._arrivals or self._running or self._waiting:
            arrival = self._arrivals[-1].arrival_s if self._arrivals else math.inf
            now = min(arrival, self._first(self._ends), self._first(self._leases))
            done = self._due(self._ends, now)
            for run in done:
                self._finish(run, now)
            if done and progress is not None:
                progress(len(self._outcomes))
            while self._arrivals and self._arrivals[-1].arrival_s <= now:
                self._arrive(self._arrivals.pop())
            over = self._due(self._leases, now)
            for run in over:
                _settle(run, now, self._machines)
                self._lend(run, now)
            self._offer(now, over)
        return self._outcomes

    def _first(self, events: list[tuple[float, str, int]]) -> float:
        while events and not self._counts(events[0]):
            heappop(events)
        return events[0][0] if events else math.inf

    def _due(self, events: list[tuple[float, str, int]], now: float) -> list[_Run]:
        due = []
        while self._first(events) <= now < math.inf:
            due.append(self._running[heappop(events)[1]])
        return due

    def _counts(self, event: tuple[float, str, int]) -> bool:
        run = self._running.get(event[1])
        return run is not None and run.changes == event[2]

    def _lend(self, run: _Run, now: float) -> None:
        """Let the job's next lease begin."""
        lease = self._settings.lease_s
        if self._policy.leases:
            run.lease_ends = (now // lease + 1) * lease if self._settings.aligned else now + lease
            heappush(self._leases, (run.lease_ends, run.job.name, run.changes))

    def _arrive(self, job: IsolatedJob) -> None:
        state = PlacedJob(
            job.name, job.demand, job.ideal_s, job.skewed, arrived=job.arrival_s, since=job.arrival_s
        )
        if isinstance(self._policy, ElasticPolicy):
            empty = FreePool(self._machines)
            most = min(self._machines.total, MOST_TIMES * job.demand)
            state.goodput = tuple(
                progress(gpus) / self._slowdown(job, empty.closest(gpus) or ()) for gpus in range(1, most + 1)
            )
        if isinstance(self._policy, SharingPolicy) and job.compute_s:
            closest = FreePool(self._machines).closest(job.demand) or ()
            state.stages = _stages(job, self._slowdown(job, closest))
        self._waiting[job.name] = _Run(job, state, settled=job.arrival_s)

    def _finish(self, run: _Run, now: float) -> None:
        _settle(run, now, self._machines)
        del self._running[run.job.name]
        partners = [self._running[name] for name in run.state.partners]
        if not partners:
            self._pool.give_back(run.state.allocation or ())
        for partner in partners:
            partner.state.partners = tuple(n for n in partner.state.partners if n != run.job.name)
        self._pace(partners, now)
        self._outcomes[run.job.name] = IsolatedOutcome(
            run.job.name,
            run.job.arrival_s,
            now,
            run.queued,
            run.communication,
            run.moves,
            (run.by_tier[0], run.by_tier[1], run.by_tier[2]),
        )

    def _offer(self, now: float, over: Sequence[_Run]) -> None:
        offered = over if self._policy.leases else self._distant()
        changes = offer_round(
            self._policy,
            now,
            [run.state for run in self._waiting.values()],
            [run.state for run in offered],
            self._pool,
        )
        for name, allocation in changes.items():
            self._change(name, allocation, now)
        self._pace(list(self._running.values()), now)

    def _distant(self) -> list[_Run]:
        """The running jobs whose GPUs could be closer together, which a scheduler without leases may move."""
        return [
            run
            for run in self._running.values()
            if run.state.allocation and self._machines.could_be_closer(run.state.allocation, run.state.demand)
        ]

    def _change(self, name: str, allocation: Allocation | None, now: float) -> None:
        run = self._waiting.pop(name, None) or self._running.pop(name)
        state = run.state
        _settle(run, now, self._machines)
        run.changes += 1
        if state.allocation is None:
            run.queued += now - state.since
        else:
            run.moves += 1
        state.allocation = allocation
        if allocation is None:
            state.since = now
            self._waiting[name] = run
            return
        self._running[name] = run
        run.resumes = now + (self._settings.restore_s if run.started else 0.0)
        run.started = True
        state.slowdown = run.alone = self._slowdown(run.job, allocation)
        run.speed = progress(state.demand) / progress(run.job.demand)
        self._expect(run, now)
        self._lend(run, now)

    def _expect(self, run: _Run, now: float) -> None:
        """Let the job's end be known."""
        left = (run.state.ideal - run.state.done) * run.state.slowdown / run.speed
        heappush(self._ends, (max(now, run.resumes) + left, run.job.name, run.changes))

    def _pace(self, runs: Sequence[_Run], now: float) -> None:
        """Let running jobs go on at the pace that those with whom they share GPUs leave them."""
        for run in runs:
            slowdown = run.alone
            if run.state.partners:
                group = [run, *(self._running[name] for name in run.state.partners)]
                slowdown = group_period([_stages(r.job, r.alone) for r in group]) / run.job.compute_s
            if slowdown != run.state.slowdown:
                _settle(run, now, self._machines)
                run.changes += 1
                run.state.slowdown = slowdown
                self._expect(run, now)
                heappush(self._leases, (run.lease_ends, run.job.name, run.changes))

    def _slowdown(self, job: IsolatedJob, allocation: Allocation) -> float:
        key = (job.name, allocation)
        if key not in self._slowdowns:
            part = exposed(job.sensitivity, self._machines, allocation, self._settings.rule)
            self._slowdowns[key] = 1.0 + part
        return self._slowdowns[key]


def _stages(job: IsolatedJob, slowdown: float) -> Stages:
    """The stages of an iteration: no trace says what it loads and prepares."""
    return (0.0, 0.0, job.compute_s, (slowdown - 1.0) * job.compute_s)


def _settle(run: _Run, now: float, machines: Machines) -> None:
    """Book what the job has done up to `now`."""
    state = run.state
    if state.allocation is not None:
        elapsed = now - run.settled
        worked = max(0.0, now - max(run.settled, run.resumes)) / state.slowdown * run.speed
        worked = min(worked, state.ideal - state.done)
        state.done += worked
        state.ran += elapsed
        state.served += elapsed * sum(gpus for _, gpus in state.allocation)
        run.communication += worked / run.speed * (run.alone - 1.0)
        run.by_tier[machines.tier(state.allocation)] += elapsed
    run.settled = now
