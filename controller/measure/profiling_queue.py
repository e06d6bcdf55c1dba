# SPDX-License-Identifier: Apache-2.0
"""The profiling queue: jobs are measured one at a time, on the highest level (CRUX, section 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.model.flow_plans import with_dscps
from controller.model.plan import JobPlan, Plan


@dataclass(frozen=True, slots=True)
class ProfilingWindow:
    """The window in which a job is measured, in ns of fabric time.

    `begun_ns` is None until the job's priority is in force.
    """

    job: str
    begun_ns: int | None = None
    until_ns: int | None = None


class ProfilingQueue:
    """The jobs that wait to be measured, and the one that is measured, for at most `window_ns`."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._waiting: list[str] = []
        self.window: ProfilingWindow | None = None

    def add(self, job: str, *, first: bool = False) -> None:
        """Add a job at the end of the queue, or at its beginning if `first`."""
        if job in self._waiting or (self.window is not None and self.window.job == job):
            return
        self._waiting.insert(0 if first else len(self._waiting), job)

    def forget(self, job: str) -> None:
        """Remove a job."""
        if job in self._waiting:
            self._waiting.remove(job)
        if self.window is not None and self.window.job == job:
            self.window = None

    def next_job(self) -> str | None:
        """The job that the next plan puts on the highest level, None if none waits."""
        if self.window is None and self._waiting:
            self.window = ProfilingWindow(self._waiting.pop(0))
        return self.window.job if self.window is not None else None

    def begin(self, now_ns: int) -> bool:
        """Call when the plan with the chosen job on top is in force. True if this opens its window."""
        if self.window is None or self.window.begun_ns is not None:
            return False
        self.window = replace(self.window, begun_ns=now_ns, until_ns=now_ns + self._window_ns)
        return True

    def begin_again(self, now_ns: int) -> None:
        """Open the window of the measured job once more: what was seen so far does not count."""
        if self.window is not None:
            self.window = replace(self.window, begun_ns=now_ns, until_ns=now_ns + self._window_ns)

    def end(self) -> None:
        """Close the window."""
        self.window = None

    def contains(self, job: str) -> bool:
        """Whether a job waits or is measured."""
        return job in self._waiting or (self.window is not None and self.window.job == job)

    @property
    def waiting(self) -> int:
        """The number of jobs that wait."""
        return len(self._waiting)


def with_job_on_top(plan: Plan, job: str, dscps: tuple[int, ...]) -> Plan:
    """The plan for the time in which `job` is measured: `job` runs at its own pace on the highest level.

    Jobs of that level that share a link with it move one level down. Those whose slots only keep them apart
    from it run at their own pace too: it keeps none now. `dscps` are those of the levels, highest first.
    """
    if job not in plan.jobs:
        return plan
    sharing = {j for link in plan.links if job in link.jobs for j in link.jobs} - {job}
    lower, beside = min(1, len(dscps) - 1), _with_slots_beside_others(plan, job)
    jobs: dict[str, JobPlan] = {}
    for name, planned in plan.jobs.items():
        if name == job:
            why = "is being measured: on the highest level, at its own pace"
            jobs[name] = replace(planned, level=0, dscp=dscps[0], shift_ns=0, period_ns=None, why=why)
        elif name in sharing and planned.level == 0:
            why = f"{planned.why}; one level down while {job} is measured"
            jobs[name] = replace(planned, level=lower, dscp=dscps[lower], why=why)
        else:
            jobs[name] = planned
        if name in sharing and planned.period_ns and name not in beside:
            jobs[name] = replace(jobs[name], shift_ns=0, period_ns=None, once=False)
    moved = {
        name: (plan.jobs[name].dscp, planned.dscp)
        for name, planned in jobs.items()
        if planned.dscp != plan.jobs[name].dscp
    }
    return replace(plan, jobs=jobs, flows=with_dscps(plan.flows, moved))


def _with_slots_beside_others(plan: Plan, measured: str) -> frozenset[str]:
    """The jobs with slots that share a link with another such job than `measured`."""
    held = {name for name, planned in plan.jobs.items() if planned.period_ns} - {measured}
    shared = ([j for j in link.jobs if j in held] for link in plan.links)
    return frozenset(j for jobs in shared if len(jobs) > 1 for j in jobs)
