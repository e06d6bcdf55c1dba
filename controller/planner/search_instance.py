# SPDX-License-Identifier: Apache-2.0
"""The jobs of a planning run as the loop's judge sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JointFlow, JointJob, steps_of
from controller.model import TRAFFIC_CLASSES
from controller.planner.demand import Demands
from controller.planner.priority_stage import PriorityStage
from controller.planner.time_shifts import TimeShifts
from controller.routing.paths import Path

JITTER = 0.01
"""How much computes are taken to differ, as a part of themselves."""
SLOWEST = 2.0
"""How many times its own iteration a job's period may be: worse than meeting it never is, by the judge."""
SHARES = (1.2, 0.4)
"""What F comes to in shares where emulated NICs send by MLTCP (slope, intercept), against 1 of those that do
not: their windows go from 16 to 64 packets, those of others are 40 (`hostagent.nic.dcqcn`)."""


def instance_of(demands: Demands, ways: Mapping[str, Sequence[Path]]) -> Instance:
    """The jobs with elephants that have ways, in the planner's order; `ways` by flow, job by job."""
    number = {link: i for i, link in enumerate(demands.rates)}
    flows = {f.name: f for f in demands.elephants}
    sizes: dict[str, int] = defaultdict(int)
    for name in ways:
        job = flows[name].job
        sizes[job] = max(sizes[job], flows[name].bytes_per_iteration)
    members: dict[str, list[JointFlow]] = defaultdict(list)
    for name, listed in ways.items():
        inside = demands.inside[name]
        links = tuple(tuple(number[k] for k in (*inside, *pairwise(p))) for p in listed)
        job = flows[name].job
        members[job].append(JointFlow(flows[name].bytes_per_iteration / sizes[job], links))
    policy = demands.inputs.policy
    players = tuple(
        JointJob(
            j.name,
            float(max(1, j.gpus)),
            steps_of(demands.profiles[j.name]),
            tuple(members[j.name]),
            mltcp_capable=policy.sender == "job"
            and all(f.src in demands.inputs.mltcp_hosts for f in j.flows),
        )
        for j in demands.inputs.jobs
        if j.name in members
    )
    levels = min(policy.levels, len(TRAFFIC_CLASSES.levels))
    return Instance(players, tuple(demands.rates.values()), JITTER, levels, SLOWEST, SHARES)


def composed(instance: Instance, rhythms: TimeShifts, order: PriorityStage) -> Choice:
    """What the stages one after another have come to, with the first way of every flow."""
    held = rhythms.holding.slots
    names = [p.name for p in instance.jobs]
    return Choice(
        path_choice=(0,) * len(instance.flows),
        level=tuple(order.levels[n] for n in names),
        timings=tuple((held[n].period_ns, held[n].shift_ns) if n in held else UNSCHEDULED for n in names),
        mltcp=(False,) * len(names),
    )
