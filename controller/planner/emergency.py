# SPDX-License-Identifier: Apache-2.0
"""Failover answers: new paths and source ports for the flows of a plan that one failure touches.

An answer changes paths and source ports only. Levels and time-shifts stay until the next full plan. Pure
functions, as all of the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from controller.model import FlowPlan, Job, Plan
from controller.model.flow_plans import FlowPlans, with_flows
from controller.planner.flow_columns import columns_of
from controller.planner.inputs import PlanInput
from controller.routing.fabric import Floats, Ints, LeafDemand
from controller.routing.failover import CurrentAssignment, Event, Failover
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.numbering import numbering
from controller.routing.paths import Path
from controller.routing.routings import bundled


def event_name(event: Event) -> str:
    """A failure in words: the switch, or the two ends of the cable."""
    return event if isinstance(event, str) else "-".join(event)


@dataclass(frozen=True, slots=True)
class Emergency:
    """The answer to `event`: the flows of a plan that it changes, with their new paths and source ports.

    `moved`: the flows with a new path. `renumbered`: the flows that keep their path and get another source
    port, because the failure changes where the switches' hash leads. `cut_off`: the flows without a path
    left; path and source port are None.
    """

    event: Event
    moved: Mapping[str, FlowPlan]
    renumbered: Mapping[str, FlowPlan]
    cut_off: Mapping[str, FlowPlan]

    @property
    def flows(self) -> Mapping[str, FlowPlan]:
        """All flows that change."""
        return {**self.moved, **self.renumbered, **self.cut_off}

    def applied(self, plan: Plan) -> Plan:
        """`plan` with the new paths and source ports, in force until the next full plan.

        Version and pins stay. Remark entries match on the source port, so they get the new one.
        """
        flows = self.flows
        ports = {name: f.source_port for name, f in flows.items()}
        remarks = tuple(replace(r, source_port=ports.get(r.flow) or r.source_port) for r in plan.remarks)
        return replace(plan, flows=with_flows(plan.flows, flows), remarks=remarks)

    def words(self) -> str:
        """What happens to the flows, in words."""
        counts = (
            (len(self.moved), "moves to another path at once", "move to other paths at once"),
            (
                len(self.renumbered),
                "keeps its path under another source port",
                "keep their paths under other source ports",
            ),
            (len(self.cut_off), "has no path left", "have no path left"),
        )
        parts = [f"{n} flow{'s' * (n != 1)} {one if n == 1 else more}" for n, one, more in counts if n]
        return ", ".join(parts) or "it touches no planned flow"


@dataclass(frozen=True, slots=True)
class FlowReroutes:
    """An `Emergency` as it travels between processes, without names.

    `flows` (changes,) are positions in `Plan.flows`, `ports` (changes,) the new source ports, -1 without a
    path. `paths` holds the new path, host to host; None: the path stays, or there is none.
    """

    event: Event
    flows: tuple[int, ...]
    ports: tuple[int, ...]
    paths: tuple[Path | None, ...]

    def emergency(self, plan: Plan) -> Emergency:
        """The answer by flow, for the plan that it was computed for."""
        names, name = list(plan.flows), event_name(self.event)
        moved: dict[str, FlowPlan] = {}
        renumbered: dict[str, FlowPlan] = {}
        cut_off: dict[str, FlowPlan] = {}
        for f, port, path in zip(self.flows, self.ports, self.paths, strict=True):
            was = plan.flows[names[f]]
            if port < 0:
                cut_off[was.flow] = replace(was, path=None, source_port=None, why=f"no path without {name}")
            elif path is None:
                why = f"{was.why}; another source port for the same path without {name}"
                renumbered[was.flow] = replace(was, source_port=port, why=why)
            else:
                moved[was.flow] = replace(was, path=path, source_port=port, why=f"path around {name}")
        return Emergency(self.event, moved, renumbered, cut_off)


@dataclass(frozen=True, slots=True)
class _RoutedFlows:
    """The flows of a plan that have a path, with `position` in `Plan.flows`. `src` and `dst` are numbers of
    hosts, `hops` (flows, n) numbers of switches, and `weight` is in bit/s. All have a row for each flow."""

    position: NDArray[np.intp]
    src: Ints
    dst: Ints
    hops: Ints
    port: Ints
    weight: Floats

    def take(self, index: NDArray[np.intp]) -> _RoutedFlows:
        """The flows at these indices."""
        return _RoutedFlows(*(getattr(self, f.name)[index] for f in fields(self)))


def _peak_bps(job: Job) -> float:
    """The highest rate of a job's flows."""
    return max((p.rate_bps for p in job.profile.phases), default=1)


def _columns(inputs: PlanInput, plan: Plan) -> _RoutedFlows | None:
    """The flows with a path, of jobs that are still there; None where the plan has no columns for them."""
    flows, jobs = plan.flows, {job.name: job for job in inputs.jobs}
    if not isinstance(flows, FlowPlans) or flows.topology is not inputs.topology or flows.others:
        return None
    parts, first = [], 0
    width = max((block.hops.shape[1] for block in flows.jobs.values()), default=1)
    for name, block in flows.jobs.items():
        index, job = np.flatnonzero(block.routed), jobs.get(name)
        if job is not None and job.flows is not block.flows and job.flows != block.flows:
            return None
        if job is not None:
            columns = columns_of(inputs.topology, block.flows)
            hops = np.full((len(index), width), -1, dtype=np.int32)
            hops[:, : block.hops.shape[1]] = block.hops[index]
            weight = np.full(len(index), float(_peak_bps(job)))
            ends = columns.src[index], columns.dst[index]
            parts.append((first + index, *ends, hops, block.port[index], weight))
        first += len(block.flows)
    if not parts:
        return None
    return _RoutedFlows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _by_name(inputs: PlanInput, plan: Plan) -> _RoutedFlows:
    """The flows with a path, of jobs that are still there, one by one."""
    numbers = numbering(inputs.topology)
    job_of = {f.name: job for job in inputs.jobs for f in job.flows}
    chosen = [
        (i, f.path, f.source_port, _peak_bps(job_of[f.flow]))
        for i, f in enumerate(plan.flows.values())
        if f.path is not None and f.source_port is not None and f.flow in job_of
    ]
    return _RoutedFlows(
        np.array([i for i, *_ in chosen], dtype=np.intp),
        np.array([numbers.host[path[0]] for _, path, *_ in chosen], dtype=np.int32),
        np.array([numbers.host[path[-1]] for _, path, *_ in chosen], dtype=np.int32),
        numbers.hops_of_paths([path[1:-1] for _, path, *_ in chosen]),
        np.array([port for *_, port, _ in chosen], dtype=np.int32),
        np.array([weight for *_, weight in chosen], dtype=np.float64),
    )


class Emergencies:
    """The answers to the single failures of a fabric, for one plan.

    Flows without a path in the plan are left to ECMP. Flows that are pinned in switches, or whose NIC keeps
    its source port, are left to the switches' backup entries.
    """

    def __init__(self, inputs: PlanInput, plan: Plan, *, plain: bool = False) -> None:
        """`inputs` holds the state of the fabric that the answers start from. `plain`: without the compiled
        kernels."""
        topology, failures = inputs.topology, Failures(inputs.down_links, inputs.down_switches)
        self._failover: Failover | None = None
        if not inputs.policy.routing.chooses_paths or not topology.hash.known:
            return
        kept = {p.flow for p in plan.pins} | {f for f, q in inputs.queue_pairs.items() if q.port_fixed}
        # Paths name switches, so the cables between two of them are one link here.
        fabric = bundled(fabric_of(topology, failures))
        found = _columns(inputs, plan) or _by_name(inputs, plan)
        dead = np.array([failures.cuts_off(h) for h in topology.hosts], dtype=np.bool_)
        stays = ~(dead[found.src] | dead[found.dst])
        if kept:
            names = list(plan.flows)
            stays &= np.array([names[i] not in kept for i in found.position.tolist()], dtype=np.bool_)
        found = found.take(np.flatnonzero(stays))
        self._routed = found
        if not len(found.position):
            return
        numbers = numbering(topology)
        leaf = numbers.leaves_of(fabric)[numbers.leaf]
        alike = found.weight.min() == found.weight.max()
        demand = LeafDemand(leaf[found.src], leaf[found.dst], None if alike else found.weight)
        self._demand, self._hosts = demand, numbers.hosts
        choice = numbers.choices_of_hops(fabric, demand, found.hops)
        addresses = numbers.source[found.src], numbers.destination[found.dst]
        now = CurrentAssignment(*addresses, demand, choice, found.port)
        self._failover = Failover(topology, fabric, now, failures, plain=plain)

    def answer(self, event: Event) -> FlowReroutes:
        """The answer to one failure."""
        if self._failover is None:
            return FlowReroutes(event, (), (), ())
        found = self._failover.answer(event)
        paths: list[Path | None] = []
        rows = (found.flows, found.choice, found.stays)
        for f, choice, stays in zip(*(row.tolist() for row in rows), strict=True):
            if stays or choice < 0:
                paths.append(None)
                continue
            a, b = self._hosts[self._routed.src[f]], self._hosts[self._routed.dst[f]]
            u, v = int(self._demand.src[f]), int(self._demand.dst[f])
            paths.append((a, *found.fabric.nodes(u, v, choice), b))
        ports = found.ports.tolist()
        positions = tuple(self._routed.position[found.flows].tolist())
        return FlowReroutes(event, positions, tuple(ports), tuple(paths))
