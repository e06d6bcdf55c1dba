# SPDX-License-Identifier: Apache-2.0
"""CPU time of the default policy's plan for jobs that all meet, and of its evaluator's compiled loops."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import plain
from controller.kernel import version
from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.demand import Demands
from controller.planner.search_instance import instance_of
from topo.generate import leaf_spine

JOBS = (2, 4, 8, 10, 40)
_MOST_RUNS = 3
"""Chosen: these plans take seconds together, and their times differ little."""
_RATE = 50_000_000_000
_MS = 1_000_000
_THERE = ("leaf1", "spine1", "leaf2")
_REFERENCE = Effort((1, 2), 60)
"""What both the plain reference and the compiled loops evaluate. Chosen: the reference takes some ms."""


def inputs(seed: int, jobs: int, slow: int = 1) -> PlanInput:
    """`jobs` jobs between two leaves with one spine, so that all of them meet on one link each way.

    Periods are 120 to 280 ms, Up phases 25 to 65 % of them. The last job is `slow` times slower.
    """
    rng = Random(f"{seed}/bench plan/{jobs}/{slow}")
    fabric = leaf_spine(2, 1, jobs, host_bps=_RATE, fabric_bps=_RATE)
    made = []
    for i in range(jobs):
        period = rng.randint(120, 280) * _MS * (slow if i == jobs - 1 else 1)
        up = round(rng.uniform(0.25, 0.65) * period)
        name, a, b = f"j{i}", f"h{i + 1}", f"h{jobs + i + 1}"
        size = _RATE * up // 8_000_000_000
        flows = tuple(Flow(f"{name}/{src}>{dst}", name, src, dst, size) for src, dst in ((a, b), (b, a)))
        profile = Profile(period, (Phase(0, up, _RATE),))
        made.append(Job(name, "bench", rng.choice((2, 8, 32)), (a, b), profile, 1e12, flows))
    return PlanInput(fabric, tuple(made), POLICIES["polyrhythm"], 0, seed=seed)


def measure(seed: int, runs: int) -> dict[str, Any]:
    """All figures by name: CPU time of this process, the median of at most _MOST_RUNS after a first plan."""
    runs = min(runs, _MOST_RUNS)
    first_s = _cpu(inputs(seed, 8))
    found: dict[str, Any] = {"numba": version(), "first_plan_cpu_ms": round(1e3 * first_s, 1)}
    for jobs in JOBS:
        found[f"plan_{jobs}_jobs_cpu_ms"] = _plan_ms(inputs(seed, jobs), runs)
    found["plan_1000_times_slower_cpu_ms"] = _plan_ms(inputs(seed, 2, slow=1_000), runs)
    return found | _against_reference(inputs(seed, 8))


def _plan_ms(x: PlanInput, runs: int) -> float:
    return round(1e3 * statistics.median(_cpu(x) for _ in range(runs)), 1)


def _cpu(x: PlanInput) -> float:
    """The CPU time of a plan in seconds."""
    began = time.process_time()
    plan(x)
    return time.process_time() - began


def _against_reference(x: PlanInput) -> dict[str, Any]:
    """One evaluation of all jobs on one level, by the plain reference and by the compiled loops."""
    demands = Demands(x)
    near = {job.hosts[0] for job in x.jobs}
    ways = {
        f.name: (tuple(pairwise((f.src, *(_THERE if f.src in near else _THERE[::-1]), f.dst))),)
        for j in x.jobs
        for f in j.flows
    }
    instance = instance_of(demands, ways)
    choice = plain(instance, (0,) * len(instance.flows))
    times, results = [], []
    for reference in (True, False):
        Evaluator(instance, plain=reference).lengths(choice, Effort((1,), 8))
        began = time.process_time()
        results.append(Evaluator(instance, plain=reference).lengths(choice, _REFERENCE))
        times.append(time.process_time() - began)
    return {
        "evaluation_reference_ms": round(1e3 * times[0], 2),
        "evaluation_compiled_ms": round(1e3 * times[1], 3),
        "evaluation_speedup": round(times[0] / max(1e-9, times[1]), 1),
        "evaluation_same": bool(np.array_equal(results[0], results[1])),
    }
