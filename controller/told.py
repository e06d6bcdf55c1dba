# SPDX-License-Identifier: Apache-2.0
"""What agents have been told: ports, DSCPs and schedules, so that a new plan tells them only its news."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from controller.members import Members
from controller.messages import Effect, SendAssignment, SendSchedule
from controller.model.job import Job
from controller.model.plan import JobPlan, Plan
from controller.model.traffic import TRAFFIC_CLASSES

log = logging.getLogger(__name__)


class Told:
    """Who asked for which flow, and what each agent heard last. Every method gives what is to be sent."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._asked: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._assigned: dict[str, tuple[int, int, int]] = {}
        self._scheduled: dict[tuple[str, str], tuple[int, int, str, bool, float | None]] = {}

    def adopt(self, plan: Plan, members: Members) -> Iterator[Effect]:
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
            job = members.get(name)
            for host in dict.fromkeys(job.hosts if job is not None else ()):
                yield from self._schedule(host, job_plan)

    def agent_up(self, host: str) -> None:
        """An agent that has started again knows nothing of what an earlier one was told."""
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
            for table in (self._asked, self._waiting, self._assigned):
                table.pop(flow.name, None)
        for key in [k for k in self._scheduled if k[1] == job.name]:
            del self._scheduled[key]

    def flow_asked(self, host: str, flow: str, members: Members) -> Iterator[Effect]:
        """An agent asks for a flow: the plan answers at once, or the next one will."""
        if self._plan is not None and flow in self._plan.flows:
            self._asked[flow] = host
            yield from self._assign(host, flow, again=True)
        elif flow in members.flows:
            # Its job is arriving: the plan that knows it will answer; until then the agent's own
            # deadline keeps it from waiting.
            self._waiting[flow] = host
        else:
            yield SendAssignment(host, flow, 0, TRAFFIC_CLASSES.mice)
            log.warning("%s asks for %s, a flow of no job here; it goes by ECMP", host, flow)

    def _assign(self, host: str, flow: str, *, again: bool = False) -> Iterator[Effect]:
        """Tell an agent a flow's port, DSCP and rate cap if they are news, or `again` because it asks."""
        planned = self._plan.flows.get(flow) if self._plan is not None else None
        if planned is None:
            return
        answer = (planned.source_port or 0, planned.dscp, planned.rate_cap_bps)
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
