# SPDX-License-Identifier: Apache-2.0
"""How much more than the exact optimum the most loaded link carries: `excess_first`, `excess_final`,
`excess_irregular`.

`excess_*_speedup` are the compiled kernels against the plain reference on such inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from controller.model import Flow, Job, Phase, Plan, Profile
from controller.planner import POLICIES, PlanInput, first_plan, plan
from controller.routing.algorithms import Options, solve
from controller.routing.algorithms.base import congestion
from controller.routing.algorithms.ilp import ilp, installed
from controller.routing.algorithms.optimal import optimal
from controller.routing.fabric import Fabric, LeafDemand
from controller.routing.from_topology import Failures, choices_of, demand_of, fabric_of
from polyrhythm.bench.plan.cluster import speedups
from polyrhythm.bench.plan.clusters import RATE_BPS, cluster
from topo.generate import leaf_spine
from topo.graph import Topology

PERMUTATIONS = 50
CHANGES = 50
_ILP_S = 10.0
_JOBS = 32
"""The jobs of a permutation, so that the final plan comes from the whole joint search (at most 32 jobs)."""


def measure(seed: int, runs: int) -> dict[str, Any]:
    """All figures by name; `runs` does not matter."""
    rng = Random(f"{seed}/bench plan/excess")
    found = [_permutation(cluster(), rng) for _ in range(PERMUTATIONS)]
    one = _full_load(cluster(), Random(f"{seed}/bench plan/excess/speedup"))
    faster = speedups(replace(_one_job_anew(one, rng), previous=first_plan(one)))
    uneven = speedups(
        _irregular_input(8, Random(f"{seed}/bench plan/excess/irregular speedup")), weighted=True
    )
    result: dict[str, Any] = {
        "excess_first": round(max(first for first, _ in found), 4),
        "excess_final": round(max(final for _, final in found), 4),
    }
    irregular = [_irregular(down, rng) for down in range(1, 9)] if installed() else None
    return result | {
        "excess_irregular": round(max(irregular), 4) if irregular else None,
        "excess_paths_speedup": faster["paths_speedup"],
        "excess_ports_speedup": faster["ports_speedup"],
        "excess_irregular_paths_speedup": uneven["paths_speedup"],
    }


def _permutation(topology: Topology, rng: Random) -> tuple[float, float]:
    """The excess of the first and of the final plan: every host sends one flow and gets one, and before
    that CHANGES jobs have left and others have come."""
    x, made = _full_load(topology, rng), None
    for _ in range(CHANGES):
        x = _one_job_anew(replace(x, previous=made), rng)
        made = first_plan(x)
    assert made is not None
    return _excess(x, made), _excess(x, plan(replace(x, previous=made)))


def _full_load(topology: Topology, rng: Random) -> PlanInput:
    """One flow from every host and one to every host, in _JOBS jobs."""
    src = [h.name for h in topology.hosts]
    dst = rng.sample(src, len(src))
    jobs = tuple(_job(f"j{i}", list(zip(src[i::_JOBS], dst[i::_JOBS], strict=True))) for i in range(_JOBS))
    return PlanInput(topology, jobs, POLICIES["polyrhythm"], 0)


def _one_job_anew(x: PlanInput, rng: Random) -> PlanInput:
    """A random job leaves; another one connects its hosts in another order."""
    gone = rng.randrange(len(x.jobs))
    flows = x.jobs[gone].flows
    dst = [f.dst for f in flows]
    rng.shuffle(dst)
    come = _job(f"j{rng.randrange(10**9)}", [(f.src, d) for f, d in zip(flows, dst, strict=True)])
    return replace(x, jobs=(*x.jobs[:gone], *x.jobs[gone + 1 :], come))


def _job(name: str, pairs: Sequence[tuple[str, str]], rate: int = RATE_BPS) -> Job:
    """A job that sends all the time, so that no link can be shared in time."""
    flows = tuple(Flow(f"{name}/{n}", name, a, b, rate // 80) for n, (a, b) in enumerate(pairs) if a != b)
    hosts = tuple(sorted({h for pair in pairs for h in pair}))
    profile = Profile(100_000_000, (Phase(0, 100_000_000, rate),))
    return Job(name, "bench", len(hosts), hosts, profile, 1e15, flows)


def _irregular(down: int, rng: Random) -> float:
    """The excess of the final plan over the ILP."""
    x = _irregular_input(down, rng)
    return _excess(x, plan(x))


def _irregular_input(down: int, rng: Random) -> PlanInput:
    """A permutation of the hosts of 16 leaves and 8 spines, with links of three rates, some of them down."""
    even = leaf_spine(16, 8, 8, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    rates = (RATE_BPS, 2 * RATE_BPS, 4 * RATE_BPS)
    uneven = replace(even, links=tuple(replace(k, rate_bps=rng.choice(rates)) for k in even.links))
    cut = frozenset((min(k.a, k.b), max(k.a, k.b)) for k in rng.sample(uneven.links, down))
    hosts = [h.name for h in uneven.hosts]
    pairs = list(zip(hosts, rng.sample(hosts, len(hosts)), strict=True))
    jobs = tuple(_job(f"j{i}", pairs[i::8], rate) for i, rate in enumerate((RATE_BPS, RATE_BPS // 2) * 4))
    return PlanInput(uneven, jobs, POLICIES["polyrhythm"], 0, down_links=cut)


def _excess(x: PlanInput, made: Plan) -> float:
    """The largest relative link load of a plan over the smallest possible one, less 1."""
    fabric = fabric_of(x.topology, Failures(x.down_links, x.down_switches))
    flows = [f for job in x.jobs for f in job.flows]
    host = x.topology.host
    weight = np.array([j.profile.phases[0].rate_bps for j in x.jobs for _ in j.flows], dtype=np.float64)
    demand = demand_of(fabric, [(host[f.src], host[f.dst]) for f in flows], weight)
    paths = [(made.flows[f.name].path or ())[1:-1] for f in flows]
    if not all(paths):
        raise RuntimeError("a flow has no path")
    return congestion(fabric, demand, choices_of(fabric, demand, paths)) / _least(fabric, demand) - 1


def _least(fabric: Fabric, demand: LeafDemand) -> float:
    """The largest relative link load of the exact optimum: by colouring, or where links differ by the ILP."""
    algorithm = optimal if demand.weight is None and getattr(fabric, "equal", False) else ilp
    return congestion(fabric, demand, solve(algorithm, fabric, demand, Options(limit_s=_ILP_S)))
