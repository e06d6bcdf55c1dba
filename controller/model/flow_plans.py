# SPDX-License-Identifier: Apache-2.0
"""The flows of a plan as columns, job by job. A `FlowPlan` and its reason are made when somebody looks.

A job whose flows stay as they were has the same object in the plan before and in the plan after, so whoever
compares plans looks at the other jobs only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.model.job import Flow, job_of_flow
from controller.model.plan import FlowPlan
from controller.model.traffic import TRAFFIC_CLASSES
from topo.graph import Topology

Path = tuple[str, ...]
DirectedLink = tuple[str, str]


@dataclass(frozen=True, eq=False)
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

    def __reduce__(self) -> tuple[Any, ...]:
        return JobFlows, (self.flows, self.hops, self.port, self.dscp, self.notes)

    def row(self, name: str) -> int | None:
        """The index of a flow of the job; None for a name that is none of its flows."""
        return self._rows.get(name)

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {f.name: i for i, f in enumerate(self.flows)}

    @cached_property
    def routed(self) -> NDArray[np.bool_]:
        """Which flows have a path and a source port, (flows,)."""
        found: NDArray[np.bool_] = (self.hops[:, 0] >= 0) & (self.port >= 0)
        return found

    @cached_property
    def with_path(self) -> int:
        """How many flows have a path and a source port."""
        return int(self.routed.sum())

    def same(self, other: JobFlows) -> bool:
        """Whether both decide the same, for the same reasons."""
        return self.notes == other.notes and self.sends_as(other)

    def sends_as(self, other: JobFlows) -> bool:
        """Whether the flows take the same paths with the same source ports and DSCP."""
        return (
            self.dscp == other.dscp
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
        return FlowPlans, (self.topology, self.elephant_bytes, self.jobs, dict(self.kept), dict(self.others))

    def __getitem__(self, name: str) -> FlowPlan:
        if name in self.others:
            return self.others[name]
        found = self._known.get(name)
        if found is None:
            place = self._find(name)
            if place is None:
                raise KeyError(name)
            found = self._known[name] = self._made(*place)
        return found

    def __iter__(self) -> Iterator[str]:
        return (f.name for job in self.jobs.values() for f in job.flows)

    def __len__(self) -> int:
        return sum(len(job.flows) for job in self.jobs.values())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def _find(self, name: str) -> tuple[str, int] | None:
        """The job and the index of a flow; None for an unknown one.

        Most flows are named after their job, and the indices of a job outlast a plan.
        """
        job = job_of_flow(name)
        block = self.jobs.get(job)
        row = block.row(name) if block is not None else None
        return (job, row) if row is not None else self._place.get(name)

    @cached_property
    def _place(self) -> Mapping[str, tuple[str, int]]:
        """The job and the index of each flow that is not named after its job."""
        return {
            f.name: (name, i)
            for name, job in self.jobs.items()
            for i, f in enumerate(job.flows)
            if job_of_flow(f.name) != name
        }

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The names of the switches by number."""
        return tuple(s.name for s in self.topology.switches)

    def replaced(self, changes: Mapping[str, FlowPlan]) -> FlowPlans:
        """With other decisions for some of the flows."""
        others = {**self.others, **changes}
        return FlowPlans(self.topology, self.elephant_bytes, self.jobs, self.kept, others)

    def each(self) -> Iterator[tuple[str, FlowPlan]]:
        """Every flow with its name, in order. They are made for the caller, and not kept."""
        for job, block in self.jobs.items():
            for i, flow in enumerate(block.flows):
                yield flow.name, self.others.get(flow.name) or self._made(job, i)

    def of(self, job: str) -> Iterator[FlowPlan]:
        """The flows of a job, in their order."""
        for f in self.jobs[job].flows if job in self.jobs else ():
            yield self[f.name]

    @property
    def routed(self) -> int:
        """How many flows have a path."""
        moved = sum((f.path is not None) - self._routed(name) for name, f in self.others.items())
        return moved + sum(job.with_path for job in self.jobs.values())

    def _routed(self, name: str) -> bool:
        place = self._find(name)
        return place is not None and bool(self.jobs[place[0]].routed[place[1]])

    def pinned(self) -> Iterator[tuple[str, Path, int]]:
        """Name, path and source port of each flow that has both."""
        for job in self.jobs.values():
            index = np.flatnonzero(job.routed)
            rows = zip(index.tolist(), job.hops[index].tolist(), job.port[index].tolist(), strict=True)
            for i, row, port in rows:
                flow = job.flows[i]
                if flow.name not in self.others:
                    yield flow.name, self._path(flow, row), port
        yield from _pinned(self.others)

    def path(self, name: str) -> Path | None:
        """The path of a flow, as its `FlowPlan` has it; None for an unknown flow too."""
        if name in self.others:
            return self.others[name].path
        place = self._find(name)
        if place is None:
            return None
        job, index = self.jobs[place[0]], place[1]
        flow = job.flows[index]
        if flow.bytes_per_iteration < self.elephant_bytes or job.port[index] < 0 or job.hops[index, 0] < 0:
            return None
        return self._path(flow, job.hops[index].tolist())

    def header(self, name: str) -> tuple[int | None, int, int] | None:
        """Source port, DSCP and rate cap of a flow, as its `FlowPlan` has them; None for an unknown flow."""
        if name in self.others:
            return _header(self.others[name])
        place = self._find(name)
        if place is None:
            return None
        job, index = self.jobs[place[0]], place[1]
        if job.flows[index].bytes_per_iteration < self.elephant_bytes:
            return None, TRAFFIC_CLASSES.mice, 0
        port = int(job.port[index])
        return (port if port >= 0 and job.hops[index, 0] >= 0 else None), job.dscp, 0

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
        path = self._path(flow, row)
        others = {other for link in pairwise(path[1:-1]) for other in self.jobs_on.get(link, ())} - {name}
        kept = name in self.kept and bool(self.kept[name][index])
        return FlowPlan(flow.name, path, port, job.dscp, path_words(path, others, kept=kept))

    def _path(self, flow: Flow, row: Iterable[int]) -> Path:
        return (flow.src, *(self.switches[i] for i in row if i >= 0), flow.dst)

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


def flows_of_job(flows: Mapping[str, FlowPlan], job: str) -> Iterator[FlowPlan]:
    """The flows of a plan that are of one job."""
    if isinstance(flows, FlowPlans):
        return flows.of(job)
    return (flow for name, flow in flows.items() if job_of_flow(name) == job)


def with_flows(flows: Mapping[str, FlowPlan], changes: Mapping[str, FlowPlan]) -> Mapping[str, FlowPlan]:
    """The flows of a plan with other decisions for some of them."""
    return flows.replaced(changes) if isinstance(flows, FlowPlans) else {**flows, **changes}


def with_dscps(flows: Mapping[str, FlowPlan], dscps: Mapping[str, tuple[int, int]]) -> Mapping[str, FlowPlan]:
    """The flows of a plan; those of the jobs in `dscps` that have the first of two DSCPs get the second."""
    moved = {
        name: replace(flow, dscp=dscps[job][1])
        for name, flow in (flows.others if isinstance(flows, FlowPlans) else flows).items()
        if (job := job_of_flow(name)) in dscps and flow.dscp == dscps[job][0]
    }
    if not isinstance(flows, FlowPlans):
        return {**flows, **moved}
    jobs = {
        name: replace(job, dscp=dscps[name][1]) if name in dscps and job.dscp == dscps[name][0] else job
        for name, job in flows.jobs.items()
    }
    others = {**flows.others, **moved}
    return FlowPlans(flows.topology, flows.elephant_bytes, jobs, flows.kept, others)


def pinned_flows(flows: Mapping[str, FlowPlan]) -> Iterator[tuple[str, Path, int]]:
    """Name, path and source port of each flow of a plan that has both, without their reasons."""
    return flows.pinned() if isinstance(flows, FlowPlans) else _pinned(flows)


def path_in(flows: Mapping[str, FlowPlan], name: str) -> Path | None:
    """The path of a flow of a plan, without its reason; None: it has none, or is unknown."""
    if isinstance(flows, FlowPlans):
        return flows.path(name)
    return flows[name].path if name in flows else None


def header_of(flows: Mapping[str, FlowPlan], name: str) -> tuple[int | None, int, int] | None:
    """Source port, DSCP and rate cap of a flow of a plan; None for an unknown flow."""
    if isinstance(flows, FlowPlans):
        return flows.header(name)
    return _header(flows[name]) if name in flows else None


def _pinned(flows: Mapping[str, FlowPlan]) -> Iterator[tuple[str, Path, int]]:
    for f in flows.values():
        if f.path is not None and f.source_port is not None:
            yield f.flow, f.path, f.source_port


def _header(flow: FlowPlan) -> tuple[int | None, int, int]:
    return flow.source_port, flow.dscp, flow.rate_cap_bps
