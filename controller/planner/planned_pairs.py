# SPDX-License-Identifier: Apache-2.0
"""The pairs of hosts that a plan lets into the queues of levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from controller.model import TRAFFIC_CLASSES, FlowPlan, Job
from controller.model.flow_plans import FlowPlans
from controller.planner.flow_columns import columns_of
from controller.routing.numbering import numbering


def planned_pairs(jobs: Iterable[Job], flows: Mapping[str, FlowPlan]) -> tuple[tuple[str, str], ...]:
    """The pairs (sender, receiver) with a flow in the class of a level, sorted, each once.

    A pair holds for all levels, and not for that of one plan: packets under the DSCP of the plan before are
    still on their way when the switches have the new entries, and packets of one flow in two queues overtake
    one another.
    """
    if isinstance(flows, FlowPlans) and not flows.others:
        return _pairs_of_columns(flows)
    found = set()
    for job in jobs:
        for flow in job.flows:
            planned = flows.get(flow.name)
            if planned is not None and planned.dscp != TRAFFIC_CLASSES.mice:
                found.add((flow.src, flow.dst))
    return tuple(sorted(found))


def _pairs_of_columns(flows: FlowPlans) -> tuple[tuple[str, str], ...]:
    numbers = numbering(flows.topology)
    count, rank = len(numbers.hosts), numbers.host_rank.astype(np.int64)
    keys = [np.empty(0, dtype=np.int64)]
    for job in flows.jobs.values():
        if job.dscp != TRAFFIC_CLASSES.mice:
            columns = columns_of(flows.topology, job.flows)
            elephants = columns.size >= flows.elephant_bytes
            keys.append(rank[columns.src[elephants]] * count + rank[columns.dst[elephants]])
    src, dst = np.divmod(np.unique(np.concatenate(keys)), max(count, 1))
    names = sorted(numbers.hosts)
    return tuple((names[a], names[b]) for a, b in zip(src.tolist(), dst.tolist(), strict=True))
