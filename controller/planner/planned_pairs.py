# SPDX-License-Identifier: Apache-2.0
"""The pairs of hosts between which a plan has flows: they may use the queues of levels and of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from controller.model import TRAFFIC_CLASSES, FlowPlan, Job
from controller.model.flow_plans import FlowPlans
from controller.planner.flow_columns import columns_of
from controller.routing.numbering import numbering

Pairs = tuple[tuple[str, str], ...]


def planned_pairs(jobs: Iterable[Job], flows: Mapping[str, FlowPlan]) -> tuple[Pairs, Pairs]:
    """The pairs (sender, receiver) with a flow in the class of a level, and those with mice only. Both are
    sorted and have each pair once.

    A pair of the first kind holds for all levels, and not for that of one plan: packets under the DSCP of the
    plan before are still on their way when the switches have the new entries, and packets of one flow in two
    queues overtake one another.
    """
    if isinstance(flows, FlowPlans) and not flows.others:
        return _pairs_of_columns(flows)
    levels: set[tuple[str, str]] = set()
    mice: set[tuple[str, str]] = set()
    for job in jobs:
        for flow in job.flows:
            planned = flows.get(flow.name)
            if planned is not None:
                kind = mice if planned.dscp == TRAFFIC_CLASSES.mice else levels
                kind.add((flow.src, flow.dst))
    return tuple(sorted(levels)), tuple(sorted(mice - levels))


def _pairs_of_columns(flows: FlowPlans) -> tuple[Pairs, Pairs]:
    numbers = numbering(flows.topology)
    count, rank = len(numbers.hosts), numbers.host_rank.astype(np.int64)
    levels, mice = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for job in flows.jobs.values():
        columns = columns_of(flows.topology, job.flows)
        keys = rank[columns.src] * count + rank[columns.dst]
        is_mouse = (columns.size < flows.elephant_bytes) | (job.dscp == TRAFFIC_CLASSES.mice)
        levels.append(keys[~is_mouse])
        mice.append(keys[is_mouse])
    names = numbers.sorted_hosts

    def named(keys: NDArray[np.int64]) -> Pairs:
        src, dst = np.divmod(keys, max(count, 1))
        return tuple(zip(names[src].tolist(), names[dst].tolist(), strict=True))

    of_levels = np.unique(np.concatenate(levels))
    return named(of_levels), named(np.setdiff1d(np.concatenate(mice), of_levels))
