# SPDX-License-Identifier: Apache-2.0
"""The answer to a single failure, ready before it happens: new paths and ports for the flows it cuts off.

It is not a plan of its own: order and rhythm stay, and a full plan follows. Pure, as the planner is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.model import FlowPlan, Plan
from controller.planner.inputs import PlanInput
from controller.routing.failover import CurrentAssignment, Event, reroute
from controller.routing.from_topology import Failures, choices_of, demand_of, fabric_of
from controller.routing.ports import addresses


@dataclass(frozen=True, slots=True)
class Emergency:
    """What changes when `event` happens: flows with their new way, or with none where none is left."""

    event: Event
    flows: Mapping[str, FlowPlan]

    def applied(self, plan: Plan) -> Plan:
        """The plan in force until the next one; its version stays, and so do the entries for single flows,
        but for the source ports that remarking tells flows by."""
        ports = {name: f.source_port for name, f in self.flows.items()}
        remarks = tuple(replace(r, source_port=ports.get(r.flow) or r.source_port) for r in plan.remarks)
        return replace(plan, flows={**plan.flows, **self.flows}, remarks=remarks)


def emergencies(inputs: PlanInput, plan: Plan, events: Sequence[Event]) -> tuple[Emergency, ...]:
    """The answers to each of `events`, for `plan` in the state of the fabric that `inputs` tells.

    Flows that the fabric's hash places (by ECMP, or because the policy routes by ECMP) are left to it; those
    pinned in switches, or whose NIC keeps its port, to the switches' backups.
    """
    failures = Failures(inputs.down_links, inputs.down_switches)
    host = inputs.topology.host
    job_of = {f.name: job for job in inputs.jobs for f in job.flows}
    kept = {p.flow for p in plan.pins} | {f for f, q in inputs.queue_pairs.items() if q.port_fixed}
    pinned = [
        f
        for f in plan.flows.values()
        if f.flow in job_of
        and f.flow not in kept
        and f.path is not None
        and f.source_port is not None
        and not failures.cuts_off(host[f.path[0]])
        and not failures.cuts_off(host[f.path[-1]])
    ]
    if not inputs.policy.routing.chooses_paths or not inputs.topology.hash.known or not pinned:
        return tuple(Emergency(event, {}) for event in events)
    fabric = fabric_of(inputs.topology, failures)
    weight = [max((p.rate_bps for p in job_of[f.flow].profile.phases), default=1) for f in pinned]
    ends = [(host[f.path[0]], host[f.path[-1]]) for f in pinned if f.path is not None]
    demand = demand_of(fabric, ends, np.array(weight, dtype=np.float64))
    now = CurrentAssignment(
        addresses(a.ip for a, _ in ends),
        addresses(b.ip for _, b in ends),
        demand,
        choices_of(fabric, demand, [f.path[1:-1] for f in pinned if f.path is not None]),
        np.array([f.source_port for f in pinned], dtype=np.int32),
    )
    answers = []
    for event in events:
        found = reroute(inputs.topology, fabric, now, event)
        flows: dict[str, FlowPlan] = {}
        name = event if isinstance(event, str) else "-".join(event)
        for f, choice, port in zip(
            found.flows.tolist(), found.choice.tolist(), found.ports.tolist(), strict=True
        ):
            was, (a, b) = pinned[f], ends[f]
            u, v = int(demand.src[f]), int(demand.dst[f])
            if port >= 0:
                path = (a.name, *found.fabric.nodes(u, v, choice), b.name)
                flows[was.flow] = replace(was, path=path, source_port=port, why=f"around {name}, as prepared")
            else:
                flows[was.flow] = replace(was, path=None, source_port=None, why=f"no way left without {name}")
        answers.append(Emergency(event, flows))
    return tuple(answers)
