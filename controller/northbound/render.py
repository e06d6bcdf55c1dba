# SPDX-License-Identifier: Apache-2.0
"""Pure functions that turn the controller's values into the models of the JSON answers, one per model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, cast

from controller.model.flow_plans import flows_of_job
from controller.model.job import Confidence, Measurement, Profile, job_of_flow
from controller.model.plan import FlowPlan, JobPlan, LinkPlan, Plan, PolicyReference, SpreadClass
from controller.model.view import ColumnarLinks, FallbackFlow, JobView, LinkLoad, QueueCounter, View
from controller.northbound import schema
from controller.northbound.paging import PageStart, SortedOnce, page, page_of_lists
from controller.routing.spreading import MOVE_FLOWLETS
from topo.graph import Host, Switch, Topology

End = tuple[str, int]
_NS_PER_MS = 1e6
# Chosen: names that a sentence tells.
NAMED = 12


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
        last_end_ns=value.last_end_ns,
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


def jobs(view: View, start: PageStart, most: int) -> schema.JobsOut:
    """A page of the jobs of a view. Raises OperationError for a wrong cursor."""
    known = {j.name: j for j in view.jobs}
    names, after = page(sorted(known), start, most)
    shown = tuple(job(known[name], view.plan) for name in names)
    return schema.JobsOut(time_ns=view.time_ns, jobs=shown, next=after)


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
    """A whole plan with its reasons. `fallback_flows` are flows that their agents have moved to ECMP."""
    return _plan(value, fallback_flows, value.jobs, value.flows, value.links, value.spread)


FLOWS = SortedOnce[Plan, FlowPlan](lambda plan: plan.flows)
"""The flows of the plan that was asked for last."""


def plan_page(
    value: Plan, fallback_flows: Iterable[FallbackFlow], start: PageStart, most: int
) -> schema.PlanOut:
    """A page of a plan: of its jobs, flows, shared links and spread classes, one after the other. Raises
    OperationError for a wrong cursor.
    """
    links = {f"{link.src}>{link.dst}": link for link in value.links}
    spread = {f"{s.dscp:02}": s for s in value.spread}
    lists = [sorted(value.jobs), FLOWS.of(value)[0], sorted(links), sorted(spread)]
    (jobs, flows, crossed, classes), after = page_of_lists(lists, start, most)
    shown, spread_over = map(links.__getitem__, crossed), map(spread.__getitem__, classes)
    return _plan(value, fallback_flows, jobs, flows, shown, spread_over, after)


def _plan(
    value: Plan,
    fallback_flows: Iterable[FallbackFlow],
    jobs: Iterable[str],
    flows: Iterable[str],
    links: Iterable[LinkPlan],
    spread: Iterable[SpreadClass],
    after: str | None = None,
) -> schema.PlanOut:
    return schema.PlanOut(
        version=value.version,
        policy=policy(value.policy),
        epoch_ns=value.epoch_ns,
        jobs=tuple(_planned(value.jobs[name]) for name in jobs),
        flows=flows_named(value, flows, fallback_flows),
        links=tuple(
            schema.SharedLinkOut(src=link.src, dst=link.dst, jobs=link.jobs, score=link.score)
            for link in links
        ),
        spread=tuple(map(_spread, spread)),
        next=after,
    )


def _planned(value: JobPlan) -> schema.JobPlanOut:
    return schema.JobPlanOut(
        job=value.job,
        level=value.level,
        dscp=value.dscp,
        shift_ms=value.shift_ns / _NS_PER_MS,
        period_ms=_ms(value.period_ns),
        once=value.once,
        intensity=value.intensity,
        sender=value.sender,
        expected_ms=_ms(value.expected_ns),
        ecmp_ms=_ms(value.ecmp_ns),
        floor_ms=_ms(value.floor_ns),
        ecmp_ratio=value.ecmp_ratio,
        why=value.why,
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


SWITCHES = SortedOnce[Topology, Switch](lambda topology: topology.switch)
HOSTS = SortedOnce[Topology, Host](lambda topology: topology.host)


def _ends(topology: Topology) -> dict[str, End]:
    """The sending end of each direction by the name of its cable, and its receiver."""
    found = {}
    for src, port in sending_ends(topology):
        dst, dst_port, _ = peer_of(topology, (src, port))
        found[f"{cable_name(topology, src, port, dst, dst_port)}>{dst}"] = src, port
    return found


DIRECTIONS = SortedOnce[Topology, End](_ends)


def fabric(view: View, start: PageStart, most: int) -> schema.FabricOut:
    """A page of a fabric: of its switches, hosts and directions of cables, one after the other, with loads
    where they are measured. Raises OperationError for a wrong cursor.
    """
    topology = view.topology
    directions, ends = DIRECTIONS.of(topology)
    lists = [SWITCHES.of(topology)[0], HOSTS.of(topology)[0], directions]
    (switch_names, host_names, names), after = page_of_lists(lists, start, most)
    return schema.FabricOut(
        time_ns=view.time_ns,
        name=topology.name,
        hosts=tuple(host(topology.host[name]) for name in host_names),
        switches=tuple(switches(view, switch_names)),
        links=tuple(links(view, map(ends.__getitem__, names))),
        verified_paths=view.verified_paths,
        unverified_paths=view.unverified_paths,
        next=after,
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


def _queues(counters: Sequence[QueueCounter]) -> dict[str, QueueCounter]:
    return {f"{c.switch}/{c.port:05}/{c.qid}": c for c in counters}


_QUEUES = SortedOnce[Sequence[QueueCounter], QueueCounter](_queues)


def counters(view: View, switches: frozenset[str] | None, start: PageStart, most: int) -> schema.CountersOut:
    """A page of the queues of some switches; `switches` None: of all. Raises OperationError for a wrong
    cursor.
    """
    names, queues = _QUEUES.of(view.counters)
    ports = view.topology.ports

    def wanted(name: str) -> bool:
        return switches is None or queues[name].switch in switches

    found, after = page(names, start, most, wanted)
    rows = []
    for c in map(queues.__getitem__, found):
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
    return schema.CountersOut(time_ns=view.time_ns, counters=tuple(rows), next=after)


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


def links(view: View, ends: Iterable[End] | None = None) -> Iterator[schema.LinkOut]:
    """Directions of cables by their sending ends; None: both of every cable, those of hosts, then those
    between switches.
    """
    topology = view.topology
    if ends is None:
        ends = sending_ends(topology)
    drained = {end for cable in view.drained_links for end in topology.cables.get(cable, ())}
    found: Callable[[End], LinkLoad | None]
    if isinstance(view.links, ColumnarLinks):
        found = view.links.at
    else:
        found = {(load.src, load.src_port): load for load in view.links}.get
    for src, src_port in ends:
        dst, dst_port, capacity = peer_of(topology, (src, src_port))
        load = found((src, src_port))
        yield schema.LinkOut(
            name=cable_name(topology, src, src_port, dst, dst_port),
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


def sending_ends(topology: Topology) -> Iterator[End]:
    """The sending end of each direction, (node, port): those of the cables of hosts, then those between
    switches. A host's NIC has port 0."""
    for h in topology.hosts:
        yield h.name, 0
        yield h.leaf, h.leaf_port
    for c in topology.links:
        yield c.a, c.a_port
        yield c.b, c.b_port


def peer_of(topology: Topology, end: End) -> tuple[str, int, int]:
    """The other end of a cable, and the cable's bit/s."""
    host = topology.host.get(end[0])
    if host is not None:
        return host.leaf, host.leaf_port, host.rate_bps
    peer = topology.ports[end[0]][end[1]]
    return peer.node, peer.port, peer.rate_bps


def cable_name(topology: Topology, src: str, src_port: int, dst: str, dst_port: int) -> str:
    """The name of the cable between two ends, as requests name it."""
    cable = topology.cable_at
    return "-".join(cable[src, src_port] if src_port else cable[dst, dst_port])
