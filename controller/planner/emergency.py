# SPDX-License-Identifier: Apache-2.0
"""Failover answers: new paths and source ports for the flows of a plan that one failure touches.

An answer changes paths and source ports only. Levels and time-shifts stay until the next full plan. Pure
functions, as all of the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from controller.model import FlowPlan, Plan
from controller.model.flow_plans import with_flows
from controller.planner.inputs import PlanInput
from controller.routing.failover import CurrentAssignment, Event, Failover
from controller.routing.from_topology import Failures, choices_of, demand_of, fabric_of
from controller.routing.paths import Path
from controller.routing.ports import destinations, sources
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


class Emergencies:
    """The answers to the single failures of a fabric, for one plan.

    Flows without a path in the plan are left to ECMP. Flows that are pinned in switches, or whose NIC keeps
    its source port, are left to the switches' backup entries.
    """

    def __init__(self, inputs: PlanInput, plan: Plan) -> None:
        """`inputs` holds the state of the fabric that the answers start from."""
        topology, failures = inputs.topology, Failures(inputs.down_links, inputs.down_switches)
        host = topology.host
        job_of = {f.name: job for job in inputs.jobs for f in job.flows}
        kept = {p.flow for p in plan.pins} | {f for f, q in inputs.queue_pairs.items() if q.port_fixed}
        self._failover: Failover | None = None
        self._positions: list[int] = []
        self._ends: list[tuple[str, str]] = []
        if not inputs.policy.routing.chooses_paths or not topology.hash.known:
            return
        paths: list[Path] = []
        ports: list[int] = []
        for i, f in enumerate(plan.flows.values()):
            if f.path is None or f.source_port is None or f.flow not in job_of or f.flow in kept:
                continue
            if not (failures.cuts_off(host[f.path[0]]) or failures.cuts_off(host[f.path[-1]])):
                self._positions.append(i)
                self._ends.append((f.path[0], f.path[-1]))
                paths.append(f.path[1:-1])
                ports.append(f.source_port)
        if not paths:
            return
        # Paths name switches, so the cables between two of them are one link here.
        fabric = bundled(fabric_of(topology, failures))
        names = list(plan.flows)
        jobs = [job_of[names[i]] for i in self._positions]
        weight = [max((p.rate_bps for p in job.profile.phases), default=1) for job in jobs]
        ends = [(host[a], host[b]) for a, b in self._ends]
        self._demand = demand_of(fabric, ends, np.array(weight, dtype=np.float64))
        now = CurrentAssignment(
            sources((a.ip for a, _ in ends), topology.hash),
            destinations((b.ip for _, b in ends), topology.hash),
            self._demand,
            choices_of(fabric, self._demand, paths),
            np.array(ports, dtype=np.int32),
        )
        self._failover = Failover(topology, fabric, now, failures)

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
            a, b = self._ends[f]
            u, v = int(self._demand.src[f]), int(self._demand.dst[f])
            paths.append((a, *found.fabric.nodes(u, v, choice), b))
        ports = found.ports.tolist()
        positions = tuple(self._positions[f] for f in found.flows.tolist())
        return FlowReroutes(event, positions, tuple(ports), tuple(paths))
