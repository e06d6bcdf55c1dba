# SPDX-License-Identifier: Apache-2.0
"""Lookahead in a live fabric: which jobs will send next, and when to assign paths for just these jobs.

Routing paper, 3.2. The iteration reports of a job say when its period began. Its profile gives the rest: how
many bytes of the current phase are left, at what rate they are sent, and when the next phase begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.live.messages import IterationReport
from controller.model.job import Job
from controller.model.plan import FlowPlan, Plan
from controller.routing.lookahead import ActiveFlow, ForeseenChange, PeriodicFlows, next_change
from controller.routing.protocol import Routing

# Agents receive new paths this long before the change they are for. Chosen: a message takes 1 ms in the
# embedded fabric, and a job may send a little earlier than predicted.
LEAD_TIME_NS = 3_000_000


class Lookahead:
    """When each job's period began, and the set of jobs for which paths were assigned last.

    A job that has reported no iteration yet counts as sending all the time. Where the policy's `routing` does
    not look ahead, no change is predicted.
    """

    def __init__(self, routing: Routing) -> None:
        self._enabled = routing.chooses_paths and routing.lookahead
        self._began: dict[str, int] = {}
        self._change: ForeseenChange | None = None
        self._for: frozenset[str] | None = None

    @property
    def next_timer_ns(self) -> int | None:
        """When to assign paths for the next predicted change; None without one."""
        return self._change.time_ns - LEAD_TIME_NS if self._change is not None else None

    @property
    def next_senders(self) -> frozenset[str] | None:
        """The jobs that send after the next predicted change; None without one."""
        return self._change.active if self._change is not None else None

    def iteration_reported(self, report: IterationReport) -> None:
        """A worker has ended an iteration. Rank 0's report tells when the job's next period begins."""
        if report.rank == 0:
            self._began[report.job] = report.end_ns

    def forget(self, job: str) -> None:
        """A job has left."""
        self._began.pop(job, None)

    def plan_adopted(self, now_ns: int, jobs: Sequence[Job]) -> None:
        """A plan for all jobs is in force: predict the next change from now on."""
        self._for = None
        self.update(now_ns, jobs)

    def update(self, now_ns: int, jobs: Sequence[Job]) -> None:
        """Predict the next change that is far enough ahead for agents to receive new paths in time."""
        if not self._enabled:
            return
        after = now_ns + LEAD_TIME_NS
        known = [j for j in jobs if j.name in self._began and j.profile.phases]
        sending = [s for j in known if (s := self._sending(j, after)) is not None]
        periodic = [PeriodicFlows(frozenset({j.name}), j.profile, self._began[j.name]) for j in known]
        change = next_change(after, sending, periodic)
        others = frozenset(j.name for j in jobs) - {j.name for j in known}
        self._change = (
            None
            if change is None
            else ForeseenChange(change.time_ns, change.ends, change.starts, change.active | others)
        )

    def due(self, now_ns: int, jobs: Sequence[Job]) -> frozenset[str] | None:
        """The jobs to assign paths for now.

        None if it is not time yet, or if these are the same jobs again.
        """
        change = self._change
        if change is None or now_ns < change.time_ns - LEAD_TIME_NS:
            return None
        self.update(now_ns + 1, jobs)
        if change.active == self._for or not change.active:
            return None
        self._for = change.active
        return change.active

    def _sending(self, job: Job, at_ns: int) -> ActiveFlow | None:
        """The rest of the phase that a job is in; None between phases."""
        into = (at_ns - self._began[job.name]) % job.profile.period_ns
        for p in job.profile.phases:
            if p.start_ns <= into < p.end_ns:
                # Rounded up, so that the predicted end is never before the end of the phase.
                left = -(-p.rate_bps * (p.end_ns - into) // 8_000_000_000)
                return ActiveFlow(job.name, left, p.rate_bps)
        return None


def moved_flows(plan: Plan, found: Plan) -> Mapping[str, FlowPlan]:
    """The flows of `plan` that have another path or source port in `found`.

    Flows with table entries of their own (pinned or remarked) stay: these moves change source ports only.
    """
    held = {p.flow for p in (*plan.pins, *found.pins)} | {r.flow for r in plan.remarks}
    return {
        name: replace(plan.flows[name], path=f.path, source_port=f.source_port, why=f.why)
        for name, f in found.flows.items()
        if name in plan.flows and name not in held
        if (plan.flows[name].path, plan.flows[name].source_port) != (f.path, f.source_port)
    }
