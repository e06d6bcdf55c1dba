# SPDX-License-Identifier: Apache-2.0
"""The pairs of hosts between which a plan has flows: they may use the queues of levels and of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from controller.model import TRAFFIC_CLASSES, Flow, FlowPlan, Job
from controller.model.flow_plans import FlowPlans
from controller.planner.flow_columns import columns_of
from controller.routing.numbering import numbering
from controller.routing.topology_cache import cached_by_part
from topo.graph import Topology

Pairs = tuple[tuple[str, str], ...]
_NONE = (np.empty(0, dtype=np.int64),) * 2


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
    numbers, smallest = numbering(flows.topology), flows.elephant_bytes
    keys = [
        _keys(flows.topology, job.flows, smallest, job.dscp == TRAFFIC_CLASSES.mice)
        for job in flows.jobs.values()
    ]
    levels, mice = (_each_once(np.concatenate(some)) for some in zip(_NONE, *keys, strict=True))
    names = numbers.sorted_hosts

    def named(keys: NDArray[np.int64]) -> Pairs:
        src, dst = np.divmod(keys, max(len(names), 1))
        return tuple(zip(names[src].tolist(), names[dst].tolist(), strict=True))

    return named(levels), named(mice[~np.isin(mice, levels)] if len(mice) else mice)


@cached_by_part
def _keys(
    topology: Topology, flows: tuple[Flow, ...], elephant_bytes: int, all_mice: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of hosts of a job's flows in the class of a level, and of its mice, as numbers that sort as
    the names do."""
    numbers, columns = numbering(topology), columns_of(topology, flows)
    rank = numbers.host_rank.astype(np.int64)
    keys = rank[columns.src] * len(numbers.hosts) + rank[columns.dst]
    is_mouse = (columns.size < elephant_bytes) | all_mice
    return keys[~is_mouse], keys[is_mouse]


def _each_once(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sorted keys, each once. For few thousand it is faster than `np.unique`."""
    found = np.sort(keys)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found
