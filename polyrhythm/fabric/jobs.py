# SPDX-License-Identifier: Apache-2.0
"""The jobs of a run on the embedded fabric: when they arrive and leave, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from controller.model.job import Profile
from controller.wire.senders import DCQCN, SENDERS
from hostagent.job import (
    IterationRecord,
    JobSpec,
    MeasuredPhase,
    MeasuredProfile,
    PhaseChange,
    PhaseSpec,
    one_or_each,
)
from hostagent.phase_barrier import PhaseBarrier
from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.fabric.parent_messages import session_result
from polyrhythm.fabric.presence import Presence
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Scenario, Steps, Workload
from polyrhythm_files import ConfigError

# Start of the first job, in fabric time. Chosen: by then the switches are programmed and the agents
# connected.
FIRST_START_NS = 100_000_000

# Pause between two jobs that run alone, one after another. Chosen.
GAP_NS = 50_000_000

# Time that profiling a job may take beyond its window, for planning and the last report. Chosen.
PROFILE_MARGIN_NS = 5_000_000_000

# A run has stalled when for 30 periods of its slowest job, and at least 10 s, no bytes of a job have arrived
# and no iteration has ended. Chosen.
STALL_FLOOR_NS = 10_000_000_000
STALL_PERIODS = 30

# A job that takes this many times as long as it would take alone is not waited for. Chosen: a job at a
# twentieth of its speed starves, and a session must end.
LONGEST_SLOWDOWN = 20


class StalledError(RuntimeError):
    """No byte of any job has arrived for a long time. The message names the jobs that are not done."""


class _RunningJob:
    """A job and how far it is.

    `target`: the number of iterations that count, or that the job runs at all if it leaves; None: it runs
    until its time is over. `finished`: the iterations that every worker has finished. `first`: the index of
    the first iteration that counts, None: unknown yet. `done`: the session does not wait for it any more.
    """

    def __init__(self, spec: JobSpec, workload: Workload, start_ns: int, target: int | None) -> None:
        self.spec = spec
        self.workload = workload
        self.start_ns = start_ns
        self.target = target
        self.finished = 0
        self.first: int | None = None
        self.profiled_ns: int | None = None
        self.left_ns: int | None = None
        self.done = False
        self._by_rank = [0] * len(spec.hosts)

    def heard(self, record: IterationRecord) -> bool:
        """A worker has finished an iteration; returns whether now every worker has."""
        self._by_rank[record.rank] = record.index + 1
        before, self.finished = self.finished, min(self._by_rank)
        return self.finished > before

    def present(self, now: int) -> bool:
        """Whether the job has begun and has not left."""
        return self.start_ns <= now and self.left_ns is None

    @property
    def stop_ns(self) -> int | None:
        """The fabric time at which the job leaves; None: not at a fixed time."""
        work = self.workload
        if work.stop_ns is None:
            return None
        return self.start_ns - work.lead_ns - work.arrival_ns + work.stop_ns

    @property
    def counted(self) -> int:
        """The finished iterations that count."""
        return 0 if self.first is None else self.finished - self.first

    def progress(self, now: int) -> float:
        """The finished fraction of the job, 0 to 1."""
        if self.done:
            return 1.0
        if self.stop_ns is not None:
            return min(1.0, max(0, now - self.start_ns) / (self.stop_ns - self.start_ns))
        return min(1.0, self.counted / self.target) if self.target else 0.0


class JobRunner:
    """Starts and ends the workers of a scenario's jobs, as the scenario says or one job after another
    (`alone`).

    `profiles` maps jobs to profiles that an earlier run measured. A job without one announces the profile
    that the scenario declares. Iterations count from `count_from_ns` on and, where the controller profiles
    jobs, once every job on the fabric has been profiled. The run ends when the jobs without an end have their
    iterations and the others have left, or at `until_ns` if that is not 0. A job that is `LONGEST_SLOWDOWN`
    times slower than alone is not waited for.
    """

    def __init__(
        self,
        fabric: EmbeddedFabric,
        profiles: Mapping[str, Any],
        *,
        seed: int,
        alone: bool,
        random_offsets: bool,
        forever: bool,
        until_ns: int = 0,
        count_from_ns: int = 0,
    ) -> None:
        self._fabric = fabric
        self._heap = fabric.heap
        self._alone = alone
        # Whether the jobs do not decide when the run ends.
        self._forever = forever or until_ns > 0
        self._until_ns = until_ns
        self._count_from_ns = count_from_ns
        scenario = fabric.scenario
        self._jitter_ns = 0 if alone else scenario.start_jitter_ns
        self.finished = False
        draw = Random(f"{seed}/offsets")
        self._jobs: dict[str, _RunningJob] = {}
        for w in scenario.workloads:
            spec = job_spec(w, profiles.get(w.job.name), changes=not alone)
            if alone:
                job = _RunningJob(spec, w, FIRST_START_NS, ALONE_WARMUP + ALONE_ITERATIONS)
                job.first = 0
            else:
                offset = draw.randrange(w.job.profile.period_ns) if random_offsets else 0
                target = w.iterations if w.leaves else scenario.warmup + scenario.iterations
                job = _RunningJob(spec, w, FIRST_START_NS + w.arrival_ns + w.lead_ns + offset, target)
            self._jobs[w.job.name] = job
        # How long the controller may profile all jobs, at most.
        window_ns = scenario.profile_window_ms * 1_000_000
        self._profiling_ns = len(self._jobs) * (window_ns + PROFILE_MARGIN_NS)
        self._queue = list(self._jobs.values())
        if alone:
            self._start(self._queue.pop(0))
        else:
            for job in self._queue:
                self._start(job)
                if job.stop_ns is not None:
                    self._heap.call_at(job.stop_ns, self._leave, job)
        longest = max(w.longest_period_ns for w in scenario.workloads)
        self._stall_ns = max(STALL_FLOOR_NS, STALL_PERIODS * longest)
        if until_ns:
            self._heap.call_at(until_ns, self.abandon)
        self._heap.call_at(self._stall_ns, self._watch, (-1, -1))

    def progress(self) -> float:
        """The finished fraction of the run, 0 to 1."""
        if self._until_ns:
            return min(1.0, self._heap.now / self._until_ns)
        return sum(job.progress(self._heap.now) for job in self._jobs.values()) / len(self._jobs)

    def result(self) -> dict[str, Any]:
        """The result for the parent process: the iterations and when each job was on the fabric."""
        boundary = self._fabric.boundary
        # Figures of a job that is left out of all plans, for example, are not those of the policy.
        refusals = dict.fromkeys(what for host in self._fabric.hosts.values() for what in host.agent.refusals)
        return session_result(
            {name: self._records(job) for name, job in self._jobs.items()},
            {name: job.spec for name, job in self._jobs.items()},
            presence={
                name: Presence(job.start_ns, job.left_ns, job.profiled_ns, job.first)
                for name, job in self._jobs.items()
            },
            ended_ns=self._heap.now,
            deterministic=not self._fabric.ordered,
            notes=[*boundary.notes, *(f"the controller refused: {what}" for what in refusals)],
            failovers=self._fabric.failovers.results(),
            pfc=self._fabric.pfc_report(),
        )

    def abandon(self) -> None:
        """End the run at the next event. Any thread may call this."""
        self.finished = True
        self._heap.stop = True

    def _records(self, job: _RunningJob) -> list[IterationRecord]:
        name = job.spec.name
        return [r for host in job.spec.hosts for r in self._fabric.hosts[host].records if r.job == name]

    def _start(self, job: _RunningJob) -> None:
        ends = self._alone or job.workload.leaves
        barrier = PhaseBarrier(job.spec)
        for rank, host in enumerate(job.spec.hosts):
            self._fabric.hosts[host].add_worker(
                job.spec,
                rank,
                job.start_ns,
                (job.target or 0) if ends else 0,
                start_jitter_ns=self._jitter_ns,
                on_iteration=partial(self._iteration, job),
                barrier=barrier,
            )
        if ends and job.target is not None:
            self._limit(job, job.start_ns)

    def _limit(self, job: _RunningJob, from_ns: int) -> None:
        """Wait for the target of a job no longer than `LONGEST_SLOWDOWN` times its time alone."""
        if job.target is not None and not self._forever:
            longest = LONGEST_SLOWDOWN * job.target * job.workload.longest_period_ns
            self._heap.call_at(from_ns + longest, self._give_up, job)

    def _give_up(self, job: _RunningJob) -> None:
        if job.done:
            return
        self._fabric.boundary.note(
            f"job {job.spec.name} starved: in {LONGEST_SLOWDOWN} times the time that {job.target} iterations "
            f"take alone it finished {job.finished if job.workload.leaves else job.counted}"
        )
        if job.workload.leaves:
            self._leave(job)
        else:
            self._done(job)

    def _leave(self, job: _RunningJob) -> None:
        """End the workers of a job. Their agents tell the controller."""
        for rank, host in enumerate(job.spec.hosts):
            self._fabric.hosts[host].stop_worker(job.spec.name, rank)
        self._left(job)

    def _left(self, job: _RunningJob) -> None:
        if job.left_ns is None:
            job.left_ns = self._heap.now
            self._begin_counting()
            self._done(job)

    def _done(self, job: _RunningJob) -> None:
        """A job has its iterations, or has left. The run ends with the last one."""
        job.done = True
        if self._alone and self._queue:
            following = self._queue.pop(0)
            following.start_ns = self._heap.now + GAP_NS
            self._start(following)
        elif not self._forever and all(job.done for job in self._jobs.values()):
            self.abandon()

    def _iteration(self, job: _RunningJob, record: IterationRecord) -> None:
        """A worker has finished an iteration."""
        if not job.heard(record):
            return
        if not self._alone:
            self._begin_counting()
        if job.workload.leaves and not self._alone:
            if job.finished == job.target:
                self._left(job)
        elif not job.done and job.counted >= (job.target or 0):
            self._done(job)

    def _begin_counting(self) -> None:
        """Let the iterations of the jobs on the fabric count from now on, if all of them are profiled."""
        now = self._heap.now
        present = [job for job in self._jobs.values() if job.present(now)]
        agents = {job: self._fabric.hosts[job.spec.hosts[0]].agent for job in present}
        for job, agent in agents.items():
            if job.profiled_ns is None and job.spec.name in agent.metering.profiled:
                job.profiled_ns = now
        if now < self._count_from_ns or all(job.first is not None for job in present):
            return
        profiles = any(agent.settings.profiles for agent in agents.values())
        if profiles and self._fabric.boundary.attached:
            waiting = [job for job in present if job.profiled_ns is None]
            if any(now <= job.start_ns + self._profiling_ns for job in waiting):
                return
            for job in waiting:
                if job.first is None:
                    self._fabric.boundary.note(f"iterations counted before {job.spec.name} had been profiled")
        for job in present:
            if job.first is None:
                job.first = job.finished if profiles or job.start_ns < self._count_from_ns else 0
                if not job.workload.leaves:
                    self._limit(job, now)

    def _watch(self, seen: tuple[int, int]) -> None:
        """Raise StalledError when no job has moved for the stall time."""
        now, jobs = self._heap.now, self._jobs.values()
        arrived = sum(
            self._fabric.hosts[host].nic.counters(job.spec.name).bytes_received
            for job in jobs
            for host in job.spec.hosts
        )
        moved = (sum(job.finished for job in jobs), arrived)
        behind = [job.spec.name for job in jobs if job.present(now) and not job.done]
        if moved == seen and behind and not self._forever:
            raise StalledError(
                f"no bytes of any job have arrived for {self._stall_ns / 1e9:g} s of fabric time "
                f"(now {now / 1e9:.1f} s); not done: {', '.join(behind)}"
            )
        self._heap.call_at(now + self._stall_ns, self._watch, moved)


def check_embedded(scenario: Scenario) -> None:
    """Refuse what the embedded fabric cannot do.

    Raises:
        ConfigError: a job sends over the kernel's TCP.
    """
    for workload in scenario.workloads:
        if workload.on_kernel_tcp:
            raise ConfigError(
                f"{scenario.name}: job {workload.job.name}: sender: {workload.job.sender}: the hosts of the "
                f"embedded fabric have no kernel; legal: --fabric mininet, or one of {', '.join(SENDERS)}"
            )


def job_spec(workload: Workload, measured: Mapping[str, Any] | None, *, changes: bool = True) -> JobSpec:
    """A job as its workers need it.

    `measured` is the profile that an earlier run measured, or None. Without `changes` the job keeps its first
    traffic pattern.
    """
    job = workload.job
    announced = None if measured is None else _profile(measured)
    if workload.announces == "nothing":
        announced = MeasuredProfile(0, ())
    return JobSpec(
        name=job.name,
        model=job.model,
        gpus=job.gpus,
        hosts=job.hosts,
        ring=tuple((flow.src, flow.dst) for flow in job.flows),
        phases=_phases(job.profile, workload.steps),
        flops_per_iteration=job.flops_per_iteration,
        compute_jitter=workload.jitter,
        # What the agents' NICs would use: kernel TCP is none of theirs.
        sender=DCQCN if workload.on_kernel_tcp else job.sender,
        increase_timer=workload.increase_timer,
        profile=announced,
        changes=tuple(
            PhaseChange(c.iteration, _phases(c.profile, c.steps), c.flops_per_iteration)
            for c in (workload.changes if changes else ())
        ),
        silent=workload.silent,
        pcie=workload.pcie,
    )


def _phases(profile: Profile, steps: Steps) -> tuple[PhaseSpec, ...]:
    return tuple(
        PhaseSpec(phase.end_ns - phase.start_ns, one_or_each(step.sizes), step.rate_bps, step.compute_ns)
        for phase, step in zip(profile.phases, steps, strict=True)
    )


def _profile(measured: Mapping[str, Any]) -> MeasuredProfile:
    return MeasuredProfile(
        measured["period_ns"], tuple(MeasuredPhase(*phase) for phase in measured["phases"])
    )
