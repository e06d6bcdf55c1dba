# SPDX-License-Identifier: Apache-2.0
"""Pure functions that turn the controller's values into the models of the JSON answers, one per model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal, cast

from controller.model.flow_plans import flows_of_job
from controller.model.job import Confidence, Measurement, Profile, job_of_flow
from controller.model.plan import FlowPlan, JobPlan, Plan, PolicyReference, SpreadClass
from controller.model.view import FallbackFlow, JobView, View
from controller.northbound import schema
from controller.routing.spreading import MOVE_FLOWLETS
from topo.graph import Host

_NS_PER_MS = 1e6


def job(value: JobView, plan: Plan | None) -> schema.JobOut:
    """A job, with the plan's decisions for it."""
    planned = plan.jobs.get(value.name) if plan else None
    return schema.JobOut(
        name=value.name,
        model=value.model,
        gpus=value.gpus,
        hosts=value.hosts,
        iterations=value.iterations,
        recent_ms=value.recent_ms,
        mean_ms=value.mean_ms,
        p99_ms=value.p99_ms,
        level=value.level,
        dscp=value.dscp,
        shift_ms=value.shift_ms,
        period_ms=value.period_ms,
        intensity=planned.intensity if planned else None,
        profile=None if value.profile is None else _profile(value.profile),
        declared=None if value.declared is None else _profile(value.declared),
        measured=None if value.measured is None else _measurement(value.measured),
        measuring=value.measuring,
        flops_per_iteration=value.flops_per_iteration,
        sender=value.sender,
        pattern_changes=value.changes,
        realigned=value.realigned,
        floor_breaches=value.breaches,
        shares_level_with=value.shares_level_with,
        left_out=value.left_out or None,
        silence=value.silence or None,
        why=_why(value, planned),
    )


def _why(value: JobView, planned: JobPlan | None) -> str | None:
    """The plan's reason for a job, or why no plan contains it."""
    if value.left_out:
        return f"left out of all plans, and its flows go by ECMP: {value.left_out}"
    if planned is None:
        return None
    return f"{planned.why}; {value.silence}" if value.silence else planned.why


def job_detail(
    value: JobView, plan: Plan | None, fallback_flows: Iterable[FallbackFlow] = ()
) -> schema.JobDetailOut:
    """A job and its flows."""
    flows = rendered(plan, flows_of_job(plan.flows, value.name), fallback_flows) if plan else ()
    return schema.JobDetailOut(**dict(job(value, plan)), flows=flows, before_plan_ms=value.before_plan_ms)


def jobs(view: View) -> schema.JobsOut:
    """All jobs of a view, in its order."""
    return schema.JobsOut(time_ns=view.time_ns, jobs=tuple(job(j, view.plan) for j in view.jobs))


def policy(value: PolicyReference) -> schema.PolicyOut:
    """A policy with its options."""
    options = dict(value.options)
    return schema.PolicyOut(
        name=value.name,
        distribution=value.distribution,
        version=value.version,
        routing=str(options.get("routing", "")),
        priority=str(options.get("priority", "")),
        timing=str(options.get("timing", "")),
        options={name: option for name, option in options.items() if "." in name or name == "max_slowdown"},
    )


def plan(value: Plan, fallback_flows: Iterable[FallbackFlow] = ()) -> schema.PlanOut:
    """A plan with its reasons. `fallback_flows` are flows that their agents have moved to ECMP."""
    return schema.PlanOut(
        version=value.version,
        policy=policy(value.policy),
        epoch_ns=value.epoch_ns,
        jobs=tuple(
            schema.JobPlanOut(
                job=j.job,
                level=j.level,
                dscp=j.dscp,
                shift_ms=j.shift_ns / _NS_PER_MS,
                period_ms=_ms(j.period_ns),
                once=j.once,
                intensity=j.intensity,
                sender=j.sender,
                expected_ms=_ms(j.expected_ns),
                ecmp_ms=_ms(j.ecmp_ns),
                floor_ms=_ms(j.floor_ns),
                ecmp_ratio=j.ecmp_ratio,
                why=j.why,
            )
            for j in value.jobs.values()
        ),
        flows=flows_named(value, value.flows, fallback_flows),
        links=tuple(
            schema.SharedLinkOut(src=link.src, dst=link.dst, jobs=link.jobs, score=link.score)
            for link in value.links
        ),
        spread=tuple(_spread(s) for s in value.spread),
    )


def _spread(value: SpreadClass) -> schema.SpreadOut:
    how = value.spreading
    flowlets = how.action == MOVE_FLOWLETS
    return schema.SpreadOut(
        dscp=value.dscp,
        action=how.action,
        gap_us=how.gap_us if flowlets else None,
        half_life_us=1 << how.half_life if flowlets else None,
    )


def fabric(view: View) -> schema.FabricOut:
    """Nodes and both directions of every cable, with loads where they are measured."""
    topology = view.topology
    return schema.FabricOut(
        time_ns=view.time_ns,
        name=topology.name,
        hosts=tuple(map(host, topology.hosts)),
        switches=tuple(switches(view)),
        links=tuple(links(view)),
        verified_paths=view.verified_paths,
        unverified_paths=view.unverified_paths,
    )


def host(value: Host) -> schema.HostOut:
    """A host."""
    return schema.HostOut(
        name=value.name,
        ip=value.ip,
        leaf=value.leaf,
        leaf_port=value.leaf_port,
        rate_bps=value.rate_bps,
        server=value.machine,
    )


def switches(view: View, names: Iterable[str] | None = None) -> Iterator[schema.SwitchOut]:
    """Some switches as their sessions show them; `names` None: all."""
    topology = view.topology
    known = {s.name: s for s in view.switches}
    for s in topology.switches if names is None else map(topology.switch.__getitem__, names):
        seen = known.get(s.name)
        yield schema.SwitchOut(
            name=s.name,
            tier=s.tier.value,
            device_id=s.device_id,
            address=seen.address if seen else None,
            state=cast(schema.SwitchState, seen.state) if seen else "connecting",
            drained=s.name in view.drained_switches,
            down=s.name in view.down_switches - view.drained_switches,
            entries=seen.entries if seen else 0,
            tables=dict(seen.tables) if seen else {},
            strays=sum(stray.packets for stray in seen.strays) if seen else 0,
            strays_by_port=tuple(
                schema.StrayOut(
                    port=stray.port,
                    host=topology.ports[s.name][stray.port].node,
                    reason=cast(schema.StrayReason, stray.reason),
                    packets=stray.packets,
                )
                for stray in (seen.strays if seen else ())
            ),
        )


def counters(view: View, switches: frozenset[str] | None) -> schema.CountersOut:
    """The queue counters of some switches; `switches` None: of all."""
    ports = view.topology.ports
    rows = []
    for c in view.counters:
        if switches is None or c.switch in switches:
            peer = ports.get(c.switch, {}).get(c.port)
            rows.append(
                schema.QueueOut(
                    switch=c.switch,
                    port=c.port,
                    peer=peer.node if peer else None,
                    qid=c.qid,
                    packets=c.packets,
                    bytes=c.bytes,
                    marks=c.marks,
                )
            )
    return schema.CountersOut(time_ns=view.time_ns, counters=tuple(rows))


def view(value: View) -> schema.ViewOut:
    """Everything that the page shows."""
    return schema.ViewOut(
        time_ns=value.time_ns,
        scenario=value.scenario,
        fabric=fabric(value),
        jobs=tuple(job(j, value.plan) for j in value.jobs),
        plan=None if value.plan is None else plan(value.plan, value.fallback_flows),
        fallback_flows=tuple(
            schema.FallbackFlowOut(
                flow=f.flow, host=f.host, source_port=f.source_port, since_ns=f.since_ns, why=f.why
            )
            for f in value.fallback_flows
        ),
    )


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / _NS_PER_MS


def _measurement(value: Measurement) -> schema.MeasurementOut:
    return schema.MeasurementOut(
        iterations=value.iterations,
        communication_ms=value.communication_ns / _NS_PER_MS,
        compute_ms=None if value.compute_ns is None else value.compute_ns / _NS_PER_MS,
        flops=value.flops,
        source=cast(Literal["iterations", "bytes"], value.source),
        confidence=None if value.confidence is None else _confidence(value.confidence),
    )


def _confidence(value: Confidence) -> schema.ConfidenceOut:
    return schema.ConfidenceOut(
        period_ms=value.period_ns / _NS_PER_MS,
        edges_ms=tuple((start / _NS_PER_MS, end / _NS_PER_MS) for start, end in value.edges_ns),
    )


def _profile(value: Profile) -> schema.ProfileOut:
    return schema.ProfileOut(
        period_ms=value.period_ns / _NS_PER_MS,
        phases=tuple(
            schema.PhaseOut(
                start_ms=p.start_ns / _NS_PER_MS, end_ms=p.end_ns / _NS_PER_MS, rate_bps=p.rate_bps
            )
            for p in value.phases
        ),
    )


def flows_named(
    plan: Plan, names: Iterable[str], fallback_flows: Iterable[FallbackFlow]
) -> tuple[schema.FlowOut, ...]:
    """Some flows of a plan by name. `fallback_flows` are flows that their agents have moved to ECMP."""
    return rendered(plan, map(plan.flows.__getitem__, names), fallback_flows)


def rendered(
    plan: Plan, flows: Iterable[FlowPlan], fallback_flows: Iterable[FallbackFlow]
) -> tuple[schema.FlowOut, ...]:
    """Some flows of a plan. `fallback_flows` are flows that their agents have moved to ECMP."""
    pinned: dict[str, list[str]] = defaultdict(list)
    for pin in plan.pins:
        pinned[pin.flow].append(pin.switch)
    sent = {remark.flow: remark.sent_dscp for remark in plan.remarks}
    why = {f.flow: f.why for f in fallback_flows}
    return tuple(_flow(f, tuple(pinned.get(f.flow, ())), sent.get(f.flow), why.get(f.flow)) for f in flows)


def _flow(
    value: FlowPlan, pinned_in: tuple[str, ...], sent_dscp: int | None, fallback_reason: str | None
) -> schema.FlowOut:
    return schema.FlowOut(
        flow=value.flow,
        job=job_of_flow(value.flow),
        path=value.path,
        source_port=value.source_port,
        dscp=value.dscp,
        pinned_in=pinned_in,
        sent_dscp=sent_dscp,
        fallback_reason=fallback_reason,
        why=value.why,
    )


def links(view: View) -> Iterator[schema.LinkOut]:
    """Both directions of every cable: those of hosts, then those between switches."""
    measured = {(load.src, load.src_port): load for load in view.links}
    drained = {end for cable in view.drained_links for end in view.topology.cables.get(cable, ())}
    ends = [(h.name, 0, h.leaf, h.leaf_port, h.rate_bps) for h in view.topology.hosts]
    ends += [(c.a, c.a_port, c.b, c.b_port, c.rate_bps) for c in view.topology.links]
    for a, a_port, b, b_port, capacity in ends:
        for src, src_port, dst, dst_port in ((a, a_port, b, b_port), (b, b_port, a, a_port)):
            load = measured.get((src, src_port))
            yield schema.LinkOut(
                name=cable_name(view, src, src_port, dst, dst_port),
                src=src,
                dst=dst,
                src_port=src_port,
                dst_port=dst_port,
                capacity_bps=capacity,
                rate_bps=load.rate_bps if load else None,
                load=load.load if load else None,
                marks=load.marks if load else None,
                queue_packets=load.queue_packets if load else None,
                up=load.up if load else True,
                drained=(src, src_port) in drained,
            )


def cable_name(view: View, src: str, src_port: int, dst: str, dst_port: int) -> str:
    """The name of the cable between two ends, as requests name it."""
    cable = view.topology.cable_at
    return "-".join(cable[src, src_port] if src_port else cable[dst, dst_port])
