# SPDX-License-Identifier: Apache-2.0
"""What the joint search is asked, and what it answers, as values."""

from __future__ import annotations

from dataclasses import dataclass

from controller.model import Profile

Links = tuple[int, ...]
JobTiming = tuple[int, int]
"""(period, shift) in ns: iterations begin at t with t mod period == shift. FREE: at their own pace."""
UNSCHEDULED: JobTiming = (0, 0)
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
    """A flow of a job: `part` of the bytes of the job's largest flow, and the ways it can go, each the
    numbers of the links on it."""

    relative_size: float
    candidate_paths: tuple[Links, ...]


@dataclass(frozen=True, slots=True)
class JointJob:
    """A job: iterations are its `steps` one after another; a step's compute waits for all its flows.

    `weight` is what a second of its compute counts for: its GPUs. `weighs`: its senders can weigh by MLTCP's
    F.
    """

    name: str
    weight: float
    steps: tuple[Step, ...]
    flows: tuple[JointFlow, ...]
    mltcp_capable: bool = True

    @property
    def alone_ns(self) -> int:
        """An iteration without others."""
        return sum(s.up_ns + s.compute_ns for s in self.steps)

    @property
    def compute_ns(self) -> int:
        """The compute in an iteration."""
        return sum(s.compute_ns for s in self.steps)

    @property
    def up_ns(self) -> int:
        """The time that an iteration sends if it is alone."""
        return sum(s.up_ns for s in self.steps)


@dataclass(frozen=True, slots=True)
class Instance:
    """Jobs on links of `capacity_bps` (by number). Each compute differs by up to `jitter` times itself,
    either way, uniformly. Switches have so many `levels`; no rhythm is more than `slowest` times as long
    as its job's own iterations. A flow that weighs by MLTCP has F(r) = slope r + intercept as its weight,
    `mltcp` being (slope, intercept), where others have 1."""

    jobs: tuple[JointJob, ...]
    capacity_bps: tuple[int, ...]
    jitter: float = 0.0
    levels: int = 6
    slowest: float = 1.05
    mltcp: tuple[float, float] = (SLOPE, INTERCEPT)

    @property
    def flows(self) -> tuple[tuple[int, JointFlow], ...]:
        """(job, flow) of all jobs, job by job: the order of `Choice.ways`."""
        return tuple((j, f) for j, p in enumerate(self.jobs) for f in p.flows)


@dataclass(frozen=True, slots=True)
class Choice:
    """A whole plan. `ways` holds the number of the way taken, by flow in the order of `Instance.flows`; by
    job its `level` (0 goes first), its `rhythm`, and whether its senders weigh by MLTCP's F."""

    path_choice: tuple[int, ...]
    level: tuple[int, ...]
    timings: tuple[JobTiming, ...]
    mltcp: tuple[bool, ...]


def mltcp_capable_jobs(instance: Instance) -> tuple[bool, ...]:
    """Which jobs can weigh by MLTCP's F."""
    return tuple(p.mltcp_capable for p in instance.jobs)


def plain(instance: Instance, path_choice: tuple[int, ...]) -> Choice:
    """Nothing but paths: one level, everyone at its own pace."""
    count = len(instance.jobs)
    return Choice(path_choice, (0,) * count, (UNSCHEDULED,) * count, (False,) * count)


def steps_of(profile: Profile) -> tuple[Step, ...]:
    """The steps of an iteration, which begins with its first Up phase."""
    phases = profile.phases
    if not phases:
        return ()
    begins = [p.start_ns for p in phases[1:]] + [profile.period_ns + phases[0].start_ns]
    return tuple(
        Step(p.end_ns - p.start_ns, p.rate_bps, max(0, following - p.end_ns))
        for p, following in zip(phases, begins, strict=True)
    )
