# SPDX-License-Identifier: Apache-2.0
"""The problem that the plan search solves, and its solutions, as values."""

from __future__ import annotations

from dataclasses import dataclass

from controller.model import Profile

Links = tuple[int, ...]
JobTiming = tuple[int, int]
"""(period, shift) in ns: iterations begin at times t with t mod period == shift."""
UNSCHEDULED: JobTiming = (0, 0)
"""The timing of a job that runs at its own pace."""
SLOPE, INTERCEPT = 1.75, 0.25
"""MLTCP's F(r) = SLOPE r + INTERCEPT (thesis, 1.2)."""


@dataclass(frozen=True, slots=True)
class Step:
    """An Up phase of `up_ns`, in which every flow sends at up to `rate_bps`, and the compute after it."""

    up_ns: int
    rate_bps: int
    compute_ns: int


@dataclass(frozen=True, slots=True)
class JointFlow:
    """A flow of a job.

    `relative_size` is its bytes divided by those of the job's largest flow. Each of `candidate_paths` is the
    numbers of the links on it.
    """

    relative_size: float
    candidate_paths: tuple[Links, ...]


@dataclass(frozen=True, slots=True)
class JointJob:
    """A job. An iteration is its `steps` one after another; the compute of a step waits for all flows of the
    step.

    `weight` is the job's number of GPUs: the value of a second of its compute. `mltcp_capable`: its senders
    can weight their rate by MLTCP's F.
    """

    name: str
    weight: float
    steps: tuple[Step, ...]
    flows: tuple[JointFlow, ...]
    mltcp_capable: bool = True

    @property
    def alone_ns(self) -> int:
        """The length of an iteration without other jobs, in ns."""
        return sum(s.up_ns + s.compute_ns for s in self.steps)

    @property
    def compute_ns(self) -> int:
        """The compute time of an iteration, in ns."""
        return sum(s.compute_ns for s in self.steps)

    @property
    def up_ns(self) -> int:
        """The time that an iteration sends without other jobs, in ns."""
        return sum(s.up_ns for s in self.steps)


@dataclass(frozen=True, slots=True)
class Instance:
    """Jobs on links of `capacity_bps`, by link number.

    Each compute time varies by up to `jitter` times itself in either direction, uniformly. Switches have
    `levels` priority levels. The period of a scheduled job is at most `slowest` times the length of its own
    iteration; if `longest_ns` is not empty, it has the longest period of each job instead. A flow whose
    sender uses MLTCP has the weight F(r) = slope r + intercept, where `mltcp` is (slope, intercept); the
    weight of the others is 1. With `slots_move` slots follow the rules of a live controller
    (`controller.interleave.slot_tolerance`); else they stay, and an iteration that is later than REALIGN
    waits for its next slot, as in the simulator. `queues` says of each link whether packets that want it wait
    in a queue of the fabric, and not in their NIC; empty: none do.
    """

    jobs: tuple[JointJob, ...]
    capacity_bps: tuple[int, ...]
    jitter: float = 0.0
    levels: int = 6
    slowest: float = 1.05
    mltcp: tuple[float, float] = (SLOPE, INTERCEPT)
    longest_ns: tuple[float, ...] = ()
    slots_move: bool = False
    queues: tuple[bool, ...] = ()

    def longest_period(self, job: int) -> float:
        """The longest period in ns that job number `job` may be scheduled with."""
        return self.longest_ns[job] if self.longest_ns else self.slowest * self.jobs[job].alone_ns

    @property
    def flows(self) -> tuple[tuple[int, JointFlow], ...]:
        """(job, flow) of all jobs, job by job. `Choice.path_choice` has the same order."""
        return tuple((j, f) for j, p in enumerate(self.jobs) for f in p.flows)


@dataclass(frozen=True, slots=True)
class Choice:
    """A whole plan.

    `path_choice` holds the number of the candidate path of each flow, in the order of `Instance.flows`. The
    others are by job: `level` (0 is the highest priority), `timings`, and `mltcp` (whether its senders use
    MLTCP).
    """

    path_choice: tuple[int, ...]
    level: tuple[int, ...]
    timings: tuple[JobTiming, ...]
    mltcp: tuple[bool, ...]


def mltcp_capable_jobs(instance: Instance) -> tuple[bool, ...]:
    """For each job whether its senders can use MLTCP."""
    return tuple(p.mltcp_capable for p in instance.jobs)


def plain(instance: Instance, path_choice: tuple[int, ...]) -> Choice:
    """The plan that has paths only: one level for all jobs, and no job is scheduled."""
    count = len(instance.jobs)
    return Choice(path_choice, (0,) * count, (UNSCHEDULED,) * count, (False,) * count)


def steps_of(profile: Profile) -> tuple[Step, ...]:
    """A measured profile as steps: each Up phase with the compute that follows it.

    The iteration begins with its first Up phase.
    """
    phases = profile.phases
    if not phases:
        return ()
    begins = [p.start_ns for p in phases[1:]] + [profile.period_ns + phases[0].start_ns]
    return tuple(
        Step(p.end_ns - p.start_ns, p.rate_bps, max(0, following - p.end_ns))
        for p, following in zip(phases, begins, strict=True)
    )
