# SPDX-License-Identifier: Apache-2.0
"""Simulate the jobs of the routing paper with new paths at every epoch.

An epoch begins when a job begins or ends its all-reduce. Then all active flows are assigned again at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from controller.routing.algorithms import Options
from controller.routing.algorithms.base import loads
from controller.routing.fabric import LeafDemand, TwoTier
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.routings import ArrayRouting
from sim.engine import KernelEngine
from sim.generators import PlacedModel
from sim.jobrun import JobRun
from sim.network import Network
from sim.shape import program
from sim.task_graph import FLOW, TaskGraph
from sim.units import NEVER, PS_PER_S
from topo.graph import Topology

Paths = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A routing scheme: an algorithm, its options, and the number of queue pairs of each flow."""

    name: str
    routing: ArrayRouting
    options: Options
    qps: int = 1


@dataclass(slots=True)
class EpochOutcome:
    """The result of a run.

    By job: all-reduce times and run time in s. `fct_s`: all message completion times in s. `loads`: for each
    set of active jobs, the largest load of a link and its lower bound, in flows. `assign_ms`: the time of
    each assignment in ms.
    """

    all_reduce_s: dict[str, list[float]] = field(default_factory=dict)
    run_s: dict[str, float] = field(default_factory=dict)
    fct_s: list[float] = field(default_factory=list)
    loads: list[tuple[int, int]] = field(default_factory=list)
    assign_ms: list[float] = field(default_factory=list)
    epochs: int = 0


class EpochExperiment:
    """Placed jobs on a leaf-spine fabric under one scheme."""

    def __init__(
        self, topology: Topology, failures: Failures, jobs: Sequence[PlacedModel], scheme: Scheme
    ) -> None:
        fabric = fabric_of(topology, failures)
        if not isinstance(fabric, TwoTier):
            raise ValueError(f"{topology.name} is no leaf-spine fabric")
        self._fabric, self._jobs, self._scheme = fabric, jobs, scheme
        self._network = Network(topology)
        self._capacity = self._network.without(failures.links, failures.switches)
        self._programs = [
            program(replace(j.model.shape(j.ring), qps=scheme.qps), j.name, j.ranks) for j in jobs
        ]
        self._host = topology.host
        leaf = {name: i for i, name in enumerate(fabric.leaves)}
        self._ends = [
            np.array([(leaf[self._host[c.src].leaf], leaf[self._host[c.dst].leaf]) for c in p.channels])
            for p in self._programs
        ]
        self._nics = [self._access(p) for p in self._programs]
        self._known: dict[frozenset[int], dict[int, Paths]] = {}
        self.outcome = EpochOutcome()

    def _access(self, built: TaskGraph) -> list[tuple[int, int]]:
        """The links of the NICs of each channel."""
        number, host = self._network.number, self._host
        return [(number[c.src, host[c.src].leaf], number[host[c.dst].leaf, c.dst]) for c in built.channels]

    def _assign(self, active: frozenset[int]) -> dict[int, Paths]:
        """The paths of all channels of the active jobs. ECMP's paths do not depend on the active jobs."""
        jobs = range(len(self._jobs)) if not self._scheme.routing.chooses_paths else sorted(active)
        key = frozenset(jobs)
        if key not in self._known:
            ends = np.concatenate([self._ends[j] for j in jobs]).astype(np.int32)
            demand = LeafDemand(ends[:, 0].copy(), ends[:, 1].copy())
            began = time.perf_counter()
            choice = self._scheme.routing.choices(self._fabric, demand, self._scheme.options)
            self.outcome.assign_ms.append(1e3 * (time.perf_counter() - began))
            carried = int(loads(self._fabric, demand, choice).max(initial=0))
            self.outcome.loads.append((carried, self._fabric.bound(demand)))
            paths: dict[int, Paths] = {}
            at = 0
            for j in jobs:
                size = len(self._ends[j])
                paths[j] = self._links(j, choice[at : at + size])
                at += size
            self._known[key] = paths
        return self._known[key]

    def _links(self, job: int, choice: NDArray[np.int32]) -> Paths:
        number, fabric = self._network.number, self._fabric
        found: list[tuple[int, ...]] = []
        for (first, last), (u, v), c in zip(
            self._nics[job], self._ends[job].tolist(), choice.tolist(), strict=True
        ):
            if u == v:
                found.append((first, last))
                continue
            leaf, spine, other = fabric.nodes(u, v, c)
            found.append((first, number[leaf, spine], number[spine, other], last))
        return tuple(found)

    def run(self, iterations: int) -> EpochOutcome:
        """Run all iterations of all jobs."""
        # The hash fixes the paths of ECMP from the start. The other schemes choose when a job begins to send.
        idle: dict[int, Paths] = dict(enumerate(map(tuple, self._nics)))
        if not self._scheme.routing.chooses_paths:
            idle = self._assign(frozenset(idle))
        runs = [
            JobRun(j.name, p, idle[i], 0, iterations, round(j.start_s * PS_PER_S))
            for i, (j, p) in enumerate(zip(self._jobs, self._programs, strict=True))
        ]
        engine = self._engine(runs, 0)
        sizes = [len(p.kind) for p in self._programs]
        first = np.cumsum([0, *sizes])
        flows = np.concatenate([p.kind == FLOW for p in self._programs])
        on = np.zeros(len(flows), dtype=np.bool_)
        since = np.zeros(len(flows), dtype=np.int64)
        began: dict[int, int] = {}
        while (at := engine.next_event()) != NEVER:
            engine.advance(at)
            now = engine.now
            active = (engine.state.tasks["active"] != 0) & flows
            changed = np.flatnonzero(active != on)
            if not len(changed):
                continue
            begin, end = changed[active[changed]], changed[~active[changed]]
            self.outcome.fct_s += ((now - since[end]) / PS_PER_S).tolist()
            since[begin] = now
            on = active
            sending = frozenset(np.flatnonzero(np.add.reduceat(active, first[:-1])).tolist())
            if sending == frozenset(began):
                continue
            for j in frozenset(began) - sending:
                name = self._jobs[j].name
                self.outcome.all_reduce_s.setdefault(name, []).append((now - began.pop(j)) / PS_PER_S)
            for j in sending - frozenset(began):
                began[j] = now
            if not sending:
                continue
            self.outcome.epochs += 1
            paths = self._assign(sending)
            if all(engine.runs[j].paths == paths[j] for j in sending):
                continue
            runs = engine.export()
            for j in sending:
                runs[j].paths = paths[j]
            engine = self._engine(runs, now)
        for run, job in zip(engine.export(), self._jobs, strict=True):
            self.outcome.run_s[job.name] = run.ended / PS_PER_S - job.start_s
        return self.outcome

    def _engine(self, runs: Sequence[JobRun], now: int) -> KernelEngine:
        return KernelEngine(self._capacity, self._network.marks, runs, now, skip=False)
