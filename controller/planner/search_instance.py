# SPDX-License-Identifier: Apache-2.0
"""Converts the jobs of a planning run into the form that the evaluator of the joint search takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JointFlow, JointJob, steps_of
from controller.interleave.timing import FREE_CHOICE
from controller.model import TRAFFIC_CLASSES
from controller.planner.candidate import Candidate
from controller.planner.demand import Demands
from controller.routing.cable_links import Way, cable_rates
from controller.wire.senders import uses_mltcp

JITTER = 0.01
"""By how much compute times are assumed to differ between iterations, as a part of themselves. Chosen."""
SLOWEST = 2.0
"""The longest period of a slot, in multiples of the job's own period. Chosen: in the evaluator no plan with a
longer one was better."""
SHARES = (1.4, 0.2)
"""MLTCP's F (slope, intercept) as the share of a link that an emulated NIC with MLTCP gets, against 1 for a
NIC without it: its window goes from 8 to 64 packets, that of others is 40 (`hostagent.nic.dcqcn`)."""


def instance_of(demands: Demands, candidates: Mapping[str, Sequence[Way]]) -> Instance:
    """The jobs whose elephants have paths, in the planner's order. `candidates` has the links of each
    candidate path by flow, and the flows of a job are adjacent."""
    number = {link: i for i, link in enumerate(demands.rates)}
    flows = demands.elephant
    sizes: dict[str, int] = defaultdict(int)
    for name in candidates:
        job = flows[name].job
        sizes[job] = max(sizes[job], flows[name].bytes_per_iteration)
    members: dict[str, list[JointFlow]] = defaultdict(list)
    for name, listed in candidates.items():
        inside = demands.inside[name]
        links = tuple(tuple(number[k] for k in (*inside, *way)) for way in listed)
        job = flows[name].job
        members[job].append(JointFlow(flows[name].bytes_per_iteration / sizes[job], links))
    policy = demands.inputs.policy
    senders: dict[str, set[str]] = defaultdict(set)
    for name in candidates:
        senders[flows[name].src].add(flows[name].job)
    # Jobs on one NIC get turns from it, and no marks: MLTCP's weights have no effect on them.
    mltcp_hosts = {h for h, own in senders.items() if len(own) == 1 and h in demands.inputs.mltcp_hosts}
    jobs = tuple(
        JointJob(
            j.name,
            float(max(1, j.gpus)),
            steps_of(demands.profiles[j.name]),
            tuple(members[j.name]),
            mltcp_capable=policy.timing.sender == FREE_CHOICE and all(f.src in mltcp_hosts for f in j.flows),
        )
        for j in demands.inputs.jobs
        if j.name in members
    )
    levels = min(policy.priority.levels, len(TRAFFIC_CLASSES.levels))
    rates = tuple(demands.rates.values())
    switches, cables = demands.inputs.topology.switch, cable_rates(demands.inputs.topology)
    # Packets wait in a queue of the fabric where a switch sends. A NIC sends from its queue pairs in turn.
    queues = tuple(link[0] in switches or link in cables for link in demands.rates)
    return Instance(jobs, rates, JITTER, levels, SLOWEST, SHARES, slots_move=True, queues=queues)


def choice_of(instance: Instance, candidate: Candidate) -> Choice:
    """A candidate as a choice of the search. Every flow has its first candidate path."""
    slots, level = candidate.shifts.schedule.slots, candidate.priorities.level
    names = [p.name for p in instance.jobs]
    return Choice(
        path_choice=(0,) * len(instance.flows),
        level=tuple(level[n] for n in names),
        timings=tuple((slots[n].period_ns, slots[n].shift_ns) if n in slots else UNSCHEDULED for n in names),
        mltcp=tuple(uses_mltcp(candidate.senders.get(n, "")) for n in names),
    )


def previous_choice(
    demands: Demands, instance: Instance, flows: Sequence[str], candidates: Mapping[str, Sequence[Way]]
) -> Choice | None:
    """The plan in force as a choice. None if another policy made it, or a part of it is no longer
    possible."""
    x = demands.inputs
    old = x.previous
    if old is None or old.policy != x.policy.reference:
        return None
    path_choice, level, timings, mltcp = [], [], [], []
    for name in flows:
        was = old.flows.get(name)
        if was is None or was.path is None:
            return None
        way = demands.cable_links.way(was.path, was.source_port)
        if way not in candidates[name]:
            return None
        path_choice.append(candidates[name].index(way))
    for j, own in enumerate(instance.jobs):
        job = old.jobs.get(own.name)
        if job is None:
            return None
        level.append(job.level)
        mltcp.append(uses_mltcp(job.sender))
        if mltcp[-1] and not own.mltcp_capable:
            return None
        period = job.period_ns
        if period is None:
            timings.append(UNSCHEDULED)
        elif own.alone_ns * 0.9995 <= period <= instance.longest_period(j):
            timings.append((period, (job.shift_ns + old.epoch_ns - x.epoch_ns) % period))
        else:
            return None
    return Choice(tuple(path_choice), tuple(level), tuple(timings), tuple(mltcp))
