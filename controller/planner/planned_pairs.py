# SPDX-License-Identifier: Apache-2.0
"""The pairs of hosts between which a plan has flows: they may use the queues of levels and of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from controller.model import TRAFFIC_CLASSES, Flow, FlowPlan, Job
from controller.model.flow_plans import FlowPlans
from controller.planner.flow_columns import columns_of
from controller.routing.numbering import numbering
from controller.routing.topology_cache import cached_by_part
from topo.graph import Topology

Pairs = tuple[tuple[str, str], ...]
_ENDS = attrgetter("src", "dst")


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
    parts = [
        _pairs_of_job(flows.topology, job.flows, flows.elephant_bytes, job.dscp == TRAFFIC_CLASSES.mice)
        for job in flows.jobs.values()
    ]
    levels, mice = (_Pairs.together(some) for some in zip((_NONE, _NONE), *parts, strict=True))
    if len(mice.keys):
        mice = mice.take(~np.isin(mice.keys, levels.keys))
    return tuple(levels.names.tolist()), tuple(mice.names.tolist())


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of hosts. `keys` (pairs,) are numbers that sort as the names do. `names` (pairs,) are the pairs
    by name, made once for each job."""

    keys: NDArray[np.int64]
    names: NDArray[np.object_]

    def take(self, index: NDArray[np.bool_] | NDArray[np.intp]) -> _Pairs:
        """The pairs at these indices."""
        return _Pairs(self.keys[index], self.names[index])

    @classmethod
    def together(cls, parts: Sequence[_Pairs]) -> _Pairs:
        """The pairs of all parts, sorted, each once."""
        found = cls(np.concatenate([p.keys for p in parts]), np.concatenate([p.names for p in parts]))
        # Where each part is sorted, the stable sort only merges them.
        found = found.take(found.keys.argsort(kind="stable"))
        first = np.ones(len(found.keys), dtype=np.bool_)
        first[1:] = found.keys[1:] != found.keys[:-1]
        return found.take(first)


_NONE = _Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.object_))


@cached_by_part
def _pairs_of_job(
    topology: Topology, flows: tuple[Flow, ...], elephant_bytes: int, all_mice: bool
) -> tuple[_Pairs, _Pairs]:
    """The pairs of hosts of a job's flows in the class of a level, and of its mice, sorted."""
    numbers, columns = numbering(topology), columns_of(topology, flows)
    rank = numbers.host_rank.astype(np.int64)
    keys = rank[columns.src] * len(numbers.hosts) + rank[columns.dst]
    pairs = _Pairs(keys, np.fromiter(map(_ENDS, flows), np.object_, len(flows)))
    is_mouse = (columns.size < elephant_bytes) | all_mice
    order = keys.argsort()
    return pairs.take(order[~is_mouse[order]]), pairs.take(order[is_mouse[order]])
