# SPDX-License-Identifier: Apache-2.0
"""The flows of a plan as columns, job by job. A `FlowPlan` and its reason are made when somebody looks.

A job whose flows stay as they were has the same object in the plan before and in the plan after, so whoever
compares plans looks at the other jobs only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.model.job import Flow
from controller.model.plan import FlowPlan
from controller.model.traffic import TRAFFIC_CLASSES
from topo.graph import Topology

Path = tuple[str, ...]
DirectedLink = tuple[str, str]


@dataclass(frozen=True, eq=False, slots=True)
class JobFlows:
    """The decisions for the flows of one job, in their order.

    `hops` (flows, n) are the switches of each path as indices into `Topology.switches`, leaf to leaf; -1 pads
    a row, and fills that of a flow without a path. `port` (flows,) are source ports, -1 without one. `dscp`
    is that of the elephants. `notes` has the reason of elephants without a path, by index. None has a rate
    cap.
    """

    flows: tuple[Flow, ...]
    hops: NDArray[np.int32]
    port: NDArray[np.int32]
    dscp: int
    notes: Mapping[int, str] = field(default_factory=dict)

    def same(self, other: JobFlows) -> bool:
        """Whether both decide the same."""
        return (
            self.dscp == other.dscp
            and self.notes == other.notes
            and np.array_equal(self.port, other.port)
            and np.array_equal(self.hops, other.hops)
            and (self.flows is other.flows or self.flows == other.flows)
        )


class FlowPlans(Mapping[str, FlowPlan]):
    """The flows of a plan by name, job by job in the order of `jobs`.

    `kept` has the flows of each job that are on path and port of the plan before, (flows,); a job without an
    entry has none. Flows of fewer than `elephant_bytes` are mice. `others` replace what the columns say, for
    flows that have moved since the plan was made.

    This is no dataclass, because records and replies show it as the mapping that it is.
    """

    def __init__(
        self,
        topology: Topology,
        elephant_bytes: int,
        jobs: Mapping[str, JobFlows],
        kept: Mapping[str, NDArray[np.bool_]] = MappingProxyType({}),
        others: Mapping[str, FlowPlan] = MappingProxyType({}),
    ) -> None:
        self.topology = topology
        self.elephant_bytes = elephant_bytes
        self.jobs = jobs
        self.kept = kept
        self.others = others
        self._known: dict[str, FlowPlan] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return FlowPlans, (self.topology, self.elephant_bytes, self.jobs, self.kept, dict(self.others))

    def __getitem__(self, name: str) -> FlowPlan:
        if name in self.others:
            return self.others[name]
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._made(*self._place[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, name: object) -> bool:
        return name in self._place

    @cached_property
    def _place(self) -> Mapping[str, tuple[str, int]]:
        """The job and the index of each flow."""
        return {f.name: (name, i) for name, job in self.jobs.items() for i, f in enumerate(job.flows)}

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The names of the switches by number."""
        return tuple(s.name for s in self.topology.switches)

    def replaced(self, changes: Mapping[str, FlowPlan]) -> FlowPlans:
        """With other decisions for some of the flows."""
        others = {**self.others, **changes}
        return FlowPlans(self.topology, self.elephant_bytes, self.jobs, self.kept, others)

    def of(self, job: str) -> Iterator[FlowPlan]:
        """The flows of a job, in their order."""
        for f in self.jobs[job].flows if job in self.jobs else ():
            yield self[f.name]

    @property
    def routed(self) -> int:
        """How many flows have a path."""
        moved = sum((f.path is not None) - self._routed(name) for name, f in self.others.items())
        return moved + sum(int((job.port >= 0).sum()) for job in self.jobs.values())

    def _routed(self, name: str) -> bool:
        job, index = self._place[name]
        return bool(self.jobs[job].port[index] >= 0)

    def changed_since(self, before: Mapping[str, FlowPlan]) -> Iterator[str]:
        """The flows that may differ from those of `before`; those of jobs that are gone are left out."""
        if not isinstance(before, FlowPlans) or before.topology is not self.topology:
            yield from self
            return
        for name, job in self.jobs.items():
            if before.jobs.get(name) is not job:
                yield from (f.name for f in job.flows)
        if self.others is not before.others:
            yield from self.others
            yield from (name for name in before.others if name in self)

    def _made(self, name: str, index: int) -> FlowPlan:
        job = self.jobs[name]
        flow = job.flows[index]
        if flow.bytes_per_iteration < self.elephant_bytes:
            why = f"{flow.bytes_per_iteration} bytes an iteration: a mouse, left to ECMP"
            return FlowPlan(flow.name, None, None, TRAFFIC_CLASSES.mice, why)
        row, port = job.hops[index].tolist(), int(job.port[index])
        if row[0] < 0 or port < 0:
            return FlowPlan(flow.name, None, None, job.dscp, job.notes.get(index, "left to ECMP"))
        path = (flow.src, *(self.switches[i] for i in row if i >= 0), flow.dst)
        others = {other for link in pairwise(path[1:-1]) for other in self.jobs_on.get(link, ())} - {name}
        kept = name in self.kept and bool(self.kept[name][index])
        return FlowPlan(flow.name, path, port, job.dscp, path_words(path, others, kept=kept))

    @cached_property
    def jobs_on(self) -> Mapping[DirectedLink, Collection[str]]:
        """The jobs on each link between switches that several jobs use, as the plan was made."""
        names, size = list(self.jobs), len(self.switches)
        keys = []
        for number, job in enumerate(self.jobs.values()):
            a, b = job.hops[:, :-1].astype(np.int64), job.hops[:, 1:]
            keys.append(np.unique((a * size + b)[b >= 0]) * len(names) + number)
        every = np.unique(np.concatenate([np.empty(0, np.int64), *keys]))
        link = every // max(len(names), 1)
        alike = link[1:] == link[:-1]
        several = np.append(alike, False) | np.append(False, alike)
        found: dict[DirectedLink, list[str]] = {}
        for key in every[several[: len(every)]].tolist():
            ends, number = divmod(key, len(names))
            found.setdefault((self.switches[ends // size], self.switches[ends % size]), []).append(
                names[number]
            )
        return found


def path_words(path: Path, others: Iterable[str], *, kept: bool) -> str:
    """Why an elephant has its path, host to host. `others` are the other jobs on its links; `kept`: it has
    the path already."""
    words = "; kept from the plan before" if kept else ""
    if len(path) == 3:
        return f"inside the leaf{words}"
    through = f"least loaded path, through {path[len(path) // 2]}"
    if len(path) < 3:
        return f"{through}{words}"
    return f"{through}, shared with {', '.join(sorted(others)) or 'no other job'}{words}"


def with_flows(flows: Mapping[str, FlowPlan], changes: Mapping[str, FlowPlan]) -> Mapping[str, FlowPlan]:
    """The flows of a plan with other decisions for some of them."""
    return flows.replaced(changes) if isinstance(flows, FlowPlans) else {**flows, **changes}
