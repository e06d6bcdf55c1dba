# SPDX-License-Identifier: Apache-2.0
"""The jobs on the fabric. A job has arrived when all its workers have joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.live.job_names import announced_name, candidate_names
from controller.live.messages import SendJobAccepted
from controller.model.job import Flow, Job
from controller.wire.limits import MAX_FLOWS_OF_JOB, MAX_FLOWS_OF_PAIR
from polyrhythm_files import listed
from topo.addresses import is_ipv6
from topo.graph import Topology

OTHER_PERIOD = 0.15
"""A period that differs by more than this part is another one. Chosen, as for the agents' observed jobs."""
OTHER_UP = 0.3
"""Up phases are others if their part of the period differs by more than this. Chosen."""
MAX_RATE_BPS = 10**15
"""The highest rate of a phase that is accepted, in bit/s. Chosen: far above any link of today."""


class JoinError(ValueError):
    """A worker cannot join; the message says why and is sent to its agent."""


@dataclass(slots=True)
class RegisteredJob:
    """A job as its first worker announced it, as it is planned with, and the ranks that have joined.

    A `requested` job was declared by a REST request for all its workers, and ends by one.
    """

    announced: Job
    job: Job
    ranks: set[int] = field(default_factory=set)
    arrived: bool = False
    requested: bool = False


class JobRegistry:
    """The jobs of which at least one worker has joined."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._jobs: dict[str, RegisteredJob] = {}
        self._flows: dict[str, Flow] = {}
        self._names: dict[str, list[str]] = {}
        self._present: dict[str, Counter[str]] = {}
        self._changed: set[str] = set()
        self._joined: list[SendJobAccepted] = []

    def take_changed(self) -> Mapping[str, RegisteredJob | None]:
        """The jobs that have changed since the last call, by name; None for one that is gone."""
        changed, self._changed = self._changed, set()
        return {name: self._jobs.get(name) for name in sorted(changed)}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that have arrived, sorted by name."""
        return tuple(m.job for _, m in sorted(self._jobs.items()) if m.arrived)

    def get(self, name: str) -> Job | None:
        """The job of that name, with its measured profile if there is one; None if it has not arrived."""
        known = self._jobs.get(name)
        return known.job if known is not None and known.arrived else None

    def flow(self, name: str) -> Flow | None:
        """A flow of a job of which a worker has joined; None for a flow of no job."""
        return self._flows.get(name)

    def job_of(self, flow: str) -> Job | None:
        """The job of a flow, for all jobs of which a worker has joined; None for a flow of no job."""
        found = self._flows.get(flow)
        return self._jobs[found.job].job if found is not None else None

    @property
    def renamed(self) -> bool:
        """Whether a job goes by another name than the one that its agents use."""
        return len(self._names) < len(self._jobs)

    def names_of(self, announced: str) -> Sequence[str]:
        """The names of all jobs that agents announce under one name."""
        return self._names.get(announced, ())

    def name_for(self, job: Job) -> str:
        """The name by which a job goes that an agent announces: its present one, else the first free one."""
        for name in self.names_of(job.name):
            if self._jobs[name].announced.hosts == job.hosts:
                return name
        return next(name for name in candidate_names(job) if name not in self._jobs)

    def named(self, host: str, rank: int, announced: str) -> str | None:
        """The job that an agent announced under that name, if its rank on this host has joined."""
        for name in self.names_of(announced):
            known = self._jobs[name]
            if rank in known.ranks and known.announced.hosts[rank] == host:
                return name
        return None

    def is_present(self, host: str, name: str) -> bool:
        """Whether a worker of the job has joined on the host."""
        return self._present[name][host] > 0

    def workers_of(self, host: str) -> tuple[tuple[str, int], ...]:
        """Job and rank of each worker that has joined on the host, without those of requested jobs."""
        return tuple(
            (name, rank)
            for name, known in sorted(self._jobs.items())
            if self._present[name][host] and not known.requested
            for rank in sorted(known.ranks)
            if known.announced.hosts[rank] == host
        )

    def load_of(self, host: str) -> tuple[int, int]:
        """How many jobs have a worker on the host, and how many flows those jobs have."""
        present = [self._jobs[name] for name, hosts in self._present.items() if hosts[host]]
        return len(present), sum(len(known.announced.flows) for known in present)

    def join(self, host: str, rank: int, job: Job) -> bool:
        """A worker joins. True if the job has arrived with it. A worker may join twice. One that has left and
        joins again with another profile has measured it anew: the job is then described by that.

        Raises:
            JoinError: the description of the job is invalid, or differs from what its first worker sent in
                more than figures that each worker measures by itself.
        """
        if not 0 <= rank < len(job.hosts) or job.hosts[rank] != host:
            raise JoinError(f"job {job.name}: its list of hosts does not have rank {rank} on host {host}")
        known = self._jobs.get(job.name)
        if known is None:
            self._check(job)
            known = self._jobs[job.name] = RegisteredJob(job, job)
            self._index(job)
        elif not _alike(known.announced, _with_pcie_of(job, known.announced)):
            raise JoinError(
                f"job {job.name}: rank {rank} describes the job differently than its other workers"
            )
        elif known.arrived and rank not in known.ranks and _measured_anew(known.announced, job):
            self._check(job)
            known.job = known.announced = replace(known.announced, profile=job.profile, flows=job.flows)
            self._flows.update((f.name, f) for f in job.flows)
        self._joined.append(SendJobAccepted(host, announced_name(job), rank))
        if rank not in known.ranks:
            known.ranks.add(rank)
            self._present[job.name][host] += 1
            self._changed.add(job.name)
        if known.arrived or len(known.ranks) < len(job.hosts):
            return False
        known.arrived = True
        return True

    def take_joined(self) -> tuple[SendJobAccepted, ...]:
        """What to tell the agents whose workers have joined since the last call, once that is stored."""
        joined, self._joined = tuple(self._joined), []
        return joined

    def restore(self, job: RegisteredJob) -> None:
        """Take up a job of an earlier controller.

        Raises:
            JoinError: the job does not fit the fabric any more.
        """
        if not job.ranks or not job.ranks <= set(range(len(job.announced.hosts))):
            raise JoinError(f"job {job.announced.name}: it has no such workers as {sorted(job.ranks)}")
        self._check(job.announced)
        self._jobs[job.announced.name] = job
        self._index(job.announced)
        self._present[job.announced.name].update(job.announced.hosts[rank] for rank in job.ranks)

    def take_measured(self, measured: Job) -> None:
        """Replace what a job announced by what was measured."""
        known = self._jobs.get(measured.name)
        if known is not None:
            known.job = measured
            self._changed.add(measured.name)

    def declared(self, name: str) -> Job | None:
        """The job as its workers announced it; None if no worker has joined."""
        known = self._jobs.get(name)
        return known.announced if known is not None else None

    def differs(self, job: Job) -> bool:
        """Whether a job of that name is registered and was described differently."""
        known = self._jobs.get(job.name)
        return known is not None and known.announced != _with_pcie_of(job, known.announced)

    def correct_period(self, name: str, period_ns: int, half_width_ns: int) -> None:
        """Set a job's period to `period_ns`, but not below the end of its last phase. The phases stay.

        The new period is known to +- `half_width_ns`.
        """
        known = self._jobs[name]
        self._changed.add(name)
        profile = known.job.profile
        least = max((p.end_ns for p in profile.phases), default=0)
        measured = replace(profile, period_ns=max(period_ns, least))
        known.job = replace(known.job, profile=measured)
        was = known.job.measured
        if was is not None and was.confidence is not None:
            confidence = replace(was.confidence, period_ns=half_width_ns)
            known.job = replace(known.job, measured=replace(was, confidence=confidence))
        elif was is None:
            known.job = replace(known.job, corrected_half_width_ns=half_width_ns)

    def is_requested(self, name: str) -> bool:
        """Whether a REST request has declared the job."""
        known = self._jobs.get(name)
        return known is not None and known.requested

    def set_requested(self, name: str, requested: bool) -> None:
        """Say whether a REST request has declared a job that is there."""
        self._jobs[name].requested = requested
        self._changed.add(name)

    def leave(self, name: str, rank: int) -> Job | None:
        """A worker leaves. Returns the job if it had arrived and this was its last worker. Workers of
        requested jobs may come and go."""
        known = self._jobs.get(name)
        if known is None or known.requested:
            return None
        if rank in known.ranks:
            known.ranks.remove(rank)
            self._present[name][known.announced.hosts[rank]] -= 1
        self._changed.add(name)
        if known.ranks:
            return None
        del self._jobs[name]
        self._forget(known.announced)
        return known.job if known.arrived else None

    def _index(self, job: Job) -> None:
        self._flows.update((f.name, f) for f in job.flows)
        self._names.setdefault(announced_name(job), []).append(job.name)
        self._present[job.name] = Counter()

    def _forget(self, job: Job) -> None:
        for flow in job.flows:
            del self._flows[flow.name]
        announced = announced_name(job)
        self._names[announced].remove(job.name)
        if not self._names[announced]:
            del self._names[announced]
        del self._present[job.name]

    def _check(self, job: Job) -> None:
        if len(job.flows) > MAX_FLOWS_OF_JOB:
            raise JoinError(
                f"job {job.name}: it has {len(job.flows):,} flows; legal: at most {MAX_FLOWS_OF_JOB:,}"
            )
        hosts = set(job.hosts)
        pairs = Counter((f.src, f.dst) for f in job.flows)
        ends = {host for pair in pairs for host in pair}
        if unknown := sorted((hosts | ends) - self._topology.host.keys()):
            raise JoinError(f"job {job.name}: the fabric has no host named {listed(unknown):.500}")
        ip = {host: self._topology.host[host].ip for host in ends}
        if len({is_ipv6(address) for address in ip.values()}) > 1:
            mixed = next((pair for pair in pairs if is_ipv6(ip[pair[0]]) != is_ipv6(ip[pair[1]])), None)
            if mixed is not None:
                raise JoinError(
                    f"job {job.name}: {mixed[0]} has the address {ip[mixed[0]]}, {mixed[1]} {ip[mixed[1]]}; "
                    "legal: flows between hosts of one address family"
                )
        crowded = next((pair for pair, count in pairs.items() if count > MAX_FLOWS_OF_PAIR), None)
        if crowded is not None:
            raise JoinError(
                f"job {job.name}: {pairs[crowded]:,} flows go from {crowded[0]} to {crowded[1]}; legal: at "
                f"most {MAX_FLOWS_OF_PAIR:,} of one job from one host to another"
            )
        if not ends <= hosts:
            flow = next(f for f in job.flows if f.src not in hosts or f.dst not in hosts)
            raise JoinError(
                f"job {job.name}: flow {flow.name:.300} goes from {flow.src} to {flow.dst}; legal: from "
                "one host of the job to another"
            )
        start = f"{job.name}/"
        wrong = next((f.name for f in job.flows if not f.name.startswith(start)), None)
        if wrong is not None:
            raise JoinError(
                f"job {job.name}: {wrong:.300} is wrong for a flow's name; legal: it begins with {start}"
            )
        profile = job.profile
        if profile.period_ns < 1 and profile.phases:
            raise JoinError(f"job {job.name}: the period is {profile.period_ns} ns; it must be above 0")
        end = 0
        for phase in profile.phases:
            if not end <= phase.start_ns < phase.end_ns <= profile.period_ns:
                raise JoinError(
                    f"job {job.name}: phases must be sorted, must not overlap and must lie within the period"
                )
            if not 1 <= phase.rate_bps <= MAX_RATE_BPS:
                raise JoinError(
                    f"job {job.name}: a phase has {phase.rate_bps:,} bit/s; legal: 1 to {MAX_RATE_BPS:,}"
                )
            end = phase.end_ns
        names = [f.name for f in job.flows]
        if len(set(names)) != len(names) or any(f.job != job.name for f in job.flows):
            raise JoinError(f"job {job.name}: its flows must have unique names and belong to this job")


def _alike(a: Job, b: Job) -> bool:
    """Whether two descriptions differ at most in what each worker may have measured by itself: the profile,
    and the flows' bytes."""
    if a == b:
        return True
    if len(a.flows) != len(b.flows) or replace(a, profile=b.profile, flows=b.flows) != b:
        return False
    return all(
        (f.name, f.job, f.src, f.dst) == (g.name, g.job, g.src, g.dst)
        for f, g in zip(a.flows, b.flows, strict=True)
    )


def _measured_anew(before: Job, now: Job) -> bool:
    """Whether a worker describes another period or other Up phases than before. Two workers' measurements of
    one profile differ by less."""
    pairs = ((j.profile.period_ns, j.profile.up_ns / max(1, j.profile.period_ns)) for j in (before, now))
    (was, was_up), (period, up) = pairs
    return abs(period - was) > OTHER_PERIOD * was or abs(up - was_up) > OTHER_UP


def _with_pcie_of(job: Job, first: Job) -> Job:
    """`job` with the PCIe link of `first`: hosts of one job may name their PCIe links differently."""
    return replace(job, pcie_link=first.pcie_link, pcie_bps=first.pcie_bps)
