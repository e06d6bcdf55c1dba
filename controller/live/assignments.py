# SPDX-License-Identifier: Apache-2.0
"""What agents have been told: ports, DSCPs and schedules, so that a new plan tells them only its news."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from controller.live.job_registry import JobRegistry
from controller.live.messages import Effect, FlowFallback, SendAssignment, SendSchedule
from controller.model.job import Job
from controller.model.plan import JobPlan, Plan
from controller.model.traffic import TRAFFIC_CLASSES
from controller.model.view import FallbackFlow

log = logging.getLogger(__name__)


class Assignments:
    """Who asked for which flow, and what each agent heard last. Every method gives what is to be sent."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._asked: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._assigned: dict[str, tuple[int, int, int]] = {}
        self._scheduled: dict[tuple[str, str], tuple[int, int, str, bool, float | None]] = {}
        self._fallen: dict[str, FallbackFlow] = {}
        # Who has asked for a flow of no job: said once for each session, for there may be thousands a second.
        self._strangers: set[str] = set()

    @property
    def fallback_flows(self) -> tuple[FallbackFlow, ...]:
        """The flows that go by ECMP by their agents' decision, by name."""
        return tuple(fell for _, fell in sorted(self._fallen.items()))

    def adopt(self, plan: Plan, registry: JobRegistry) -> Iterator[Effect]:
        """A plan is in force: what it changes for agents, and answers to those who wait."""
        self._plan = plan
        for flow, host in self._asked.items():
            yield from self._assign(host, flow)
        for flow, host in list(self._waiting.items()):
            if flow in plan.flows:
                del self._waiting[flow]
                self._asked[flow] = host
                yield from self._assign(host, flow, again=True)
        for name, job_plan in sorted(plan.jobs.items()):
            job = registry.get(name)
            for host in dict.fromkeys(job.hosts if job is not None else ()):
                yield from self._schedule(host, job_plan)

    def fell(self, now_ns: int, item: FlowFallback, registry: JobRegistry) -> Iterator[Effect]:
        """An agent lets a pinned flow go by ECMP, and gets no other pin for it; or it goes by its pin again,
        and hears what the plan has for it by now."""
        job = registry.flows.get(item.flow)
        if job is None or all(f.name != item.flow or f.src != item.host for f in job.flows):
            log.warning("%s tells of %s, which is no flow of a job there", item.host, item.flow)
        elif item.on_ecmp:
            log.warning("%s: %s goes back to ECMP: %s", item.host, item.flow, item.why)
            self._fallen[item.flow] = FallbackFlow(item.flow, item.host, item.source_port, now_ns, item.why)
        elif self._fallen.pop(item.flow, None) is not None:
            log.info("%s: %s goes by its pin again", item.host, item.flow)
            if item.flow in self._asked:
                yield from self._assign(item.host, item.flow)

    def agent_up(self, host: str) -> None:
        """An agent that has started again knows nothing of what an earlier one was told."""
        self._fallen = {flow: fell for flow, fell in self._fallen.items() if fell.host != host}
        self._strangers.discard(host)
        for flow in [f for f, asker in self._asked.items() if asker == host]:
            del self._asked[flow]
            self._assigned.pop(flow, None)
        for key in [k for k in self._scheduled if k[0] == host]:
            del self._scheduled[key]

    def worker_joined(self, host: str, job: str) -> Iterator[Effect]:
        """One more worker of a job that may be planned already."""
        if self._plan is not None and job in self._plan.jobs:
            yield from self._schedule(host, self._plan.jobs[job])

    def job_left(self, job: Job) -> None:
        """Forget a job and its flows."""
        for flow in job.flows:
            for table in (self._asked, self._waiting, self._assigned, self._fallen):
                table.pop(flow.name, None)
        for key in [k for k in self._scheduled if k[1] == job.name]:
            del self._scheduled[key]

    def flow_asked(self, host: str, flow: str, registry: JobRegistry) -> Iterator[Effect]:
        """An agent asks for a flow: the plan answers at once, or the next one will."""
        if self._plan is not None and flow in self._plan.flows:
            self._asked[flow] = host
            yield from self._assign(host, flow, again=True)
        elif flow in registry.flows:
            # Its job is arriving: the plan that knows it will answer; until then the agent's own
            # deadline keeps it from waiting.
            self._waiting[flow] = host
        else:
            yield SendAssignment(host, flow, 0, TRAFFIC_CLASSES.mice)
            level = logging.DEBUG if host in self._strangers else logging.WARNING
            self._strangers.add(host)
            log.log(level, "%s asks for %s, a flow of no job here; all such go by ECMP", host, flow)

    def _assign(self, host: str, flow: str, *, again: bool = False) -> Iterator[Effect]:
        """Tell an agent a flow's port, DSCP and rate cap if they are news, or `again` because it asks."""
        planned = self._plan.flows.get(flow) if self._plan is not None else None
        if planned is None:
            return
        fell = self._fallen.get(flow)
        port = planned.source_port or 0 if fell is None else fell.source_port
        answer = (port, planned.dscp, planned.rate_cap_bps)
        if again or self._assigned.get(flow) != answer:
            self._assigned[flow] = answer
            yield SendAssignment(host, flow, *answer)

    def _schedule(self, host: str, plan: JobPlan) -> Iterator[Effect]:
        """Tell an agent when a job talks, if that is news: a new epoch alone is none."""
        epoch = self._plan.epoch_ns if self._plan is not None else 0
        period = plan.period_ns or 0
        how = (period, plan.sender, plan.once, plan.realign)
        news = ((epoch + plan.shift_ns) % period if period else 0, *how)
        if self._scheduled.get((host, plan.job)) == news:
            return
        self._scheduled[host, plan.job] = news
        yield SendSchedule(host, plan.job, epoch, plan.shift_ns if period else 0, *how)
