# SPDX-License-Identifier: Apache-2.0
"""The cluster over time: jobs arrive, are placed, planned, run, are preempted and end; links fail and return.

Between two such events jobs affect one another only within a component (`sim.components`). So each component
has an engine and a clock of its own (`sim.pool`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from zlib import crc32

import numpy as np

from controller.interleave.timing import FREE_CHOICE
from controller.model import Plan
from controller.planner import Policy, policy_named
from controller.planner.placement import Compatibility
from sim.channel_paths import channel_paths, most_load
from sim.cluster import Cluster, FreeGpus, JobRequest, Placement, WorkloadError, check
from sim.decide import EQUAL_CLASS, Decider, FabricState, decision_for
from sim.engine import EngineFactory, best_engine
from sim.jobrun import JobRun
from sim.mltcp import check_sender, weights
from sim.placed_job import candidate_jobs, placed_request
from sim.pool import EnginePool
from sim.scheduler import Scheduler, WaitingJob
from sim.state import (
    ClusterSample,
    FabricFailure,
    JobOutcome,
    RunningJob,
    SimulationSettings,
    SimulationState,
    parts,
)
from sim.units import NEVER, PS_PER_NS

__all__ = ["FabricFailure", "Simulation", "SimulationSettings"]
_SAMPLES_BYTES = 2 << 30


class Simulation:
    """A workload on a cluster under a policy."""

    def __init__(
        self,
        cluster: Cluster,
        requests: Sequence[JobRequest],
        settings: SimulationSettings,
        *,
        scheduler: Scheduler,
        failures: Sequence[FabricFailure] = (),
        engine: EngineFactory | None = None,
        memory: SimulationState | None = None,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        """`policies` are looked up by `settings.policy`; by default the registered ones.

        Raises:
            WorkloadError: jobs that can never run.
            ValueError: an unknown policy or failure, or a checkpoint of another policy.
        """
        check(cluster, requests)
        policy = _policy(settings.policy, policies)
        for failure in failures:
            parts(cluster, failure)
        self.cluster = cluster
        self.settings = settings
        self.requests = requests
        self._network = cluster.network
        topology = self._network.topology
        self.memory = memory or SimulationState(
            now=0,
            arrivals=deque(sorted(requests, key=lambda r: r.arrival_ns)),
            failures=deque(sorted(failures, key=lambda f: f.at_ns)),
            plans=deque(),
            waiting=[],
            running={},
            outcomes={},
            samples=[],
            free=FreeGpus(cluster),
            fabric=FabricState(topology),
            decider=Decider(policy, settings.seed, settings.elephant_bytes),
            scheduler=scheduler,
            started={},
            preempted={},
            kept={},
            waited={},
            next_sample=settings.samples_ns * PS_PER_NS or NEVER,
            sampled={},
            bits=np.zeros(len(self._network.names)),
            intensity=np.zeros(len(self._network.names)),
        )
        if memory is not None:
            memory.decider.restore(policy)
        self._pool = EnginePool(self.memory, engine or best_engine(), self._network.marks, log=settings.log)
        self._set_capacity()

    def run(
        self,
        tidied: Callable[[Simulation], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Simulate to the end. `tidied` is called whenever a checkpoint may be taken, `progress` with the
        number of jobs that are done."""
        m = self.memory
        limit = self.settings.until_ns * PS_PER_NS or NEVER
        while True:
            at = min(self._next_known(), limit)
            ended = self._pool.advance(at)
            for name in ended:
                self._finish(name)
            if ended and progress is not None:
                progress(len(m.outcomes))
            if not ended:
                if at == NEVER:
                    break
                m.now = at
                if at == limit:
                    break
                self._process_due_events()
            self._schedule()
            m.steps += 1
            if m.steps % self.settings.tidy == 0:
                self._pool.tidy()
                if tidied is not None:
                    tidied(self)
        self._pool.tidy()
        for name in list(m.running):
            self._settle_account(m.running[name])
            self._record(name, -1)
            del m.running[name]

    def _next_known(self) -> int:
        """The time of the next event that is known beforehand: all but the ends of jobs."""
        m = self.memory
        times = [NEVER]
        if m.arrivals:
            times.append(m.arrivals[0].arrival_ns * PS_PER_NS)
        if m.failures:
            times.append(m.failures[0].at_ns * PS_PER_NS)
        if m.plans:
            times.append(m.plans[0][0])
        if m.next_sample < NEVER and (m.running or m.waiting or m.arrivals):
            times.append(m.next_sample)
        if m.running or m.waiting:
            times.append(m.scheduler.next_look(m.now))
        return min(times)

    def _process_due_events(self) -> None:
        """Process all events that are due now."""
        m = self.memory
        while m.arrivals and m.arrivals[0].arrival_ns * PS_PER_NS <= m.now:
            m.waiting.append(WaitingJob(m.arrivals.popleft(), m.now))
        changed = False
        while m.failures and m.failures[0].at_ns * PS_PER_NS <= m.now:
            self._fail(m.failures.popleft())
            changed = True
        if changed:
            self._set_capacity()
            self._plan()
        while m.plans and m.plans[0][0] <= m.now:
            self._apply(m.plans.popleft()[1])
        if m.next_sample <= m.now:
            self._sample()

    def _schedule(self) -> None:
        """Ask the scheduler which jobs to stop and which to start, and plan for all that has changed."""
        m = self.memory
        stopped, arrived = [""], list[str]()
        while stopped:
            served = {n: self._served(r) for n, r in m.running.items()} if m.scheduler.preempts else {}
            if m.scheduler.reads_progress(m.now):
                self._pool.tidy()
            begun, stopped = m.scheduler.decide(
                m.now, m.waiting, m.running, served, m.free, self._compatibility
            )
            for name in stopped:
                self._preempt(name)
            for waiting, placement in begun:
                # The scheduler may have given the job another number of GPUs.
                m.waiting = [w for w in m.waiting if w.request.name != waiting.request.name]
                self._start(waiting, placement)
            arrived += [w.request.name for w, _ in begun if m.running[w.request.name].sends]
        if arrived or (m.departed and not m.decider.one_by_one):
            self._plan(arrived)
        m.departed = False

    def _compatibility(
        self, placements: Mapping[str, tuple[JobRequest, Placement]], stopped: Collection[str]
    ) -> Compatibility:
        """Judge a candidate: these jobs on these GPUs, beside the jobs that run and are not `stopped`."""
        m = self.memory
        running = {name: (job.job, job.placement) for name, job in m.running.items()}
        jobs = candidate_jobs(self.cluster, running, placements, stopped)
        return m.decider.compatibility(m.fabric, jobs, m.now)

    def _served(self, running: RunningJob) -> float:
        """The GPU seconds that a job has received."""
        return (self.memory.now - self.memory.started[running.request.name]) / 1e12 * running.request.gpus

    def _start(self, waiting: WaitingJob, placement: Placement) -> None:
        m, request = self.memory, waiting.request
        placed = placed_request(self.cluster, request, placement)
        built = placed.built
        run = JobRun(
            name=request.name,
            program=built,
            paths=tuple(None for _ in built.channels),
            klass=EQUAL_CLASS,
            iterations=request.iterations,
            ready=m.now,
            salt=crc32(f"{self.settings.seed}/{request.name}".encode()),
        )
        before = m.kept.pop(request.name, None)
        if before is not None:
            # Iterations that were finished count; the one that was interrupted is run again.
            run.ready += self.settings.restore_ns * PS_PER_NS
            run.count, run.total, run.slot_wait = before.count, before.total, before.slot_wait
            run.longest, run.lengths = before.longest, before.lengths
        elif request.delays_ns:
            delays = request.delays_ns if placed.by_rank else (max(request.delays_ns),)
            for loop, delay in zip(run.loops, delays, strict=True):
                loop.ready += delay * PS_PER_NS
        m.started.setdefault(request.name, m.now)
        m.waited[request.name] = m.waited.get(request.name, 0) + m.now - waiting.since
        # Each end is rounded to the clock: a tick of slack for every task keeps the bound a bound.
        most = max(request.jitter, request.contended_jitter)
        shortest = max(0, int(placed.fastest_ps * (1 - most)) - len(built.kind))
        running = RunningJob(
            request,
            placement,
            run,
            placed.job,
            placed.lead_ps,
            shortest,
            placed.iteration_ps,
            tuple(placed.flows),
        )
        m.running[request.name] = running
        m.sampled[request.name] = (float(run.count), run.sent.copy())
        self._pool.changed([request.name])
        self._route(running)

    def _finish(self, name: str) -> None:
        m = self.memory
        running = m.running[name]
        self._settle_account(running)
        self._record(name, m.now)
        m.free.give_back(running.placement)
        m.decider.forget(running.flows)
        del m.running[name]
        self._pool.changed([name])
        m.departed |= running.sends

    def _preempt(self, name: str) -> None:
        m = self.memory
        self._pool.dissolve([name])
        running = m.running.pop(name)
        m.departed |= running.sends
        self._settle_account(running, forget=True)
        m.free.give_back(running.placement)
        m.preempted[name] = m.preempted.get(name, 0) + 1
        m.kept[name] = running.run
        m.waiting.append(WaitingJob(running.request, m.now, m.started[name]))

    def _fail(self, failure: FabricFailure) -> None:
        m = self.memory
        link, switch = parts(self.cluster, failure)
        links, switches = set(m.fabric.down_links), set(m.fabric.down_switches)
        change = set.discard if failure.up else set.add
        if link:
            change(links, link)
        if switch:
            change(switches, switch)
        m.fabric = FabricState(m.fabric.topology, frozenset(links), frozenset(switches))

    def _plan(self, started: Sequence[str] = ()) -> None:
        """Request a plan. It takes effect after the re-planning delay."""
        m = self.memory
        wanted = started if m.decider.one_by_one and started else m.running
        if not (jobs := [m.running[name].job for name in wanted if name in m.running]):
            return
        decided = m.decider.plan(m.fabric, jobs, m.now)
        if self.settings.replan_delay_ns:
            m.plans.append((m.now + self.settings.replan_delay_ns * PS_PER_NS, decided))
        else:
            self._apply(decided)

    def _apply(self, decided: Plan) -> None:
        m = self.memory
        for name in decided.jobs:
            if name in m.running:
                running = m.running[name]
                decision = decision_for(decided, m.decider.policy, name, running.flows, running.lead_ps)
                # Most plans change few jobs, and to look up all paths takes longer than to plan.
                if decision != running.decision or running.routed_on is not m.fabric:
                    running.decision = decision
                    self._route(running)

    def _route(self, running: RunningJob) -> None:
        """Apply the decision for a job: paths (ECMP where there is no path or the path is down), class and
        schedule. If anything changed, its engine is created anew.
        """
        m, run, decided = self.memory, running.run, running.decision
        running.routed_on = m.fabric
        to = channel_paths(self._network, m.fabric, m.decider, decided, run.program.channels)
        klass = decided.klass if decided else EQUAL_CLASS
        schedule = decided.schedule if decided else run.schedule
        shares = decided.weights if decided else None
        if shares is None:
            shares = weights(running.request.mltcp) if running.request.mltcp else ()
        rule = decided.rule if decided else None
        links_now, links_then = (to.paths, to.portions, to.ways), (run.paths, run.portions, run.ways)
        now = (links_now, klass, schedule, shares, rule)
        if now == (links_then, run.klass, run.schedule, run.weights, run.rule):
            return
        self._pool.dissolve([run.name])
        for loop in run.loops:
            loop.aligned = loop.aligned and schedule.same_slots(run.schedule)
        if links_now != links_then:
            # What was sent went over the old links.
            self._settle_account(running)
        run.klass, run.schedule, run.weights = klass, schedule, shares
        run.send_by(to.paths, to.portions, to.ways, rule)
        running.load = most_load(run, self._pool.capacity)
        self._pool.changed([run.name])

    def _set_capacity(self) -> None:
        fabric = self.memory.fabric
        self._pool.tidy()
        self._pool.capacity = self._network.without(fabric.down_links, fabric.down_switches)
        for running in self.memory.running.values():
            running.load = most_load(running.run, self._pool.capacity)

    def _sample(self) -> None:
        m = self.memory
        if (len(m.samples) + 1) * m.bits.nbytes * 2 > _SAMPLES_BYTES:
            raise WorkloadError(
                f"samples of {len(m.bits)} links every {self.settings.samples_ns / 1e9:g} s: "
                f"after {len(m.samples)} they fill {_SAMPLES_BYTES >> 30} GiB; take fewer"
            )
        self._pool.tidy()
        for running in m.running.values():
            self._settle_account(running)
        step = self.settings.samples_ns * PS_PER_NS
        m.samples.append(
            ClusterSample(
                at=m.now,
                gpus=sum(r.request.gpus for r in m.running.values()),
                computing=m.computed / step,
                running=len(m.running),
                waiting=len(m.waiting),
                bits=m.bits,
                intensity=m.intensity,
            )
        )
        m.bits, m.intensity = np.zeros_like(m.bits), np.zeros_like(m.bits)
        m.computed = 0.0
        m.next_sample += step

    def _settle_account(self, running: RunningJob, *, forget: bool = False) -> None:
        """Book what a job has sent and computed since the last booking. `forget`: the run of the job ends
        here.
        """
        m, run = self.memory, running.run
        iterations, sent = m.sampled.get(run.name, (0.0, np.zeros(len(run.paths))))
        job = running.job
        intensity = job.flops_per_iteration / max(job.profile.up_ns / 1e9, 1e-9)
        for channel, bits in enumerate(run.sent - sent):
            for link, some in run.carried(channel, bits):
                m.bits[link] += some
                m.intensity[link] += some * intensity
        run.booked()
        done = run.count + (
            0.0
            if run.begin < 0 or run.ready >= 0 or run.ended >= 0
            else min(1.0, (m.now - run.begin) / max(1, running.shortest_ps))
        )
        m.computed += (done - iterations) * run.program.busy_ps * running.request.gpus
        m.sampled[run.name] = (done, run.sent.copy())

    def _record(self, name: str, ended: int) -> None:
        m = self.memory
        running = m.running[name]
        run = running.run
        flows: dict[str, list[float]] = {}
        ends: dict[str, tuple[str, str]] = {}
        for channel, sent, congested in zip(run.program.channels, run.sent, run.congested, strict=True):
            ends[channel.flow] = (channel.src, channel.dst)
            row = flows.setdefault(channel.flow, [0.0, 0.0])
            row[0] += float(sent)
            row[1] += float(congested)
        m.outcomes[name] = JobOutcome(
            request=running.request,
            started=m.started[name],
            ended=ended,
            iterations=run.count,
            total=run.total,
            slot_wait=run.slot_wait,
            longest=run.longest,
            preempted=m.preempted.get(name, 0),
            ideal=running.ideal_ps,
            lengths=dict(sorted(run.lengths.items())),
            flows=tuple((f, *ends[f], sent, congested) for f, (sent, congested) in sorted(flows.items())),
            hosts=running.job.hosts or tuple(s for s, _ in running.placement),
            waited=m.waited[name],
        )
        m.sampled.pop(name, None)


def _policy(name: str, policies: Mapping[str, Policy] | None) -> Policy:
    if policies is not None and name not in policies:
        raise ValueError(f"{name!r} is no policy; legal: {', '.join(sorted(policies))}")
    policy = policy_named(name) if policies is None else policies[name]
    if policy.timing.sender != FREE_CHOICE:
        check_sender(policy.timing.sender, f"policy {name}")
    return policy
