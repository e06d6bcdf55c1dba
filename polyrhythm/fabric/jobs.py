# SPDX-License-Identifier: Apache-2.0
"""The jobs of a run on an embedded fabric: when they start, when they are done, what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from hostagent.host import measured_profile
from hostagent.job import IterationRecord, JobSpec, MeasuredPhase, MeasuredProfile, PhaseSpec
from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP, Workload

# The first job starts after the switches are programmed and the agents have met the controller.
FIRST_START_NS = 100_000_000

# Between two jobs that run alone one after another.
GAP_NS = 50_000_000

STALL_FLOOR_NS = 10_000_000_000
STALL_PERIODS = 30


class StalledError(RuntimeError):
    """No iteration has ended for long: some job cannot go on. The message names which."""


class JobRunner:
    """Starts the workers of a scenario's jobs, together or one job after another, and ends them.

    `profiles` are those that an earlier run measured, by job; a job without one announces the profile
    that the scenario declares.
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
    ) -> None:
        self._fabric = fabric
        self._heap = fabric.heap
        self._alone = alone
        self._forever = forever
        scenario = fabric.scenario
        self._target = ALONE_WARMUP + ALONE_ITERATIONS if alone else scenario.warmup + scenario.iterations
        self._jitter_ns = 0 if alone else scenario.start_jitter_ns
        self._workloads = {w.job.name: w for w in scenario.workloads}
        self._specs = {name: job_spec(w, profiles.get(name)) for name, w in self._workloads.items()}
        self._finished_iterations = dict.fromkeys(self._specs, 0)
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
        self._heap.call_at(self._stall_ns, self._watch, -1)

    def progress(self) -> float:
        """The finished part of the run, 0 to 1."""
        done = sum(min(n, self._target) for n in self._finished_iterations.values())
        return done / (self._target * len(self._specs))

    def iterations(self) -> Mapping[str, list[Mapping[str, int]]]:
        """Every recorded iteration of every worker, by job."""
        wanted = ("rank", "index", "start_ns", "end_ns", "communication_ns", "ecn_marks", "retransmits")
        return {
            name: [{key: getattr(record, key) for key in wanted} for record in self._records(name)]
            for name in self._specs
        }

    def profiles(self) -> Mapping[str, Any]:
        """Each job's profile as its first worker measured it."""
        measured = {}
        for name, spec in self._specs.items():
            first = [record for record in self._records(name) if record.rank == 0]
            profile = measured_profile(first, spec)
            measured[name] = {
                "period_ns": profile.period_ns,
                "phases": [[p.start_ns, p.end_ns, p.rate_bps] for p in profile.phases],
            }
        return measured

    def abandon(self) -> None:
        """The run is no longer wanted: end at the next event. From any thread."""
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
        """Rank 0 finished an iteration; one more than wanted lets its peers finish theirs."""
        self._finished_iterations[record.job] = record.index
        if self._forever or record.index < self._target:
            return
        if self._alone:
            for rank, host in enumerate(self._specs[record.job].hosts):
                self._fabric.hosts[host].stop_worker(record.job, rank)
            if self._queue:
                self._start_next()
                return
        elif min(self._finished_iterations.values()) < self._target:
            return
        self.finished = True
        self._heap.stop = True

    def _watch(self, seen: int) -> None:
        """Complain when no iteration of some job has ended for a whole stall time."""
        done = sum(self._finished_iterations.values())
        if done == seen and not self._forever:
            behind = [n for n, count in self._finished_iterations.items() if count < self._target]
            raise StalledError(
                f"no iteration has ended for {self._stall_ns / 1e9:g} s of fabric time "
                f"(now {self._heap.now / 1e9:.1f} s); not done: {', '.join(behind)}"
            )
        self._heap.call_at(self._heap.now + self._stall_ns, self._watch, done)


def job_spec(workload: Workload, measured: Mapping[str, Any] | None) -> JobSpec:
    """A job as its workers know it; `measured` is its profile of an earlier run, or None."""
    job = workload.job
    return JobSpec(
        name=job.name,
        model=job.model,
        gpus=job.gpus,
        hosts=job.hosts,
        ring=tuple((flow.src, flow.dst) for flow in job.flows),
        phases=tuple(
            PhaseSpec(phase.end_ns - phase.start_ns, size, rate, compute)
            for phase, (size, rate, compute) in zip(job.profile.phases, workload.steps, strict=True)
        ),
        flops_per_iteration=job.flops_per_iteration,
        sender=workload.sender,
        increase_timer=workload.increase_timer,
        profile=None if measured is None else _profile(measured),
    )


def _profile(measured: Mapping[str, Any]) -> MeasuredProfile:
    return MeasuredProfile(
        measured["period_ns"], tuple(MeasuredPhase(*phase) for phase in measured["phases"])
    )
