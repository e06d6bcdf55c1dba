# SPDX-License-Identifier: Apache-2.0
"""Answers to single failures: `failover_events`, `failover_valid` and `failover_prepare_ms`.

The planner's process computes them by the function that the controller calls there after each plan.
`failover_prepare_ms` is the time from the plan to the last answer; `failover_prepare_cpu_ms` is the processor
time of that process. `failover_speedup` is how many times faster a sample of the answers is found by the
compiled kernels than by the plain reference. An answer is valid if every flow takes its path after the
failure, or truly has none.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

from controller.live.failover import PreparedFailovers, answers, prepare
from controller.model import Flow, FlowPlan, Plan
from controller.planner import POLICIES, PlanInput, first_plan
from controller.planner.emergency import Emergencies
from controller.process.precompute import STEP
from controller.routing.failover import Event
from controller.routing.forwarding import forwarding
from controller.routing.hash import ecmp_hash
from controller.routing.paths import path_of
from polyrhythm.bench.plan.cluster import LIMIT_S, Planner, plain_over_compiled
from polyrhythm.bench.plan.clusters import cluster, ring_job
from topo.graph import Topology

# Chosen: every so many answers are also checked by the tables of all switches, which takes 0.1 s each.
SAMPLED = 97


def measure(seed: int, runs: int) -> dict[str, Any]:
    """All figures by name."""
    return asyncio.run(_measure(inputs(cluster(), 5, 1_500, seed), runs))


def inputs(topology: Topology, jobs: int, flows: int, seed: int) -> PlanInput:
    """Ring jobs over hosts drawn one by one, so that nearly all flows cross the spines, under the default
    policy."""
    rng = Random(f"{seed}/bench plan/failures")
    hosts = rng.sample(topology.hosts, min(flows, len(topology.hosts)))
    size = len(hosts) // jobs
    made = (ring_job(f"j{i}", hosts[i * size : (i + 1) * size], flows // jobs, rng) for i in range(jobs))
    return PlanInput(topology, tuple(made), POLICIES["polyrhythm"], 0, seed=seed)


async def _measure(x: PlanInput, runs: int) -> dict[str, Any]:
    planner, times, cpu_times = Planner(x.topology), [], []
    try:
        made, _ = await planner.made(first_plan, x)
        for _ in range(runs + 1):
            failovers = PreparedFailovers.after(x, made)
            todo = tuple(failovers.missing)
            began, number = time.perf_counter(), failovers.number
            state = x, made, failovers.condition
            _, used_s = await planner.worker.run_timed(LIMIT_S, prepare, number, *state)
            for at in range(0, len(todo), STEP):
                chosen = todo[at : at + STEP]
                found, cpu_s = await planner.worker.run_timed(LIMIT_S, answers, number, chosen)
                failovers.put(found or ())
                used_s += cpu_s
            times.append(time.perf_counter() - began)
            cpu_times.append(used_s)
        faster = await planner.worker.run(speedup, x, made, todo[::SAMPLED])
    finally:
        planner.worker.close()
    flows = [f for job in x.jobs for f in job.flows]
    clos = LeafSpineCheck(x.topology, flows)
    counts = dict.fromkeys(("moved", "renumbered", "cut_off"), 0)
    valid = 0
    for number, event in enumerate(todo):
        answer = failovers.answer(event)
        if answer is None:
            continue
        emergency = answer.reroutes.emergency(made)
        for name in counts:
            counts[name] += len(getattr(emergency, name))
        after = emergency.applied(made)
        sampled = number % SAMPLED == 0
        valid += clos.valid(after, event) and (
            not sampled or valid_by_tables(x.topology, flows, after, event)
        )
    return {
        "failover_events": len(todo),
        "failover_valid": valid,
        "failover_prepare_ms": round(1e3 * statistics.median(times[1:]), 1),
        "failover_prepare_cpu_ms": round(1e3 * statistics.median(cpu_times[1:]), 1),
        "failover_speedup": faster,
        **{f"failover_{name}": count for name, count in counts.items()},
    }


def speedup(x: PlanInput, plan: Plan, events: Sequence[Event]) -> float:
    """How many times faster the compiled kernels answer these failures than the plain reference."""

    def answered(plain: bool) -> object:
        emergencies = Emergencies(x, plan, plain=plain)
        return [emergencies.answer(event) for event in events]

    return plain_over_compiled(answered, runs=1)


class LeafSpineCheck:
    """Checks answers on a leaf-spine with one cable between each leaf and spine, by its own idea of ECMP.

    A leaf spreads the packets to another leaf over the ports to the spines that both leaves still reach, in
    the order of the ports; bucket b leads to port b mod n.
    """

    def __init__(self, topology: Topology, flows: Sequence[Flow]) -> None:
        self._topology = topology
        self._flows = flows
        self._up = {
            leaf: [topology.ports[leaf][p].node for p in sorted(topology.ports[leaf])]
            for leaf in topology.prefixes
        }
        self._up = {leaf: [n for n in names if n in topology.switch] for leaf, names in self._up.items()}
        # The ways of each pair of leaves while nothing is down.
        self._ways: dict[tuple[str, str], list[str]] = {}
        self._hash = lru_cache(maxsize=1 << 20)(ecmp_hash)

    def valid(self, plan: Plan, event: Event) -> bool:
        """Whether each flow of the plan takes its path after the failure, or truly has none."""
        used: set[tuple[str, str, int]] = set()
        return all(self._flow_valid(f, plan.flows[f.name], event, used) for f in self._flows)

    def _members(self, u: str, v: str, event: Event) -> list[str]:
        """The spines that leaf u spreads the packets to leaf v over, in the order of its ports."""
        if (u, v) not in self._ways:
            self._ways[u, v] = [s for s in self._up[u] if s in self._up[v]]
        ways = self._ways[u, v]
        if isinstance(event, str):
            return [s for s in ways if s != event]
        return [s for s in ways if s not in event] if u in event or v in event else ways

    def _flow_valid(
        self,
        flow: Flow,
        planned: FlowPlan,
        event: Event,
        used: set[tuple[str, str, int]],
    ) -> bool:
        host, spec = self._topology.host, self._topology.hash
        src, dst = flow.src, flow.dst
        u, v = host[src].leaf, host[dst].leaf
        ways = self._members(u, v, event)
        if planned.path is None or planned.source_port is None:
            return event in (u, v) or (u != v and not ways)
        key = (src, dst, planned.source_port)
        if event in (u, v) or key in used:
            return False
        used.add(key)
        if u == v:
            return planned.path == (src, u, dst)
        value = self._hash(host[src].ip, host[dst].ip, planned.source_port, algorithm=spec.algorithm)
        bucket = (value >> spec.slices[0]) & 255
        return bool(ways) and planned.path == (src, u, ways[bucket % len(ways)], v, dst)


def valid_by_tables(topology: Topology, flows: Sequence[Flow], plan: Plan, event: Event) -> bool:
    """Whether each flow takes its path by the entries that the switches hold after the failure."""
    links = frozenset({event}) if isinstance(event, tuple) else frozenset()
    switches = frozenset({event}) if isinstance(event, str) else frozenset()
    tables = forwarding(topology, links, switches)
    for f in flows:
        planned = plan.flows[f.name]
        if planned.path is None or planned.source_port is None:
            lost = {topology.host[f.src].leaf, topology.host[f.dst].leaf} & switches
            if not lost and path_of(topology, tables, f.src, f.dst, 0xC000):
                return False
        elif path_of(topology, tables, f.src, f.dst, planned.source_port) != planned.path:
            return False
    return True
