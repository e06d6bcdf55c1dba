# SPDX-License-Identifier: Apache-2.0
"""The jobs of a run on the embedded fabric: when they start, when they are done, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from controller.model.job import Profile
from hostagent.job import IterationRecord, JobSpec, MeasuredPhase, MeasuredProfile, PhaseChange, PhaseSpec
from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.fabric.parent_messages import session_result
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Workload
from polyrhythm.scenario.build import Steps

# Start of the first job, in fabric time. Chosen: by then the switches are programmed and the agents
# connected.
FIRST_START_NS = 100_000_000

# Pause between two jobs that run alone, one after another. Chosen.
GAP_NS = 50_000_000

# Time that profiling a job may take beyond its window, for planning and the last report. Chosen.
PROFILE_MARGIN_NS = 5_000_000_000

# A run has stalled when no iteration has ended for 30 periods of its slowest job, and at least 10 s. Chosen.
STALL_FLOOR_NS = 10_000_000_000
STALL_PERIODS = 30


class StalledError(RuntimeError):
    """No iteration has ended for a long time. The message names the jobs that are not done."""


class JobRunner:
    """Starts and ends the workers of a scenario's jobs, all together or one job after another (`alone`).

    `profiles` maps jobs to profiles that an earlier run measured. A job without one announces the profile
    that the scenario declares. Where the controller profiles jobs, iterations count once it has profiled all
    of them. The run ends at `until_ns`; 0: when each job has done its iterations.
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
    ) -> None:
        self._fabric = fabric
        self._heap = fabric.heap
        self._alone = alone
        self._forever = forever
        self._until_ns = until_ns
        scenario = fabric.scenario
        self._target = ALONE_WARMUP + ALONE_ITERATIONS if alone else scenario.warmup + scenario.iterations
        self._jitter_ns = 0 if alone else scenario.start_jitter_ns
        self._workloads = {w.job.name: w for w in scenario.workloads}
        self._specs = {
            name: job_spec(w, profiles.get(name), changes=not alone) for name, w in self._workloads.items()
        }
        self._finished_iterations = dict.fromkeys(self._specs, 0)
        self._first = dict.fromkeys(self._specs, 0)
        self._awaiting_profiles = not alone
        window_ns = scenario.profile_window_ms * 1_000_000
        self._profiled_by_ns = FIRST_START_NS + len(self._specs) * (window_ns + PROFILE_MARGIN_NS)
        self._queue = list(self._specs)
        self.finished = False
        draw = Random(f"{seed}/offsets")
        if alone:
            self._start_next()
        else:
            for name, spec in self._specs.items():
                period = self._workloads[name].job.profile.period_ns
                offset = draw.randrange(period) if random_offsets else 0
                self._start(spec, FIRST_START_NS + offset)
        longest = max(w.job.profile.period_ns for w in scenario.workloads)
        self._stall_ns = max(STALL_FLOOR_NS, STALL_PERIODS * longest)
        if until_ns:
            self._heap.call_at(until_ns, self.abandon)
        else:
            self._heap.call_at(self._stall_ns, self._watch, -1)

    def progress(self) -> float:
        """The finished fraction of the run, 0 to 1."""
        if self._until_ns:
            return min(1.0, self._heap.now / self._until_ns)
        if self._awaiting_profiles:
            return 0.0
        done = sum(
            min(max(0, n - self._first[name]), self._target) for name, n in self._finished_iterations.items()
        )
        return done / (self._target * len(self._specs))

    def result(self) -> dict[str, Any]:
        """The result for the parent process: the iterations that count, and the measured profiles."""
        boundary = self._fabric.boundary
        return session_result(
            {name: self._records(name) for name in self._specs},
            self._specs,
            first=self._first,
            deterministic=boundary.deterministic,
            notes=boundary.notes,
            failovers=self._fabric.failovers.results(),
        )

    def abandon(self) -> None:
        """End the run at the next event. Any thread may call this."""
        self.finished = True
        self._heap.stop = True

    def _records(self, job: str) -> list[IterationRecord]:
        return [
            r for host in self._specs[job].hosts for r in self._fabric.hosts[host].records if r.job == job
        ]

    def _start_next(self) -> None:
        name = self._queue.pop(0)
        self._start(self._specs[name], max(FIRST_START_NS, self._heap.now + GAP_NS))

    def _start(self, spec: JobSpec, start_ns: int) -> None:
        for rank, host in enumerate(spec.hosts):
            self._fabric.hosts[host].add_worker(
                spec,
                rank,
                start_ns,
                start_jitter_ns=self._jitter_ns,
                on_iteration=self._iteration if rank == 0 else None,
            )

    def _iteration(self, record: IterationRecord) -> None:
        """Rank 0 has finished an iteration. The run needs one more than wanted, so that the other ranks
        finish theirs.
        """
        self._finished_iterations[record.job] = record.index
        if self._awaiting_profiles and self._being_profiled():
            return
        if self._forever or self._until_ns or record.index - self._first[record.job] < self._target:
            return
        if self._alone:
            for rank, host in enumerate(self._specs[record.job].hosts):
                self._fabric.hosts[host].stop_worker(record.job, rank)
            if self._queue:
                self._start_next()
                return
        elif any(n - self._first[name] < self._target for name, n in self._finished_iterations.items()):
            return
        self.finished = True
        self._heap.stop = True

    def _being_profiled(self) -> bool:
        """Whether the controller still has to profile a job. Iterations count once it has profiled all."""
        agents = {name: self._fabric.hosts[spec.hosts[0]].agent for name, spec in self._specs.items()}
        if not any(agent.settings.profiles for agent in agents.values()):
            self._awaiting_profiles = False
            return False
        todo = [name for name, agent in agents.items() if name not in agent.metering.profiled]
        late = self._heap.now > self._profiled_by_ns
        if todo and not late and self._fabric.boundary.attached:
            return True
        if todo:
            self._fabric.boundary.note(f"iterations counted before {', '.join(todo)} had been profiled")
        self._awaiting_profiles = False
        self._first = {name: n + 1 for name, n in self._finished_iterations.items()}
        return True

    def _watch(self, seen: int) -> None:
        """Raise StalledError when no iteration of any job has ended for the stall time."""
        done = sum(self._finished_iterations.values())
        if done == seen and not self._forever:
            counts = self._finished_iterations.items()
            behind = [
                n for n, count in counts if self._awaiting_profiles or count - self._first[n] < self._target
            ]
            raise StalledError(
                f"no iteration has ended for {self._stall_ns / 1e9:g} s of fabric time "
                f"(now {self._heap.now / 1e9:.1f} s); not done: {', '.join(behind)}"
            )
        self._heap.call_at(self._heap.now + self._stall_ns, self._watch, done)


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
        sender=workload.sender,
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
        PhaseSpec(phase.end_ns - phase.start_ns, size, rate, compute)
        for phase, (size, rate, compute) in zip(profile.phases, steps, strict=True)
    )


def _profile(measured: Mapping[str, Any]) -> MeasuredProfile:
    return MeasuredProfile(
        measured["period_ns"], tuple(MeasuredPhase(*phase) for phase in measured["phases"])
    )
