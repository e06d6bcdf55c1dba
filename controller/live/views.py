# SPDX-License-Identifier: Apache-2.0
"""The controller's state as a frozen snapshot, which the API and the page show."""

from __future__ import annotations

from controller.live.core import Core
from controller.model.flow_plans import pinned_flows
from controller.model.job import Job
from controller.model.view import JobView, SwitchView, View
from controller.southbound.fleet import SwitchFleet


def build_view(core: Core, fleet: SwitchFleet, scenario: str) -> View:
    """The present state. Only the control loop, which owns the core, may call this."""
    topology = core.topology
    up = {(s, p): core.links.port_up(s, p) for s, ports in topology.ports.items() for p in ports}
    pinned = {name for name, *_ in pinned_flows(core.plan.flows)} if core.plan is not None else set()
    return View(
        time_ns=core.now_ns,
        scenario=scenario,
        topology=topology,
        switches=tuple(
            SwitchView(
                name,
                client.address,
                client.state,
                fleet.entries(name),
                fleet.tables(name),
                core.counters.strays.get(name, ()),
            )
            for name, client in fleet.clients.items()
        ),
        links=core.counters.links(up),
        jobs=tuple(_job(core, job) for job in core.registry.jobs),
        plan=core.plan,
        counters=core.counters.queues,
        verified_paths=len(core.paths.verified & pinned),
        unverified_paths=len(pinned - core.paths.verified),
        fallback_flows=core.assignments.fallback_flows,
        down_links=core.condition.down_links,
        down_switches=core.condition.down_switches,
        drained_links=core.links.drained.links,
        drained_switches=core.links.drained.switches,
    )


def _job(core: Core, job: Job) -> JobView:
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
    )
