# SPDX-License-Identifier: Apache-2.0
"""The controller's state as a frozen snapshot, which the API and the page show."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.live.alarms import Alarms, OperatingState, SilentAgents
from controller.live.core import Core
from controller.live.host_uplinks import HostUplinks
from controller.live.link_loads import LinkLoads
from controller.live.notices import Notice
from controller.live.plan_reasons import PlanReasons
from controller.model.flow_plans import pinned_flows
from controller.model.job import Job
from controller.model.plan import Plan
from controller.model.view import JobView, SwitchView, View
from controller.southbound.fleet import SwitchFleet

QUEUE_AGE_NS = 30_000_000_000
"""After this time the depth of a queue that an INT probe has seen is unknown again. Chosen."""


class Surroundings(Protocol):
    """What alarms need and the core does not know; see `OperatingState`."""

    def silent_agents(self) -> SilentAgents | None:
        """The hosts that miss an agent; None: enough have one."""

    def history_off(self) -> str:
        """Why nothing is stored."""

    def plan_failure(self) -> str:
        """Why the last plan could not be made."""


class ViewBuilder:
    """Makes the views of one core, and keeps what only views need.

    `emulated`: requests can cut the fabric's cables. `reasons` know the iterations before a plan.
    """

    def __init__(
        self,
        core: Core,
        scenario: str,
        *,
        emulated: bool = False,
        reasons: PlanReasons | None = None,
    ) -> None:
        self._core = core
        self._scenario = scenario
        self._emulated = emulated
        self._reasons = reasons
        self._uplinks = HostUplinks()
        self._alarms = Alarms()
        self._pinned: tuple[Plan | None, frozenset[str]] = None, frozenset()

    def noticed(self, notice: Notice) -> None:
        """Take up what has happened since the last view."""
        self._uplinks.noticed(notice)

    def view(self, fleet: SwitchFleet, surroundings: Surroundings | None = None) -> View:
        """The present state. Without `surroundings` nothing is amiss there.

        Only the control loop, which owns the core, may call this.
        """
        core = self._core
        switches = tuple(
            SwitchView(
                name,
                client.address,
                client.state,
                fleet.entries(name),
                fleet.tables(name),
                core.counters.strays.get(name, ()),
            )
            for name, client in fleet.clients.items()
        )
        before_ms = {} if self._reasons is None else self._reasons.before_ms
        jobs = tuple(_job(core, job, before_ms.get(job.name)) for job in core.registry.jobs)
        pinned = self._pinned_flows()
        # A target that is not probed has no failed probes.
        unverified = frozenset(core.paths.unverified) if core.settings.verify else frozenset()
        return View(
            time_ns=core.now_ns,
            scenario=self._scenario,
            topology=core.topology,
            switches=switches,
            links=self.links(),
            jobs=jobs,
            plan=core.plan,
            counters=core.counters.queues,
            verified_paths=len(core.paths.verified & pinned),
            unverified_paths=len(pinned - core.paths.verified),
            fallback_flows=core.assignments.fallback_flows,
            down_links=core.condition.down_links,
            down_switches=core.condition.down_switches,
            drained_links=core.links.drained.links,
            drained_switches=core.links.drained.switches,
            measured_ns=core.counters.read_ns,
            probes=dict(core.paths.probes),
            unverified_flows=unverified,
            alarms=self._alarms.at(core.now_ns, self._operating(fleet, surroundings, jobs, unverified)),
            emulated=self._emulated,
        )

    def _operating(
        self,
        fleet: SwitchFleet,
        surroundings: Surroundings | None,
        jobs: tuple[JobView, ...],
        unverified: frozenset[str],
    ) -> OperatingState:
        core, known = self._core, surroundings
        not_ready = fleet.not_ready()
        silent = {name for name in not_ready if fleet.clients[name].state != "ready"}
        return OperatingState(
            silent_switches={name: why for name, why in not_ready.items() if name in silent},
            wrong_entries={name: why for name, why in not_ready.items() if name not in silent},
            failed_cables=core.links.condition.failed[0],
            silent_agents=known.silent_agents() if known is not None else None,
            jobs=jobs,
            failed_probes=unverified,
            fallback_flows=core.assignments.fallback_flows,
            history_off=known.history_off() if known is not None else "",
            plan_failure=known.plan_failure() if known is not None else "",
        )

    def _pinned_flows(self) -> frozenset[str]:
        """The flows of the plan in force that have a path; a plan may have very many."""
        plan = self._core.plan
        if self._pinned[0] is not plan:
            names = frozenset(name for name, *_ in pinned_flows(plan.flows)) if plan is not None else ()
            self._pinned = plan, frozenset(names)
        return self._pinned[1]

    def figures(self) -> NDArray[np.float64]:
        """Busy fraction and ECN marks of all links now, shape (2, links), in the order of `LinkLoads`.

        NaN: not measured.
        """
        core = self._core
        uplinks = self._uplinks.rates(core.now_ns)
        hosts = np.full((2, len(core.topology.hosts)), np.nan)
        for number, host in enumerate(core.topology.hosts):
            if (rate := uplinks.get(host.name)) is not None:
                hosts[0, number] = min(1.0, rate / host.rate_bps)
        return np.concatenate((core.counters.figures, hosts), axis=1)

    def links(self) -> LinkLoads:
        """The loads of all links now."""
        core = self._core
        oldest_ns = core.now_ns - QUEUE_AGE_NS
        queues = {end: packets for end, (at_ns, packets) in core.paths.queues.items() if at_ns >= oldest_ns}
        uplinks = self._uplinks.rates(core.now_ns)
        counters, down = core.counters, core.links.down_ports
        return LinkLoads(core.topology, counters.loads, down, uplinks, queues, counters.figures)


def _job(core: Core, job: Job, before_plan_ms: float | None) -> JobView:
    stats = core.reports.stats[job.name]
    declared = core.registry.declared(job.name)
    planned = core.plan.jobs.get(job.name) if core.plan is not None else None
    return JobView(
        name=job.name,
        model=job.model,
        gpus=job.gpus,
        hosts=job.hosts,
        iterations=stats.count,
        recent_ms=stats.recent_ms,
        mean_ms=stats.mean_ms,
        p99_ms=stats.p99_ms,
        level=planned.level if planned is not None else None,
        dscp=planned.dscp if planned is not None else None,
        shift_ms=planned.shift_ns / 1e6 if planned is not None and planned.period_ns else None,
        period_ms=planned.period_ns / 1e6 if planned is not None and planned.period_ns else None,
        profile=job.profile if job.profile.phases else None,
        declared=declared.profile if declared is not None and declared.profile.phases else None,
        flops_per_iteration=job.flops_per_iteration,
        sender=job.sender,
        measured=job.measured,
        measuring=core.measuring.waits(job.name),
        changes=core.measuring.changes(job.name),
        realigned=stats.realigned,
        breaches=core.floors.breaches(job.name),
        shares_level_with=core.floors.shares_with(job.name),
        left_out=core.unplannable.reasons.get(job.name, ""),
        silence=core.reports.silence(core.now_ns, job),
        before_plan_ms=before_plan_ms,
        last_end_ns=stats.last_end_ns,
    )
