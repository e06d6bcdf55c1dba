# SPDX-License-Identifier: Apache-2.0
"""An earlier plan for the jobs of today, so that it can come into force again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from controller.model.plan import LinkPlan, Plan
from controller.planner.inputs import PlanInput
from controller.planner.planned_pairs import planned_pairs
from topo.graph import Topology

MOST_CHANGED = 0.1
"""How much a job's period may differ from that of its slots. Chosen: slots are up to a few per cent longer
than the period, and after 15 per cent an observed job is another one."""


class RollbackError(ValueError):
    """The earlier plan does not fit the fabric of today; the message says why."""


def rolled_back(earlier: Plan, inputs: PlanInput) -> Plan:
    """`earlier` as the next plan after `inputs.previous`, for the present jobs. Jobs that have left are left
    out.

    Slots count from the earlier epoch, or from that of `inputs` if the earlier one is yet to come: then it
    counts by a clock of before.

    Raises:
        RollbackError: a present job or flow is not in the earlier plan, a job has another period than its
            slots, or a path leads over what is down or not of the fabric.
    """
    jobs, topology = inputs.jobs, inputs.topology
    present = {job.name for job in jobs}
    wanted = {flow.name for job in jobs for flow in job.flows}
    if new := sorted(present - earlier.jobs.keys()):
        raise RollbackError(f"plan {earlier.version} has no job {new[0]}, which is present")
    if other := sorted(wanted - earlier.flows.keys()):
        raise RollbackError(f"plan {earlier.version} has no flow {other[0]}, which is present")
    flows = {name: flow for name, flow in earlier.flows.items() if name in wanted}
    for job in jobs:
        slot_ns, own_ns = earlier.jobs[job.name].period_ns, job.profile.period_ns
        if slot_ns is not None and abs(slot_ns - own_ns) > MOST_CHANGED * own_ns:
            raise RollbackError(
                f"plan {earlier.version} has a slot every {slot_ns / 1e6:g} ms for job {job.name}, whose "
                f"period is {own_ns / 1e6:g} ms now"
            )
    if gone := not_of_fabric(earlier, topology):
        raise RollbackError(f"plan {earlier.version} uses {gone}, which the fabric does not have")
    down_pairs = topology.down_pairs(inputs.down_links)
    for flow in flows.values():
        path = flow.path or ()
        dead = [n for n in path if n in inputs.down_switches]
        dead += ["-".join(pair) for pair in pairwise(path) if tuple(sorted(pair)) in down_pairs]
        if dead:
            raise RollbackError(
                f"plan {earlier.version} sends flow {flow.flow} over {dead[0]}, which is down"
            )
    links = (
        LinkPlan(link.src, link.dst, tuple(j for j in link.jobs if j in present), link.score)
        for link in earlier.links
    )
    pairs, mice_pairs = planned_pairs(jobs, flows)
    return replace(
        earlier,
        version=inputs.number,
        epoch_ns=min(earlier.epoch_ns, inputs.epoch_ns),
        flows=flows,
        jobs={name: job for name, job in earlier.jobs.items() if name in present},
        links=tuple(link for link in links if len(link.jobs) > 1),
        pins=tuple(pin for pin in earlier.pins if pin.flow in wanted),
        remarks=tuple(remark for remark in earlier.remarks if remark.flow in wanted),
        pairs=pairs,
        mice_pairs=mice_pairs,
    )


def not_of_fabric(plan: Plan, topology: Topology) -> str:
    """A node or cable that a plan uses and the fabric does not have; empty if there is none."""
    nodes = topology.host.keys() | topology.switch.keys()
    used = {node for flow in plan.flows.values() for node in flow.path or ()}
    used |= {node for pin in plan.pins for node in (pin.switch, pin.toward, pin.src, pin.dst)}
    used |= {node for remark in plan.remarks for node in (remark.switch, remark.src, remark.dst)}
    used |= {host for pair in (*plan.pairs, *plan.mice_pairs) for host in pair}
    if gone := used - nodes:
        return ", ".join(sorted(gone))
    hops = {pair for flow in plan.flows.values() for pair in pairwise(flow.path or ())}
    cables = {pair for link in topology.links for pair in ((link.a, link.b), (link.b, link.a))}
    cables |= {pair for host in topology.hosts for pair in ((host.name, host.leaf), (host.leaf, host.name))}
    return ", ".join("-".join(pair) for pair in sorted(hops - cables)[:1])
