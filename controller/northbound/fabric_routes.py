# SPDX-License-Identifier: Apache-2.0
"""REST routes of the parts of the fabric: switches, ports, queues, cables, hosts; and what probes found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from controller.model.job import job_of_flow
from controller.model.view import AlarmKind, ProbeView, View
from controller.northbound import render, schema
from controller.northbound.fresh import FreshViews
from controller.northbound.paging import USUAL, Most, PageStart, Start, page
from controller.northbound.problems import OperationError, problems

Name = Annotated[str, Path(max_length=1_000)]
Tier = Literal["leaf", "spine", "core"]
ProbeState = Literal["verified", "unverified", "misrouted", "pending"]
_NO_VIEW = "The controller has not connected to its fabric yet."
_ERRORS = problems(_404="No such part of the fabric, or no such cursor.", _503=_NO_VIEW)
_LISTED = problems(_404="No such cursor.", _503=_NO_VIEW)
_Measured = Annotated[
    int | None, Field(description="Fabric time when the counters were last read, in ns; null: not yet.")
]
# Chosen: a legal name or two say more than a list of a thousand.
_MOST_NAMES = 4


class SwitchesOut(schema.Out):
    """A page of the switches, sorted by name."""

    time_ns: schema.Time
    switches: tuple[schema.SwitchOut, ...]
    next: schema.Next


class PortOut(schema.Out):
    """A wired port of a switch. The figures are those of what it sends."""

    port: int
    peer: str
    peer_port: int = Field(description="0: a host's NIC.")
    cable: str
    capacity_bps: int
    up: bool
    drained: bool
    rate_bps: int | None
    load: float | None
    marks: int | None
    queue_packets: int | None


class PortsOut(schema.Out):
    """The ports of a switch."""

    time_ns: schema.Time
    measured_ns: _Measured
    ports: tuple[PortOut, ...]
    next: schema.Next


class QueuesOut(schema.Out):
    """The queues of a switch by port and number, with their totals since the pipeline was pushed."""

    time_ns: schema.Time
    measured_ns: _Measured
    queues: tuple[schema.QueueOut, ...]
    next: schema.Next


class LinksOut(schema.Out):
    """A page of directions of cables, sorted by the cable's name; each parallel cable has its own."""

    time_ns: schema.Time
    measured_ns: _Measured
    links: tuple[schema.LinkOut, ...]
    next: schema.Next


class HostsOut(schema.Out):
    """A page of the hosts, sorted by name."""

    hosts: tuple[schema.HostOut, ...]
    next: schema.Next


class HopOut(schema.Out):
    """What a switch wrote into a probe."""

    switch: str
    ingress_port: int
    egress_port: int
    latency_ticks: int = Field(description="In ticks of the target: microseconds on v1model, ns on TNA.")
    qid: int
    queue_packets: int = Field(description="Packets that waited in this queue.")


class ProbeOut(schema.Out):
    """The verification of a planned path, and the last probe of it that came back."""

    flow: str
    job: str
    state: ProbeState = Field(
        description="unverified: no probe came back; misrouted: it took another path; "
        "pending: under way, or this fabric is not probed."
    )
    measured_ns: int | None = Field(description="When the probe came back, in ns; null: none did.")
    hops: tuple[HopOut, ...] = Field(description="In the order of the path that it took.")


class ProbesOut(schema.Out):
    """A page of the flows with a planned path, sorted by name."""

    time_ns: schema.Time
    probes: tuple[ProbeOut, ...]
    next: schema.Next


class AlarmOut(schema.Out):
    """Something that an operator should look at."""

    name: str = Field(
        description="KIND/SUBJECT, or KIND without a subject; it stays the same as long as the alarm stands."
    )
    kind: AlarmKind
    subject: str = Field(description="The switch, cable or job; empty: the controller as a whole.")
    since_ns: int
    text: str


class AlarmsOut(schema.Out):
    """A page of the alarms that stand, sorted by name."""

    time_ns: schema.Time
    alarms: tuple[AlarmOut, ...]
    next: schema.Next


def fabric_routes(fresh: FreshViews) -> APIRouter:
    """The routes."""
    router = APIRouter()
    fabric = APIRouter(tags=["fabric"])

    @fabric.get("/fabric/switches", summary="The switches", responses=_LISTED)
    async def get_switches(start: Start, tier: Tier | None = None, most: Most = USUAL) -> SwitchesOut:
        view = fresh.now()
        switch = view.topology.switch

        def wanted(name: str) -> bool:
            return tier is None or switch[name].tier.value == tier

        names, after = page(render.SWITCHES.of(view.topology)[0], start, most, wanted)
        return SwitchesOut(time_ns=view.time_ns, switches=tuple(render.switches(view, names)), next=after)

    @fabric.get("/fabric/switches/{name}", summary="One switch", responses=_ERRORS)
    async def get_switch(name: Name) -> schema.SwitchOut:
        return next(render.switches(fresh.now(), [checked_switch(fresh.now(), name)]))

    @fabric.get("/fabric/switches/{name}/ports", summary="The ports of a switch", responses=_ERRORS)
    async def get_ports(name: Name, start: Start, most: Most = USUAL) -> PortsOut:
        checked_switch(fresh.now(), name)
        view = await fresh.after_polls(2)
        names, after = page([f"{port:05}" for port in sorted(view.topology.ports[name])], start, most)
        ports = tuple(
            PortOut(
                port=link.src_port,
                peer=link.dst,
                peer_port=link.dst_port,
                cable=link.name,
                capacity_bps=link.capacity_bps,
                up=link.up,
                drained=link.drained,
                rate_bps=link.rate_bps,
                load=link.load,
                marks=link.marks,
                queue_packets=link.queue_packets,
            )
            for link in render.links(view, [(name, int(port)) for port in names])
        )
        return PortsOut(time_ns=view.time_ns, measured_ns=view.measured_ns, ports=ports, next=after)

    @fabric.get("/fabric/switches/{name}/queues", summary="The queues of a switch", responses=_ERRORS)
    async def get_queues(name: Name, start: Start, most: Most = USUAL) -> QueuesOut:
        checked_switch(fresh.now(), name)
        view = await fresh.after_polls(1)
        found = await asyncio.to_thread(render.counters, view, frozenset({name}), start, most)
        return QueuesOut(
            time_ns=view.time_ns, measured_ns=view.measured_ns, queues=found.counters, next=found.next
        )

    @fabric.get(
        "/fabric/links",
        summary="Each direction of each cable, with its load",
        responses=_LISTED,
    )
    async def get_links(
        start: Start,
        node: Annotated[
            str | None, Query(max_length=1_000, description="Only cables of this switch or host.")
        ] = None,
        most: Most = USUAL,
    ) -> LinksOut:
        view = await fresh.after_polls(2)
        return await asyncio.to_thread(_links, view, node, start, most)

    @fabric.get("/fabric/links/{name}", summary="Both directions of one cable", responses=_ERRORS)
    async def get_link(name: Name) -> LinksOut:
        checked_cable(fresh.now(), name)
        view = await fresh.after_polls(2)
        ends = view.topology.cables[checked_cable(view, name)]
        found = tuple(render.links(view, ends))
        return LinksOut(time_ns=view.time_ns, measured_ns=view.measured_ns, links=found, next=None)

    @fabric.get("/fabric/hosts", summary="The hosts", responses=_LISTED)
    async def get_hosts(start: Start, most: Most = USUAL) -> HostsOut:
        topology = fresh.now().topology
        names, after = page(render.HOSTS.of(topology)[0], start, most)
        return HostsOut(hosts=tuple(render.host(topology.host[name]) for name in names), next=after)

    @router.get(
        "/probes",
        summary="The probes of planned paths, with latency and queue of each hop",
        responses=_LISTED,
        tags=["probes"],
    )
    async def get_probes(
        start: Start,
        job: Annotated[str | None, Query(max_length=1_000, description="Only flows of this job.")] = None,
        most: Most = USUAL,
    ) -> ProbesOut:
        return await asyncio.to_thread(_probes, fresh.now(), job, start, most)

    @router.get("/alarms", summary="What an operator should look at", responses=_LISTED, tags=["alarms"])
    async def get_alarms(start: Start, most: Most = USUAL) -> AlarmsOut:
        view = fresh.now()
        found = {alarm.name: alarm for alarm in view.alarms}
        names, after = page(sorted(found), start, most)
        alarms = tuple(
            AlarmOut.model_validate(
                {
                    "name": name,
                    "kind": found[name].kind,
                    "subject": found[name].subject,
                    "since_ns": found[name].since_ns,
                    "text": found[name].text,
                }
            )
            for name in names
        )
        return AlarmsOut(time_ns=view.time_ns, alarms=alarms, next=after)

    router.include_router(fabric)
    return router


def checked_switch(view: View, name: str) -> str:
    """The name of a switch. Raises OperationError if the fabric has none of that name."""
    if name not in view.topology.switch:
        raise OperationError(404, f"no switch {name!r}; legal: {_some(view.topology.switch)}")
    return name


def checked_cable(view: View, name: str) -> tuple[str, str]:
    """The cable of that name. Raises OperationError if the fabric has none."""
    cables = {"-".join(cable): cable for cable in view.topology.cables}
    if name not in cables:
        raise OperationError(404, f"no cable {name!r}; legal: {_some(cables)}")
    return cables[name]


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def _links(view: View, node: str | None, start: PageStart, most: int) -> LinksOut:
    topology = view.topology
    directions, ends = render.DIRECTIONS.of(topology)

    def wanted(name: str) -> bool:
        src = ends[name]
        return node in (src[0], render.peer_of(topology, src)[0])

    names, after = page(directions, start, most, None if node is None else wanted)
    links = tuple(render.links(view, map(ends.__getitem__, names)))
    return LinksOut(time_ns=view.time_ns, measured_ns=view.measured_ns, links=links, next=after)


def _probes(view: View, job: str | None, start: PageStart, most: int) -> ProbesOut:
    flows = view.plan.flows if view.plan is not None else {}

    def wanted(name: str) -> bool:
        return (job is None or job_of_flow(name) == job) and flows[name].path is not None

    names, after = page(() if view.plan is None else render.FLOWS.of(view.plan)[0], start, most, wanted)
    probes = tuple(_probe(view, name, view.probes.get(name)) for name in names)
    return ProbesOut(time_ns=view.time_ns, probes=probes, next=after)


def _probe(view: View, flow: str, seen: ProbeView | None) -> ProbeOut:
    state: ProbeState = "pending"
    if flow in view.unverified_flows:
        state = "misrouted" if seen is not None and seen.misrouted else "unverified"
    elif seen is not None:
        state = "verified"
    return ProbeOut(
        flow=flow,
        job=job_of_flow(flow),
        state=state,
        measured_ns=None if seen is None else seen.time_ns,
        hops=tuple(
            HopOut(
                switch=hop.switch,
                ingress_port=hop.ingress_port,
                egress_port=hop.egress_port,
                latency_ticks=hop.latency_ticks,
                qid=hop.qid,
                queue_packets=hop.queue_packets,
            )
            for hop in (seen.hops if seen is not None else ())
        ),
    )
