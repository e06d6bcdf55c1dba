# SPDX-License-Identifier: Apache-2.0
"""The jobs that REST requests declare, on a running controller."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from controller.live.agent_authority import NotAllowedError, check_limits
from controller.live.core import Core
from controller.live.job_names import name_fault
from controller.live.job_registry import JoinError
from controller.live.operator_commands import JobEnded, JobRequested
from controller.model.job import Flow, Job, Phase, Profile
from controller.northbound.job_routes import Declaration
from controller.northbound.problems import OperationError
from controller.process.plan_operations import registry_of
from controller.wire.senders import canonical_sender
from controller.wire.traffic import TrafficError, flow_name, flows_of, spread
from controller.wire.traffic_config import TrafficConfig
from polyrhythm_files import InvalidValueError
from topo.graph import Topology

_NS_PER_MS = 1_000_000
# Chosen, host time: how long a request waits for the next step of the control loop, and how often it looks.
TAKEN_UP_S = 20.0
_LOOK_S = 0.005


class RunningJobs:
    """The `JobOperations` of a running controller. Use it on the controller's event loop.

    `command` gives the core an input.
    """

    def __init__(
        self,
        core: Core,
        command: Callable[[JobRequested | JobEnded], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when a request has changed the jobs, before it is answered."""
        self._core = core
        self._command = command
        self._changed = changed
        # One change after the other: each is checked against what the one before has made.
        self._turn = asyncio.Lock()

    def declaration(self, name: str) -> Declaration:
        """A job as it was declared. Raises OperationError."""
        job = self._core.registry.declared(name)
        if job is None:
            raise OperationError(404, f"no job {name!r:.200}; legal: a present job, as GET /jobs lists them")
        return Declaration(job, self._core.registry.is_requested(name))

    async def create(self, asked: Mapping[str, Any]) -> Declaration:
        """Declare a job. Raises OperationError."""
        async with self._turn:
            registry = self._core.registry
            if registry.declared(asked["name"]) is not None:
                raise OperationError(
                    409, f"job {asked['name']} is there already; legal: another name, or PATCH"
                )
            return await self._declare(await asyncio.to_thread(job_of, asked, self._core.topology))

    async def change(self, name: str, asked: Mapping[str, Any]) -> Declaration:
        """Describe a requested job anew. Raises OperationError."""
        async with self._turn:
            found = self.declaration(name)
            if not found.requested:
                raise OperationError(409, f"job {name} was declared by its agents; legal: a job of a request")
            job = await asyncio.to_thread(job_of, asked, self._core.topology, found.job)
            return await self._declare(job)

    async def end(self, name: str) -> None:
        """End a job. Raises OperationError."""
        async with self._turn:
            job = self.declaration(name).job
            self._command(JobEnded(name))
            await self._until(lambda: self._core.registry.declared(name) is not job)

    async def _declare(self, job: Job) -> Declaration:
        registry = self._core.registry
        before = registry.declared(job.name)
        try:
            for host in dict.fromkeys(job.hosts):
                jobs, flows = registry.load_of(host)
                if before is not None and host in before.hosts:
                    jobs, flows = jobs - 1, flows - len(before.flows)
                check_limits((jobs, flows), host, job.name, len(job.flows))
        except NotAllowedError as error:
            raise OperationError(409, str(error)) from None
        self._command(JobRequested(job))
        await self._until(lambda: registry.declared(job.name) not in (None, before) or before == job)
        made = self.declaration(job.name)
        if not made.requested:
            raise OperationError(409, f"job {job.name} was declared by its agents meanwhile")
        return made

    async def _until(self, done: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(TAKEN_UP_S):
                while not done():
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise OperationError(
                503, f"the control loop has not taken it up within {TAKEN_UP_S:g} s"
            ) from None
        self._changed()


def job_of(asked: Mapping[str, Any], topology: Topology, before: Job | None = None) -> Job:
    """The job that a request describes, or what it makes of the job as it was.

    Raises:
        OperationError: the fabric cannot have such a job; the message says why.
    """
    name = before.name if before is not None else asked["name"]
    given = {key: asked[key] for key in ("model", "gpus", "flops_per_iteration") if key in asked}
    try:
        if "hosts" in asked:
            given["hosts"] = tuple(asked["hosts"])
        if "sender" in asked:
            given["sender"] = canonical_sender(asked["sender"])
        profile = before.profile if before is not None else Profile(0, ())
        period_ns = round(asked["period_ms"] * _NS_PER_MS) if "period_ms" in asked else profile.period_ns
        phases = _phases(asked["phases"]) if "phases" in asked else profile.phases
        given["profile"] = Profile(period_ns, phases)
        job = Job(name=name, flows=(), **given) if before is None else replace(before, **given)
        if fault := name_fault(job):
            raise JoinError(fault)
        flows, traffic = asked.get("flows"), asked.get("traffic")
        if flows is not None and traffic is not None:
            raise JoinError(f"job {name}: flows and traffic are given; legal: one of them")
        if flows is not None:
            job = replace(job, flows=_flows(name, flows))
        elif traffic is not None:
            job = replace(job, flows=_flows_of_traffic(job, traffic, topology))
        registry_of(topology, (job,))
    except (JoinError, TrafficError, ValueError) as error:
        raise OperationError(409, str(error)) from None
    return job


def _phases(asked: Iterable[Mapping[str, Any]]) -> tuple[Phase, ...]:
    return tuple(
        Phase(round(p["start_ms"] * _NS_PER_MS), round(p["end_ms"] * _NS_PER_MS), p["rate_bps"])
        for p in asked
    )


def _flows(job: str, asked: Iterable[Mapping[str, Any]]) -> tuple[Flow, ...]:
    numbers: Counter[tuple[str, str]] = Counter()
    made = []
    for flow in asked:
        src, dst = flow["src"], flow["dst"]
        name = flow_name(job, src, dst, numbers[src, dst])
        numbers[src, dst] += 1
        made.append(Flow(name, job, src, dst, flow["bytes_per_iteration"]))
    return tuple(made)


def _flows_of_traffic(job: Job, asked: Mapping[str, Any], topology: Topology) -> tuple[Flow, ...]:
    """The flows that follow from collectives and parallelism. Raises JoinError or TrafficError."""
    unknown = [host for host in job.hosts if host not in topology.host]
    if unknown:
        raise JoinError(f"job {job.name}: the fabric has no host named {', '.join(unknown[:12])}")
    try:
        traffic = msgspec.convert(asked, TrafficConfig).traffic(job.gpus)
    except (InvalidValueError, msgspec.ValidationError) as error:
        raise JoinError(f"job {job.name}: traffic: {error}") from None
    places = spread([(topology.host[host].machine, [host]) for host in job.hosts], job.gpus)
    return tuple(
        Flow(
            flow_name(job.name, f.src, f.dst, f.number),
            job.name,
            f.src,
            f.dst,
            f.iteration_bytes(traffic.exchanges),
        )
        for f in flows_of(traffic, places)
    )
