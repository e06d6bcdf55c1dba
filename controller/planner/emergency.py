# SPDX-License-Identifier: Apache-2.0
"""Failover answers, computed before a failure: new paths and source ports for the flows that it cuts off.

An answer changes paths and source ports only. Levels and time-shifts stay until the next full plan. Pure
functions, as all of the planner.
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
    """The answer to `event`: the new path of each flow that it cuts off (None: no path is left)."""

    event: Event
    flows: Mapping[str, FlowPlan]

    def applied(self, plan: Plan) -> Plan:
        """`plan` with the new paths and source ports, in force until the next full plan.

        Version and pins stay. Remark entries match on the source port, so they get the new one.
        """
        ports = {name: f.source_port for name, f in self.flows.items()}
        remarks = tuple(replace(r, source_port=ports.get(r.flow) or r.source_port) for r in plan.remarks)
        return replace(plan, flows={**plan.flows, **self.flows}, remarks=remarks)


def emergencies(inputs: PlanInput, plan: Plan, events: Sequence[Event]) -> tuple[Emergency, ...]:
    """The answer to each of `events`, for `plan` and the state of the fabric in `inputs`.

    Flows without a path in the plan are left to ECMP. Flows that are pinned in switches, or whose NIC keeps
    its source port, are left to the switches' backup entries.
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
                flows[was.flow] = replace(
                    was, path=path, source_port=port, why=f"path around {name}, computed before"
                )
            else:
                flows[was.flow] = replace(was, path=None, source_port=None, why=f"no path without {name}")
        answers.append(Emergency(event, flows))
    return tuple(answers)
