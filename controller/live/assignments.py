# SPDX-License-Identifier: Apache-2.0
"""What each agent has received: ports, DSCPs and schedules. A new plan sends agents only what has changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import copy

from controller.interleave.slot_tolerance import SlotTolerance
from controller.live.job_registry import JobRegistry
from controller.live.messages import Effect, FlowFallback, SendAssignment, SendSchedule
from controller.live.slot_tolerance import tolerances
from controller.model.flow_plans import FlowPlans, header_of
from controller.model.job import Job
from controller.model.plan import JobPlan, Plan
from controller.model.traffic import TRAFFIC_CLASSES
from controller.model.view import FallbackFlow

log = logging.getLogger(__name__)


class Assignments:
    """Which agent asked for which flow, and what each agent received last.

    Every method that yields effects yields the messages to send.
    """

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._asked: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._assigned: dict[str, tuple[int, int, int]] = {}
        self.tolerances: Mapping[str, SlotTolerance[str]] = {}
        self._scheduled: dict[tuple[str, str], tuple[int, int, str, bool, float | None, float]] = {}
        self._fallback: dict[str, FallbackFlow] = {}
        # Hosts that asked for a flow of no job: logged once a session, for there may be thousands a second.
        self._asked_unknown: set[str] = set()

    @property
    def fallback_flows(self) -> tuple[FallbackFlow, ...]:
        """The flows that their agents have moved back to ECMP, sorted by name."""
        return tuple(flow for _, flow in sorted(self._fallback.items()))

    def adopt(self, plan: Plan, registry: JobRegistry) -> Iterator[Effect]:
        """A plan is in force: tell agents what it changes, and answer the requests that wait for it."""
        before, self._plan = self._plan, plan
        self.tolerances = tolerances(plan, registry.jobs)
        asked = self._asked
        if before is not None and isinstance(plan.flows, FlowPlans):
            asked = {f: host for f in plan.flows.changed_since(before.flows) if (host := asked.get(f))}
        for flow, host in asked.items():
            yield from self._assign(host, flow)
        for flow, host in list(self._waiting.items()):
            if flow in plan.flows:
                del self._waiting[flow]
                self._asked[flow] = host
                yield from self._assign(host, flow, again=True)
        yield from self._schedules(plan.jobs, registry)

    def restored(self, plan: Plan, registry: JobRegistry) -> None:
        """The plan of an earlier controller is in force: agents receive it when their sessions begin."""
        self._plan = plan
        self.tolerances = tolerances(plan, registry.jobs)

    def preview(self, plan: Plan, registry: JobRegistry) -> tuple[Effect, ...]:
        """What `adopt` would tell agents. Nothing changes."""
        other = copy(self)
        for name in ("_asked", "_waiting", "_assigned", "_scheduled", "_fallback"):
            setattr(other, name, dict(getattr(self, name)))
        return tuple(other.adopt(plan, registry))

    def slots_moved(self, plan: Plan, jobs: Iterable[str], registry: JobRegistry) -> Iterator[Effect]:
        """The slots of `jobs` in the plan in force have moved together: tell their agents."""
        self._plan = plan
        yield from self._schedules(jobs, registry)

    def flow_fallback(self, now_ns: int, item: FlowFallback, registry: JobRegistry) -> Iterator[Effect]:
        """An agent has moved a pinned flow to ECMP, or back to its pin.

        While the flow is on ECMP, the agent receives no other source port for it. Once the flow is back on
        its pin, the agent receives what the plan then has for it.
        """
        if registry.flow(item.flow) is None:
            log.warning("host %s: ignored the fallback of flow %s, which is of no job", item.host, item.flow)
        elif item.on_ecmp:
            log.warning("host %s: flow %s goes back to ECMP: %s", item.host, item.flow, item.why)
            self._fallback[item.flow] = FallbackFlow(item.flow, item.host, item.source_port, now_ns, item.why)
        elif self._fallback.pop(item.flow, None) is not None:
            log.info("host %s: flow %s uses its pinned source port again", item.host, item.flow)
            if item.flow in self._asked:
                yield from self._assign(item.host, item.flow)

    def agent_up(self, host: str) -> None:
        """A new session: forget what the agent received before, for it may have restarted."""
        self._fallback = {flow: fell for flow, fell in self._fallback.items() if fell.host != host}
        self._asked_unknown.discard(host)
        for flow in [f for f, asker in self._asked.items() if asker == host]:
            del self._asked[flow]
            self._assigned.pop(flow, None)
        for key in [k for k in self._scheduled if k[0] == host]:
            del self._scheduled[key]

    def worker_joined(self, host: str, job: str) -> Iterator[Effect]:
        """One more worker has joined; if its job has a plan already, send its host the schedule."""
        if self._plan is not None and job in self._plan.jobs:
            yield from self._schedule((host,), self._plan.jobs[job])

    def job_left(self, job: Job) -> None:
        """Forget a job and its flows."""
        for flow in job.flows:
            for table in (self._asked, self._waiting, self._assigned, self._fallback):
                table.pop(flow.name, None)
        for key in [k for k in self._scheduled if k[1] == job.name]:
            del self._scheduled[key]

    def flow_asked(self, host: str, flow: str, registry: JobRegistry) -> Iterator[Effect]:
        """An agent asks for a flow's path: the plan in force answers at once, or else the next plan does."""
        if self._plan is not None and flow in self._plan.flows:
            self._asked[flow] = host
            yield from self._assign(host, flow, again=True)
        elif registry.flow(flow) is not None:
            # The job is still arriving, so the next plan answers. The agent does not wait longer than its
            # own deadline.
            self._waiting[flow] = host
        else:
            yield SendAssignment(host, flow, 0, TRAFFIC_CLASSES.mice)
            level = logging.DEBUG if host in self._asked_unknown else logging.WARNING
            self._asked_unknown.add(host)
            log.log(
                level,
                "host %s asks for flow %s, which belongs to no job here; such flows go by ECMP (logged once)",
                host,
                flow,
            )

    def _assign(self, host: str, flow: str, *, again: bool = False) -> Iterator[Effect]:
        """Send a flow's port, DSCP and rate cap if they have changed, or, with `again`, in any case."""
        planned = header_of(self._plan.flows, flow) if self._plan is not None else None
        if planned is None:
            return
        port, dscp, cap_bps = planned
        fallback = self._fallback.get(flow)
        answer = (port or 0 if fallback is None else fallback.source_port, dscp, cap_bps)
        if again or self._assigned.get(flow) != answer:
            self._assigned[flow] = answer
            yield SendAssignment(host, flow, *answer)

    def _schedules(self, jobs: Iterable[str], registry: JobRegistry) -> Iterator[Effect]:
        for name in sorted(jobs):
            job = registry.get(name)
            if job is not None and self._plan is not None:
                yield from self._schedule(job.hosts, self._plan.jobs[name])

    def _schedule(self, hosts: Iterable[str], plan: JobPlan) -> Iterator[Effect]:
        """Send hosts a job's schedule if it has changed. A new epoch with the same slots is no change."""
        epoch = self._plan.epoch_ns if self._plan is not None else 0
        period = plan.period_ns or 0
        # Rounded, so that a plan that moves slots by a little is no news.
        known = self.tolerances.get(plan.job)
        tolerance = round(known.latest, 2) if known is not None else 0.0
        how = (period, plan.sender, plan.once, plan.realign, tolerance)
        schedule = ((epoch + plan.shift_ns) % period if period else 0, *how)
        # The slot before the plan's first one counts too: a job that is a little late for it need not wait.
        before = period if not plan.once and epoch >= period else 0
        for host in hosts:
            if self._scheduled.get((host, plan.job)) != schedule:
                self._scheduled[host, plan.job] = schedule
                yield SendSchedule(host, plan.job, epoch - before, plan.shift_ns if period else 0, *how)
