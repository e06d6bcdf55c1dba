# SPDX-License-Identifier: Apache-2.0
"""Which jobs are on the fabric: a job has arrived when all its workers have joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.model.job import Job
from topo.graph import Topology

MOST_BPS = 10**15
"""The highest rate of a phase that is believed: no link of today comes near."""


class JoinError(ValueError):
    """A worker that cannot join; the message goes to its agent."""


@dataclass(slots=True)
class _Member:
    announced: Job
    job: Job
    ranks: set[int] = field(default_factory=set)
    arrived: bool = False


class JobRegistry:
    """The jobs whose workers have joined, whole or in part."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._members: dict[str, _Member] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have arrived, by name."""
        return tuple(m.job for _, m in sorted(self._members.items()) if m.arrived)

    def get(self, name: str) -> Job | None:
        """A job that has arrived."""
        member = self._members.get(name)
        return member.job if member is not None and member.arrived else None

    @property
    def flows(self) -> Mapping[str, Job]:
        """The flows of all jobs of which at least one worker has joined."""
        return {f.name: m.job for m in self._members.values() for f in m.job.flows}

    def join(self, host: str, rank: int, job: Job) -> bool:
        """A worker joins. True if the job has arrived with it; joining twice is no harm.

        Raises:
            JoinError: the worker's word of the job makes no sense here.
        """
        if not 0 <= rank < len(job.hosts) or job.hosts[rank] != host:
            raise JoinError(f"rank {rank} of job {job.name} does not live on {host}")
        member = self._members.get(job.name)
        if member is None:
            self._check(job)
            member = self._members[job.name] = _Member(job, job)
        elif member.announced != _as_told(job, member.announced):
            raise JoinError(f"rank {rank} of job {job.name} tells of the job otherwise than its peers")
        member.ranks.add(rank)
        if member.arrived or len(member.ranks) < len(job.hosts):
            return False
        member.arrived = True
        return True

    def take_measured(self, measured: Job) -> None:
        """Take a job as it was measured for what it announced."""
        member = self._members.get(measured.name)
        if member is not None:
            member.job = measured

    def declared(self, name: str) -> Job | None:
        """What a job's workers say of it."""
        member = self._members.get(name)
        return member.announced if member is not None else None

    def correct_period(self, name: str, period_ns: int) -> None:
        """Take a job's measured period for the announced one; its Up phases stay where they are."""
        member = self._members[name]
        profile = member.job.profile
        least = max((p.end_ns for p in profile.phases), default=0)
        measured = replace(profile, period_ns=max(period_ns, least))
        member.job = replace(member.job, profile=measured)

    def leave(self, name: str, rank: int) -> Job | None:
        """A worker leaves. The job, if it had arrived and this was its last worker."""
        member = self._members.get(name)
        if member is None:
            return None
        member.ranks.discard(rank)
        if member.ranks:
            return None
        del self._members[name]
        return member.job if member.arrived else None

    def _check(self, job: Job) -> None:
        unknown = sorted(
            {*job.hosts, *(f.src for f in job.flows), *(f.dst for f in job.flows)} - set(self._topology.host)
        )
        if unknown:
            raise JoinError(f"job {job.name}: no host of the fabric is named {', '.join(unknown)}")
        profile = job.profile
        if profile.period_ns < 1 and profile.phases:
            raise JoinError(f"job {job.name}: the period is {profile.period_ns} ns; it must be above 0")
        end = 0
        for phase in profile.phases:
            if not end <= phase.start_ns < phase.end_ns <= profile.period_ns:
                raise JoinError(f"job {job.name}: phases must be sorted, disjoint and in the period")
            if not 1 <= phase.rate_bps <= MOST_BPS:
                raise JoinError(
                    f"job {job.name}: a phase's rate is from 1 to {MOST_BPS:,} bit/s, not {phase.rate_bps:,}"
                )
            end = phase.end_ns
        names = [f.name for f in job.flows]
        if len(set(names)) != len(names) or any(f.job != job.name for f in job.flows):
            raise JoinError(f"job {job.name}: flow names must be unique")
        taken = sorted(set(names) & set(self.flows))
        if taken:
            raise JoinError(f"job {job.name}: flow {taken[0]} belongs to another job")


def _as_told(job: Job, first: Job) -> Job:
    """A worker's word with the first one's PCIe link: hosts may call theirs differently."""
    return replace(job, pcie_link=first.pcie_link, pcie_bps=first.pcie_bps)
