# SPDX-License-Identifier: Apache-2.0
"""What an agent may say: it speaks for its own host and for jobs with a rank there, and for nothing else.

Every message of an agent passes here before the core acts on it. Here, too, the name that an agent uses for a
job becomes the name that the job goes by on the fabric, and the other way round (`job_names.py`).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from controller.live.job_names import announced_name, name_fault, renamed, renamed_flow
from controller.live.job_registry import JobRegistry
from controller.live.messages import (
    BytesCounted,
    ConnectionsSeen,
    Effect,
    FlowAsked,
    FlowFallback,
    FlowOpened,
    Input,
    IterationReport,
    ProbeAsked,
    SendAssignment,
    SendConnectionPath,
    SendMeasure,
    SendProbeResult,
    SendRefusal,
    SendSchedule,
    WorkerJoined,
    WorkerLeft,
)
from controller.model.job import job_of_flow
from controller.model.traffic import TRAFFIC_CLASSES
from controller.wire.limits import MAX_FLOWS_OF_HOST, MAX_JOBS_OF_HOST

log = logging.getLogger(__name__)


class NotAllowedError(ValueError):
    """An agent speaks for what is not its own; the text is sent back to it."""


class AgentAuthority:
    """Checks the messages of agents against the registry of jobs."""

    def __init__(self, registry: JobRegistry) -> None:
        self._registry = registry

    def checked(self, item: Input) -> tuple[tuple[Input, ...], tuple[Effect, ...]]:
        """The inputs that an agent's message stands for, and what to answer if it is not allowed."""
        try:
            return self._allowed(item), ()
        except NotAllowedError as error:
            host = getattr(item, "host", "")
            log.warning("host %s: a message of its agent is refused: %s", host, error)
            if isinstance(item, FlowAsked):
                # The flow must not wait.
                return (), (SendAssignment(host, item.flow, 0, TRAFFIC_CLASSES.mice),)
            return (), (SendRefusal(host, str(error)),)

    def for_agent(self, effect: Effect) -> Effect:
        """An effect with the names that its agent uses."""
        if not self._registry.renamed:
            return effect
        match effect:
            case SendAssignment() | SendProbeResult():
                name = job_of_flow(effect.flow)
                job = self._registry.declared(name)
                if job is not None:
                    return replace(effect, flow=renamed_flow(effect.flow, name, announced_name(job)))
            case SendConnectionPath():
                job = self._registry.declared(effect.job)
                if job is not None:
                    name = announced_name(job)
                    flow = renamed_flow(effect.flow, effect.job, name)
                    return replace(effect, flow=flow, job=name)
            case SendSchedule() | SendMeasure():
                job = self._registry.declared(effect.job)
                if job is not None:
                    return replace(effect, job=announced_name(job))
            case _:
                pass
        return effect

    def _allowed(self, item: Input) -> tuple[Input, ...]:
        match item:
            case FlowAsked() | FlowOpened() | FlowFallback() | ProbeAsked():
                return (replace(item, flow=self._flow(item.host, item.flow)),)
            case ConnectionsSeen():
                connections = tuple(
                    (is_open, replace(c, flow=self._flow(item.host, c.flow, either_end=True)))
                    for is_open, c in item.connections
                )
                return (replace(item, connections=connections),)
            case BytesCounted():
                name = self._job(item.host, item.job, item.rank)
                if name is None:
                    return ()
                flows = tuple((self._flow(item.host, f) if f else f, sent) for f, sent in item.flows)
                return (replace(item, job=name, flows=flows),)
            case IterationReport() | WorkerLeft():
                name = self._job(item.host, item.job, item.rank)
                return (replace(item, job=name),) if name is not None else ()
            case WorkerJoined():
                return self._joined(item)
            case _:
                return (item,)

    def _job(self, host: str, job: str, rank: int) -> str | None:
        """The name on the fabric of the job of which the host has the rank; None for a job of nobody.

        The agent of a job that was refused still reports its iterations, for example.
        """
        found = self._registry.named(host, rank, job)
        if found is None and self._registry.names_of(job):
            raise NotAllowedError(f"host {host} has no rank {rank} of job {job}")
        return found

    def _flow(self, host: str, flow: str, *, either_end: bool = False) -> str:
        """The name on the fabric of a flow that begins on the host, or with `either_end` ends there. A flow
        of no job keeps its name.

        Jobs that have a worker on the host come first. A flow may also open before the worker has joined.
        """
        registry = self._registry
        name, slash, _ = flow.partition("/")
        known = sorted(registry.names_of(name), key=lambda job: not registry.is_present(host, job))
        for job in known if slash else ():
            found = registry.flow(renamed_flow(flow, name, job))
            if found is not None and (found.src == host or (either_end and found.dst == host)):
                return found.name
        if registry.flow(flow) is not None:
            where = "begin or end" if either_end else "begin"
            raise NotAllowedError(f"flow {flow} does not {where} on host {host}")
        return flow

    def _joined(self, item: WorkerJoined) -> tuple[Input, ...]:
        job, host, registry = item.job, item.host, self._registry
        fault = name_fault(job)
        if fault:
            raise NotAllowedError(fault)
        if not job.hosts:
            return (item,)
        name = registry.name_for(job)
        before = registry.named(host, item.rank, job.name)
        joins = replace(item, job=renamed(job, name))
        if before == name:
            return (joins,)
        check_limits(registry.load_of(host), host, job.name, len(job.flows))
        # An agent has one job of a name and rank, so what it declared before has ended.
        return (joins,) if before is None else (WorkerLeft(host, item.rank, before), joins)


def check_limits(load: tuple[int, int], host: str, job: str, flows: int) -> None:
    """Raise NotAllowedError if one more job with so many flows is too much for a host. `load` is how many
    jobs it has, and their flows.
    """
    jobs, held = load
    if jobs >= MAX_JOBS_OF_HOST:
        raise NotAllowedError(
            f"job {job}: host {host} has {jobs} jobs already; legal: at most {MAX_JOBS_OF_HOST:,}"
        )
    if held + flows > MAX_FLOWS_OF_HOST:
        raise NotAllowedError(
            f"job {job}: with its {flows:,} flows, the jobs of host {host} have {held + flows:,}; legal: "
            f"at most {MAX_FLOWS_OF_HOST:,}"
        )
