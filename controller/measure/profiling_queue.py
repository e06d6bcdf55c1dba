# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to be measured: one job at a time, on the highest level (CRUX, section 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.model.plan import JobPlan, Plan


@dataclass(frozen=True, slots=True)
class ProfilingWindow:
    """A job's window, in ns of fabric time. `begun_ns` is None until its priority is in force."""

    job: str
    begun_ns: int | None = None
    until_ns: int | None = None


class ProfilingQueue:
    """The jobs that wait to be measured, and the one that is. A window lasts `window_ns` at most."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._waiting: list[str] = []
        self.window: ProfilingWindow | None = None

    def add(self, job: str, *, first: bool = False) -> None:
        """A job wants a turn: after the others, or before them."""
        if job in self._waiting or (self.window is not None and self.window.job == job):
            return
        self._waiting.insert(0 if first else len(self._waiting), job)

    def forget(self, job: str) -> None:
        """A job wants none any more."""
        if job in self._waiting:
            self._waiting.remove(job)
        if self.window is not None and self.window.job == job:
            self.window = None

    def next_job(self) -> str | None:
        """The job whose turn it is in the next plan."""
        if self.window is None and self._waiting:
            self.window = ProfilingWindow(self._waiting.pop(0))
        return self.window.job if self.window is not None else None

    def begin(self, now_ns: int) -> bool:
        """The plan with the chosen job on top is in force. True if its window opens with it."""
        if self.window is None or self.window.begun_ns is not None:
            return False
        self.window = replace(self.window, begun_ns=now_ns, until_ns=now_ns + self._window_ns)
        return True

    def end(self) -> None:
        """The window is over."""
        self.window = None

    def contains(self, job: str) -> bool:
        """Whether a job waits, or has its turn."""
        return job in self._waiting or (self.window is not None and self.window.job == job)

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)


def with_job_on_top(plan: Plan, job: str, dscps: tuple[int, ...]) -> Plan:
    """The plan while `job` is measured: it runs free on the highest level, and those that would share that
    level with it on some link step down one. `dscps` are those of the levels, the highest first."""
    if job not in plan.jobs:
        return plan
    rivals = {j for link in plan.links if job in link.jobs for j in link.jobs} - {job}
    lower = min(1, len(dscps) - 1)
    jobs: dict[str, JobPlan] = {}
    for name, planned in plan.jobs.items():
        if name == job:
            why = "is being measured: alone on the highest level, at its own pace"
            jobs[name] = replace(planned, level=0, dscp=dscps[0], shift_ns=0, period_ns=None, why=why)
        elif name in rivals and planned.level == 0:
            why = f"{planned.why}; one level down while {job} is measured"
            jobs[name] = replace(planned, level=lower, dscp=dscps[lower], why=why)
        else:
            jobs[name] = planned
    moved = {name for name, planned in jobs.items() if planned.dscp != plan.jobs[name].dscp}
    flows = dict(plan.flows)
    for name, flow in plan.flows.items():
        owner = name.split("/", 1)[0]
        if owner in moved and flow.dscp == plan.jobs[owner].dscp:
            flows[name] = replace(flow, dscp=jobs[owner].dscp)
    return replace(plan, jobs=jobs, flows=flows)
